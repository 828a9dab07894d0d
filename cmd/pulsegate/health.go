package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// healthCommand asks a server for its health, for schedulers that run a command
// inside the container, as Docker's HEALTHCHECK does.
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
		return usageError{"--timeout must be more than 0"}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return usageError{err.Error()}
	}
	resp, err := client.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // it begins with the address as it was given
		}
		return fmt.Errorf("%s: %w", shown(target), err)
	}
	defer resp.Body.Close()
	said, err := firstLine(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s: read answer: %w", shown(target), err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s %s", shown(target), resp.Status, said)
	}
	_, err = fmt.Fprintf(std.out, "%s\n", said)
	return err
}

// target returns the address to ask.
func (c *healthCommand) target() (*url.URL, error) {
	if c.URL == "" {
		host, port, err := net.SplitHostPort(c.Addr)
		if err != nil {
			return nil, usageError{fmt.Sprintf("--addr: %v", err)}
		}
		// A server that listens on every address is asked on loopback.
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
			if ip != nil && ip.To4() == nil {
				host = "::1"
			}
		}
		return &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/readyz"}, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		// What is wrong with it is not shown: it may hold a password.
		return nil, usageError{"the address to ask is not of the form http://host:port/path"}
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/readyz"
	}
	return u, nil
}

// client returns a client that asks the server itself: no proxy, no redirect.
func (c *healthCommand) client() (*http.Client, error) {
	config := &tls.Config{InsecureSkipVerify: c.NoCheck}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read certificates: %s holds none", c.CA)
		}
	}
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: config},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// shown returns what of an address may be printed: no user, no query.
func shown(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// maxSaidBytes bounds what is shown of an answer.
const maxSaidBytes = 256

// firstLine returns the beginning of an answer.
func firstLine(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSaidBytes))
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return bytes.TrimSpace(line), err
}
