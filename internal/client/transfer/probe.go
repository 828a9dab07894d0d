package transfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// maxProbeBytes bounds how much of the response is read.
const maxProbeBytes = 256

// ProbeURL returns the URL of a health check: address, with /readyz if it has no path.
func ProbeURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		// The error does not contain the URL, which may hold a password.
		return nil, settings.Usagef("the URL is not of the form http://host:port/path")
	}
	// A server that listens on every address answers on loopback.
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

// Probe sends a health check to a server and returns the first line of a 200 response.
// It uses no proxy and follows no redirect. Errors contain neither the user nor the
// query of target.
func Probe(ctx context.Context, target *url.URL, config *tls.Config) (answer []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s://%s%s: %w", target.Scheme, target.Host, target.Path, err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: config},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the outer error contains the full URL
		}
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeBytes))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimSpace(line)
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s", resp.Status, line)
	}
	return line, nil
}
