package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/server"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// healthCommand reports a server's health to schedulers that run a command inside the
// container, as Docker's HEALTHCHECK does.
type healthCommand struct {
	URL       string        `arg:"" optional:"" help:"URL to request, such as http://127.0.0.1:8080/livez; without a path /readyz. A path alone is asked of --admin-addr, or of --addr if that is empty. Default: /readyz of --addr."`
	Addr      string        `as:"serve" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of the server's public listener, as in serve."`
	AdminAddr string        `as:"serve" default:"127.0.0.1:6060" placeholder:"HOST:PORT" help:"Address of the server's admin listener, as in serve; empty for none."`
	TLSCert   string        `as:"serve" name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate chain of the public listener, as in serve. With one, --addr is asked with https, and any certificate is accepted. Default: no TLS."`
	Timeout   time.Duration `default:"3s" env:"-" help:"Time limit for the answer."`
	CA        string        `type:"path" env:"-" placeholder:"FILE" help:"CA certificates in PEM that verify the certificate of an https server. Default: those of the system."`
	NoCheck   bool          `name:"no-check-certificate" env:"-" help:"Accept any certificate of an https server, as probes of Kubernetes do. The request contains no secret."`
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

// target returns the URL to request.
func (c *healthCommand) target() (*url.URL, error) {
	if c.URL != "" && !strings.HasPrefix(c.URL, "/") {
		return transfer.ProbeURL(c.URL)
	}
	flag, addr, scheme := "--addr", c.Addr, "http"
	switch {
	case c.URL != "" && c.AdminAddr != "": // which never has TLS
		flag, addr = "--admin-addr", c.AdminAddr
	case c.TLSCert != "":
		scheme, c.NoCheck = "https", true // the address is no name in the certificate
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, settings.Usagef("%s: %v%s", flag, err, server.AddrHint(addr))
	}
	return transfer.ProbeURL(scheme + "://" + addr + c.URL)
}
