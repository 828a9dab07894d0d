package main

import (
	"context"
	"net"

	"github.com/valyala/fasthttp"
)

// serveFastHTTP answers without using the body, which fasthttp has read.
func serveFastHTTP(ctx context.Context, l net.Listener, _ config) error {
	answer := []byte(fixedAnswer)
	s := &fasthttp.Server{Handler: func(c *fasthttp.RequestCtx) {
		if string(c.Path()) != path || !c.IsPost() {
			c.SetStatusCode(fasthttp.StatusNotFound)
			return
		}
		c.SetContentType("application/json")
		c.SetBody(answer)
	}}
	// Only the listener is closed; remaining connections end with the process.
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	if err := s.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
