package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/valyala/fasthttp"
)

// serveFixed starts a server that answers posted readings as stored without storing
// them, and answers the first request of pulsegate sim.
func serveFixed() (target string, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	server := &fasthttp.Server{Handler: func(c *fasthttp.RequestCtx) {
		c.SetContentType("application/json")
		c.Response.Header.Set("Cache-Control", "no-store")
		if c.IsGet() {
			c.SetBodyString(`{"devices":[]}`)
		} else {
			c.SetBodyString(`{"status":"stored"}`)
		}
	}}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() error { return errors.Join(server.Shutdown(), <-ended) }, nil
}
