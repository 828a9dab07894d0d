package profile

import (
	"bytes"
	"compress/gzip"
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

// Bounds of what a target may make us read. The profiles of a server under load have 10
// to 500 kB.
const (
	maxMetricsBytes = 16 << 20
	maxRawBytes     = 16 << 20 // of a compressed profile
	maxProfileBytes = 64 << 20 // of a profile, decompressed
	maxShownBytes   = 200      // of a response quoted in an error
)

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
	transport.DisableCompression = true // profiles are compressed already; parseProfile bounds their size
	transport.MaxIdleConnsPerHost = 8
	transport.Proxy = nil // connect to the named machine itself
	return &client{
		base: base,
		http: &http.Client{
			Transport: transport,
			// The admin listener never redirects; a redirect would lead to another
			// server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// do requests a path and returns the body of a 200 response.
func (c *client) do(ctx context.Context, method, path string, maxBytes int64, timeout time.Duration) (body []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no response within %v", timeout))
	defer cancel()
	defer func() {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
			err = cause
		}
		err = fetching(path, err)
	}()
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
	if resp.StatusCode != http.StatusOK {
		start, _ := io.ReadAll(io.LimitReader(resp.Body, maxShownBytes)) // a partial text is enough
		line, _, _ := strings.Cut(strings.TrimSpace(string(start)), "\n")
		err := fmt.Errorf("status %d: %q", resp.StatusCode, line)
		if path == metricsPath && resp.StatusCode == http.StatusNotFound {
			err = fmt.Errorf("%w: %w", ErrNotPulsegate, err)
		}
		return nil, err
	}
	if body, err = readAtMost(resp.Body, maxBytes); errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the response was cut off")
	}
	return body, err
}

// fetching wraps err with the page that could not be fetched.
func fetching(path string, err error) error {
	if err == nil {
		return nil
	}
	page, _, _ := strings.Cut(path, "?")
	return fmt.Errorf("fetch %s: %w", page, err)
}

// readAtMost reads all of r. It returns an error if r has more than maxBytes.
func readAtMost(r io.Reader, maxBytes int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err == nil && int64(len(data)) > maxBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxBytes)
	}
	return data, err
}

// counters fetches the counters. It also returns their text.
func (c *client) counters(ctx context.Context) (*Counters, []byte, error) {
	asked := time.Now()
	text, err := c.do(ctx, http.MethodGet, metricsPath, maxMetricsBytes, slack)
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
	raw, err := c.do(ctx, http.MethodGet, path, maxRawBytes, window+slack)
	if err != nil {
		return nil, err
	}
	p, err := parseProfile(raw)
	return p, fetching(path, err)
}

// parseProfile parses a profile in the gzipped format that Go writes. Unlike
// profile.Parse it bounds the decompressed size, and tries no other formats.
func parseProfile(raw []byte) (*profile.Profile, error) {
	zr, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("it is not a profile")
	}
	data, err := readAtMost(zr, maxProfileBytes)
	if err != nil {
		return nil, fmt.Errorf("the profile is damaged or cut off: %w", err)
	}
	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}
	if err != nil {
		return nil, fmt.Errorf("the profile cannot be read: %w", err)
	}
	return p, nil
}
