package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// healthCommand asks a server for its health, for schedulers that run a command inside
// the container, as Docker's HEALTHCHECK does.
type healthCommand struct {
	URL     string        `arg:"" optional:"" help:"Address to ask, such as http://127.0.0.1:8080/livez. Without a path: /readyz. Default: /readyz of --addr."`
	Addr    string        `default:"127.0.0.1:8080" help:"Address of the server's public listener, as serve has it. Only without URL."`
	Timeout time.Duration `default:"3s" env:"-" help:"Time for the answer to arrive."`
	CA      string        `type:"path" env:"-" placeholder:"FILE" help:"Certificates, as PEM, that may have signed that of an https server. Default: the system's."`
	NoCheck bool          `name:"no-check-certificate" env:"-" help:"Take whatever certificate an https server has, as the probes of Kubernetes do. The request holds no secret."`
}

func (c *healthCommand) Run(ctx context.Context, std stdio) error {
	target, err := c.target()
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return settings.Usagef("--timeout must be more than 0")
	}
	tls, err := (&transfer.CredentialFiles{CA: c.CA}).TLSConfig()
	if err != nil {
		return err
	}
	tls.InsecureSkipVerify = c.NoCheck
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answer, err := transfer.Probe(ctx, target, tls)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s\n", answer)
	return err
}

// target returns the address to ask.
func (c *healthCommand) target() (*url.URL, error) {
	address := c.URL
	if address == "" {
		if _, _, err := net.SplitHostPort(c.Addr); err != nil {
			return nil, settings.Usagef("--addr: %v", err)
		}
		address = "http://" + c.Addr
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		// What is wrong with it is not shown: it may hold a password.
		return nil, settings.Usagef("the address to ask is not of the form http://host:port/path")
	}
	// A server that listens on every address is asked on loopback.
	switch u.Hostname() {
	case "", "0.0.0.0":
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	case "::":
		u.Host = net.JoinHostPort("::1", u.Port())
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/readyz"
	}
	return u, nil
}
