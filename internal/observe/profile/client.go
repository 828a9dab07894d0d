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

// Bounds of what a target may make us hold. The profiles of a server under load
// have 10 to 500 kB; whoever sends more is not one.
const (
	maxMetricsBytes = 16 << 20
	maxRawBytes     = 16 << 20 // of a profile as it is sent
	maxProfileBytes = 64 << 20 // of a profile, decompressed
	maxShownBytes   = 200      // of an answer that is quoted in an error
)

// slack is how much longer than its window a request may take.
const slack = 30 * time.Second

// A client asks one admin listener.
type client struct {
	http *http.Client
	base string // without a slash at its end
}

// ParseTarget returns the address of an admin listener in its full form. It takes
// "host:port" as well, and a URL whose path is empty.
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
		return "", errors.New("the target is more than scheme, host and port")
	}
	return u.Scheme + "://" + u.Host, nil
}

func newClient(base string) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // profiles come compressed, and the size is bounded below
	transport.MaxIdleConnsPerHost = 8
	transport.Proxy = nil // a profile of another machine than the one that was named helps nobody
	return &client{
		base: base,
		http: &http.Client{
			Transport: transport,
			// The admin listener redirects nobody; following would profile somebody else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// errNoSuchPage means that the server does not have what was asked for.
var errNoSuchPage = errors.New("profile: the server has no such page")

// do asks for a path and returns the body of a 200.
func (c *client) do(ctx context.Context, method, path string, maxBytes int64, timeout time.Duration) (body []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
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
			err = u.Err // the address is named once, by the caller
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		start, _ := io.ReadAll(io.LimitReader(resp.Body, maxShownBytes)) // what there is of it
		line, _, _ := strings.Cut(strings.TrimSpace(string(start)), "\n")
		err := fmt.Errorf("status %d: %q", resp.StatusCode, line)
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
			return nil, fmt.Errorf("%w (%w)", errNoSuchPage, err)
		}
		return nil, err
	}
	if body, err = readAtMost(resp.Body, maxBytes); errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the answer was cut off")
	}
	return body, err
}

// fetching names the page that could not be fetched.
func fetching(path string, err error) error {
	if err == nil {
		return nil
	}
	page, _, _ := strings.Cut(path, "?")
	return fmt.Errorf("fetch %s: %w", page, err)
}

// readAtMost reads all of r, which must not have more than maxBytes.
func readAtMost(r io.Reader, maxBytes int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err == nil && int64(len(data)) > maxBytes {
		return nil, fmt.Errorf("there are more than %d bytes", maxBytes)
	}
	return data, err
}

// counters reads the counters, and returns their text as well.
func (c *client) counters(ctx context.Context) (*Counters, []byte, error) {
	const path = "/metrics"
	asked := time.Now()
	text, err := c.do(ctx, http.MethodGet, path, maxMetricsBytes, slack)
	if errors.Is(err, errNoSuchPage) {
		err = fmt.Errorf("%w: %w", ErrNotPulsegate, err)
	}
	if err != nil {
		return nil, nil, err
	}
	at := asked.Add(time.Since(asked) / 2)
	counters, err := ReadCounters(bytes.NewReader(text))
	if err != nil {
		return nil, nil, fetching(path, err)
	}
	counters.At = at
	return &counters, text, nil
}

// profile fetches a profile whose window is as long as window.
func (c *client) profile(ctx context.Context, path string, window time.Duration) (*profile.Profile, error) {
	raw, err := c.do(ctx, http.MethodGet, path, maxRawBytes, window+slack)
	if err != nil {
		return nil, err
	}
	p, err := parseProfile(raw)
	return p, fetching(path, err)
}

// parseProfile reads a profile in the gzipped form that Go writes. Unlike
// profile.Parse it bounds what it decompresses, and tries no other forms.
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
