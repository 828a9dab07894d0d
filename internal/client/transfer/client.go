package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// Bounds of a client.
const (
	maxAnswerBytes = 8 << 20          // size of an answer other than an export
	MaxTries       = 8                // per batch
	maxWait        = 30 * time.Second // between two tries
	answerTimeout  = 60 * time.Second // per try
	idleTimeout    = 60 * time.Second // longest pause within a long answer
)

// A Client talks to one server.
type Client struct {
	// OnRetry is called before each wait for another try, with the error of the last try, the
	// number of tries so far and the time until the next one. May be nil. It must not change
	// once the client is in use.
	OnRetry func(err error, tries int, wait time.Duration)

	// Endless means that [Client.Retry] does not give up, also after what proxies answer in place of the server:
	// statuses from 502 on, and what is not JSON. The token's file is read for each request, as tokens expire before
	// such a client ends. It must not change once the client is in use.
	Endless bool

	target string // without a trailing slash
	cred   Credentials
	http   *http.Client
	wait   func(ctx context.Context, d time.Duration) error
}

// NewClient returns a client of the server at target, such as "http://127.0.0.1:8080".
// It follows no redirects, because the token must reach only the named server.
func NewClient(target string, cred Credentials) (*Client, error) {
	u, err := url.Parse(target)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.ContainsAny(target, "?#") {
		// it may hold a password
		return nil, settings.Usagef("--target is not of the form http://host:port%s", targetHint(target))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	transport.TLSClientConfig = cred.TLS.Clone()
	// Without pings, requests would use a dead connection of HTTP/2 until the kernel gives it up.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second}
	if cred.Dial != nil {
		transport.DialContext, transport.Proxy = cred.Dial, nil
	}
	return &Client{
		target: strings.TrimRight(target, "/"),
		cred:   cred,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		wait: sleep,
	}, nil
}

// targetHint suggests a scheme for a target that consists of a host and a port.
func targetHint(target string) string {
	host, port, err := net.SplitHostPort(target)
	if err != nil || strings.ContainsAny(host+port, "@/?#") || port == "" {
		return ""
	}
	return "; did you mean http://" + target + "?"
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// An Answer is the server's answer to a batch.
type Answer struct {
	Stored    int
	Duplicate int
	Rejected  []Rejection // by Index
}

// A Rejection is a reading of a batch that the server rejected.
type Rejection struct {
	Index  int // 0-based position in the batch
	Field  string
	Reason string
}

// ParseAnswer parses the answer to a batch of n readings. It returns an error unless the answer
// accounts for each of them exactly once. The error does not quote the answer.
func ParseAnswer(text []byte, n int) (a Answer, err error) {
	var body struct {
		Stored    *int `json:"stored"`
		Duplicate *int `json:"duplicate"`
		Rejected  []struct {
			Index  *int    `json:"index"`
			Field  *string `json:"field"`
			Reason string  `json:"reason"`
		} `json:"rejected"`
	}
	if json.Unmarshal(text, &body) != nil || body.Stored == nil || body.Duplicate == nil {
		return a, fmt.Errorf("%w: it is not the answer to a batch", ErrNotPulsegate)
	}
	last := -1
	for _, r := range body.Rejected {
		if r.Index == nil || r.Field == nil || r.Reason == "" {
			return a, errors.New("the answer has a rejected reading without index, field or reason")
		}
		if *r.Index <= last || *r.Index >= n {
			return a, errors.New("the rejected indexes in the answer are not ascending positions of the batch")
		}
		last = *r.Index
		a.Rejected = append(a.Rejected, Rejection{last, printable(*r.Field), printable(r.Reason)})
	}
	a.Stored, a.Duplicate = *body.Stored, *body.Duplicate
	if min(a.Stored, a.Duplicate) < 0 || max(a.Stored, a.Duplicate) > n || a.Stored+a.Duplicate+len(a.Rejected) != n {
		return a, errors.New("the answer does not account for every reading of the batch")
	}
	return a, nil
}

// A Problem is an error response (RFC 9457).
type Problem struct {
	Status int    `json:"-"`
	Type   string `json:"type"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
	Reason string `json:"reason"`

	retryAfter time.Duration
	needsTLS   bool
}

// ErrNeedsTLS is wrapped by a [Problem] if the server of an http URL uses TLS.
var ErrNeedsTLS = errors.New("the server uses TLS")

// Is reports whether p wraps [ErrNeedsTLS].
func (p *Problem) Is(target error) bool { return p.needsTLS && target == ErrNeedsTLS }

func (p *Problem) Error() string {
	text := fmt.Sprintf("the server answers %d %s", p.Status, http.StatusText(p.Status))
	for _, part := range []string{p.Title, p.Field, p.Reason, p.Detail} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// SendBatch posts a JSON array of n readings, with [Client.Retry]. After any error other
// than a *Problem, it is unknown what is stored.
func (c *Client) SendBatch(ctx context.Context, body []byte, n int) (answer Answer, err error) {
	err = c.Retry(ctx, func() error {
		answer, err = c.sendOnce(ctx, body, n)
		return err
	})
	return answer, err
}

// Retry calls try until it succeeds or ctx is done, at most 8 times unless the client is Endless. It retries if
// there was no answer, or one with status 408, 429, 500, 502, 503 or 504. It returns
// any other *Problem and [Final] errors at once.
func (c *Client) Retry(ctx context.Context, try func() error) error {
	backoff := 200 * time.Millisecond
	for n := 1; ; n++ {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if errors.As(err, new(finalError)) && !(c.Endless && errors.Is(err, ErrNotPulsegate)) {
			return err
		}
		var after time.Duration
		if p, ok := errors.AsType[*Problem](err); ok {
			if !slices.Contains(temporary, p.Status) && !(c.Endless && p.Status > http.StatusNotImplemented) {
				return err
			}
			after = p.retryAfter
		}
		if n == MaxTries && !c.Endless {
			return fmt.Errorf("gave up after %d tries: %w", MaxTries, err)
		}
		if after == 0 {
			// Jitter, so that clients that were disconnected together do not retry
			// together.
			after = backoff/2 + rand.N(backoff)
			backoff = min(2*backoff, maxWait)
		}
		if c.OnRetry != nil {
			c.OnRetry(err, n, after)
		}
		if err := c.wait(ctx, after); err != nil {
			return err
		}
	}
}

// temporary lists the statuses after which a request is retried. After some of them a
// batch may have been stored, in part or as a whole. Retrying is safe nevertheless: a
// reading is identified by device, time and sign, and the server reports readings that
// it has already stored as duplicates. The slice is never modified.
var temporary = []int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// Final marks an error that a retry cannot fix.
func Final(err error) error { return finalError{err} }

type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// ErrNotPulsegate is wrapped by errors about answers that Pulsegate would not give.
var ErrNotPulsegate = errors.New("the target does not respond like Pulsegate")

// sendOnce posts a body of n readings once.
func (c *Client) sendOnce(ctx context.Context, body []byte, n int) (answer Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	resp, err := c.ask(ctx, http.MethodPost, "/v1/readings", bytes.NewReader(body))
	var text jsontext.Value
	if err == nil {
		err = readAnswer(resp, &text)
	}
	if err != nil {
		return answer, err
	}
	if answer, err = ParseAnswer(text, n); err != nil {
		err = Final(err)
	}
	return answer, err
}

// readAnswer reads the JSON in a response into v, and closes the body. Members that v does not have
// are ignored: a later server may send more.
func readAnswer(resp *http.Response, v any) error {
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read answer: %w", err)
	case len(text) > maxAnswerBytes:
		return Final(fmt.Errorf("read answer: longer than %d bytes", maxAnswerBytes))
	case json.Unmarshal(text, v) != nil: // its error may quote the answer
		return Final(fmt.Errorf("read answer: %w", ErrNotPulsegate))
	}
	return nil
}

// Get fetches a path of the server. The only timeout is for pauses in the response. The
// caller must close the response body. The error wraps a *Problem if the status is not
// 200.
func (c *Client) Get(ctx context.Context, path string) (*http.Response, error) {
	return c.stream(ctx, http.MethodGet, path, nil)
}

func (c *Client) stream(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(idleTimeout, func() { cancel(fmt.Errorf("the server sent nothing for %v", idleTimeout)) })
	resp, err := c.ask(ctx, method, path, body)
	if err == nil && !framed(resp) {
		err = Final(errors.Join(errors.New("the answer has neither a length nor chunked encoding"), resp.Body.Close()))
	}
	if err != nil {
		err = cause(ctx, err)
		idle.Stop()
		cancel(nil)
		return nil, err
	}
	resp.Body = &idleTimeoutBody{ctx, cancel, resp.Body, idle}
	return resp, nil
}

// ask sends a request with the client's credentials, and JSON as its body unless that is nil. It
// returns the response if its status is 200 or 207. Otherwise the error wraps a *Problem.
func (c *Client) ask(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.target+path, body)
	if err != nil {
		return nil, Final(fmt.Errorf("create request: %w", err))
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	token := c.cred.Token
	if c.Endless && c.cred.reread != nil {
		if token, err = c.cred.reread(); err != nil {
			return nil, err
		}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		failed.URL, _, _ = strings.Cut(failed.URL, "?") // errors do not name devices
	}
	if err != nil || resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusMultiStatus {
		return resp, err
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	return nil, errors.Join(readProblem(resp, text), resp.Body.Close())
}

// framed reports whether the end of resp's body is distinguishable from a broken
// connection. In HTTP/1, a body with neither a length nor chunked encoding ends with
// the connection (RFC 9112, section 6.3).
func framed(resp *http.Response) bool {
	return resp.ProtoMajor > 1 || resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0
}

// An idleTimeoutBody is a body with a timeout for each read.
type idleTimeoutBody struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	idle   *time.Timer
}

func (s *idleTimeoutBody) Read(p []byte) (int, error) {
	s.idle.Reset(idleTimeout)
	n, err := s.body.Read(p)
	s.idle.Stop() // the caller's processing does not count
	if err != nil && err != io.EOF {
		err = fmt.Errorf("connection lost: %w", cause(s.ctx, err))
	}
	return n, err
}

func (s *idleTimeoutBody) Close() error {
	s.idle.Stop()
	s.cancel(nil)
	return s.body.Close()
}

// cause returns why ctx was canceled, or err.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// retryAfter returns the Retry-After of resp, at most maxWait, or 0 if it is not in
// seconds.
func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 63)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	// Limit before multiplying, which could overflow.
	return time.Duration(min(seconds, uint64(maxWait/time.Second))) * time.Second
}

// readProblem returns the problem in a response. Other responses, such as a proxy's
// error page, become a Problem with only a status.
func readProblem(resp *http.Response, text []byte) *Problem {
	p := &Problem{}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		_ = json.Unmarshal(text, p) // if the document is malformed, the status remains
	}
	for _, part := range []*string{&p.Title, &p.Field, &p.Reason, &p.Detail} {
		*part = printable(*part)
	}
	p.Status, p.retryAfter = resp.StatusCode, retryAfter(resp)
	// by net/http
	p.needsTLS = p.Status == http.StatusBadRequest &&
		bytes.HasPrefix(text, []byte("Client sent an HTTP request to an HTTPS server"))
	return p
}

// printable returns a server's text for a terminal, without control characters, which could make the
// terminal do anything.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
