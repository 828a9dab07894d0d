package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// maxShownBytes bounds a response that is quoted in an error.
const maxShownBytes = 200

const metricsPath = "/metrics"

// slack is how much longer than its window a request may take.
const slack = 30 * time.Second

// A client sends requests to one admin listener.
type client struct {
	http *http.Client
	base string // without a trailing slash
}

// ParseTarget returns the base URL of an admin listener. target is a URL with an empty
// path, or "host:port".
func ParseTarget(target string) (string, error) {
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return "", fmt.Errorf("the target is not a URL: %w", errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("the target is not an http or https URL")
	case u.Host == "":
		return "", errors.New("the target has no host")
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.User != nil:
		return "", errors.New("the target has more than scheme, host and port")
	}
	return u.Scheme + "://" + u.Host, nil
}

func newClient(base string) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 8
	transport.Proxy = nil // connect to the named machine itself
	return &client{base: base, http: &http.Client{Transport: transport}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// do requests a path and returns the body of a 200 response.
func (c *client) do(ctx context.Context, method, path string, timeout time.Duration) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer func() { err = fetching(path, err) }()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the caller names the address
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusOK {
		return body, err
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(body[:min(len(body), maxShownBytes)]), []byte("\n"))
	err = fmt.Errorf("status %d: %q", resp.StatusCode, line)
	if path == metricsPath && resp.StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", ErrNotPulsegate, err)
	}
	return nil, err
}

// fetching wraps err with the page that could not be fetched.
func fetching(path string, err error) error {
	if err == nil {
		return nil
	}
	page, _, _ := strings.Cut(path, "?")
	return fmt.Errorf("fetch %s: %w", page, err)
}

// counters fetches the counters. It also returns their text.
func (c *client) counters(ctx context.Context) (*Counters, []byte, error) {
	asked := time.Now()
	text, err := c.do(ctx, http.MethodGet, metricsPath, slack)
	if err != nil {
		return nil, nil, err
	}
	at := asked.Add(time.Since(asked) / 2)
	counters, err := ReadCounters(bytes.NewReader(text))
	if err != nil {
		return nil, nil, fetching(metricsPath, err)
	}
	counters.At = at
	return &counters, text, nil
}

// profile fetches a profile that covers the given window.
func (c *client) profile(ctx context.Context, path string, window time.Duration) (*profile.Profile, error) {
	raw, err := c.do(ctx, http.MethodGet, path, window+slack)
	if err != nil {
		return nil, err
	}
	p, err := profile.ParseData(raw)
	return p, fetching(path, err)
}
