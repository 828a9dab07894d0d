package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Bounds of a client.
const (
	maxAnswerBytes = 8 << 20          // of an answer to a batch
	maxTries       = 8                // of one batch
	maxWait        = 30 * time.Second // between two tries
	answerTimeout  = 60 * time.Second // of one try
	idleTimeout    = 60 * time.Second // in which the server may send nothing of a long answer
)

// A Client talks to one server.
type Client struct {
	target string // without a slash at its end
	token  string // "": none
	http   *http.Client
	wait   func(ctx context.Context, d time.Duration) error
}

// NewClient returns a client of the server at target, such as
// "http://127.0.0.1:8080". It follows no redirects: a token is for the server that
// was named, and no other.
func NewClient(target string, cred Credentials) (*Client, error) {
	u, err := url.Parse(target)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.ContainsAny(target, "?#") {
		return nil, fmt.Errorf("transfer: target %q is not of the form http://host:port", target)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	transport.TLSClientConfig = cred.TLS.Clone()
	if cred.Dial != nil {
		transport.DialContext, transport.Proxy = cred.Dial, nil
	}
	return &Client{
		target: strings.TrimRight(target, "/"),
		token:  cred.Token,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		wait: sleep,
	}, nil
}

// Close closes the connections that are kept for later requests.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// An Answer is what the server says of a batch.
type Answer struct {
	Stored    int         `json:"stored"`
	Duplicate int         `json:"duplicate"`
	Rejected  []Rejection `json:"rejected"`
}

// A Rejection is one reading of a batch that the server refused.
type Rejection struct {
	Index  int    `json:"index"` // 0-based position in the batch
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// A Problem is an answer of the server that refuses a whole request
// (RFC 9457).
type Problem struct {
	Status int    `json:"-"`
	Type   string `json:"type"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
	Reason string `json:"reason"`

	retryAfter time.Duration
}

func (p *Problem) Error() string {
	text := fmt.Sprintf("the server answers %d %s", p.Status, http.StatusText(p.Status))
	for _, part := range []string{p.Title, p.Field, p.Reason, p.Detail} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// SendBatch posts a JSON array of readings, with [Client.Retry]. After any other
// error than a *Problem, it is not known what is stored.
func (c *Client) SendBatch(ctx context.Context, body []byte) (answer Answer, err error) {
	err = c.Retry(ctx, func() error {
		answer, err = c.sendOnce(ctx, body)
		return err
	})
	return answer, err
}

// Retry calls try until it succeeds, until ctx ends or at most 8 times. It tries
// again where there was no answer, or one with status 408, 429, 500, 502, 503 or
// 504; any other *Problem and [Final] errors are returned at once.
func (c *Client) Retry(ctx context.Context, try func() error) error {
	backoff := 200 * time.Millisecond
	for n := 1; ; n++ {
		err := try()
		if err == nil || ctx.Err() != nil || errors.As(err, new(finalError)) {
			return err
		}
		var after time.Duration
		if p, ok := errors.AsType[*Problem](err); ok {
			if !slices.Contains(temporary, p.Status) {
				return err
			}
			after = p.retryAfter
		}
		if n == maxTries {
			return fmt.Errorf("gave up after %d tries: %w", maxTries, err)
		}
		if after == 0 {
			// Spread the tries of many clients that were cut off at one moment.
			after = backoff/2 + rand.N(backoff)
			backoff *= 2
		}
		if err := c.wait(ctx, after); err != nil {
			return err
		}
	}
}

// temporary are the statuses after which a request is sent again. After some of
// them a batch may be stored, in part or whole. To send it again is safe all the
// same: a reading is identified by device, time and sign, and the server answers
// what it stored before as a duplicate. The list is never written to.
var temporary = []int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// Final marks an error that another try does not mend.
func Final(err error) error { return finalError{err} }

type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// do sends a request with the client's credentials.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

// sendOnce posts body once.
func (c *Client) sendOnce(ctx context.Context, body []byte) (answer Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target+"/v1/readings", bytes.NewReader(body))
	if err != nil {
		return answer, Final(fmt.Errorf("make request: %w", err))
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.do(req)
	if err != nil {
		return answer, fmt.Errorf("send readings: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return answer, fmt.Errorf("read answer: %w", err)
	case len(text) > maxAnswerBytes:
		return answer, Final(fmt.Errorf("read answer: longer than %d bytes", maxAnswerBytes))
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusMultiStatus:
		return answer, readProblem(resp, text)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return Answer{}, Final(errors.New("read answer: it is not one of Pulsegate's"))
	}
	return answer, nil
}

// Get fetches a path of the server. The whole may take as long as it takes; only
// silence ends it. The caller must close the answer's body. The error wraps a
// *Problem when the answer is not 200.
func (c *Client) Get(ctx context.Context, path string) (*http.Response, error) {
	return c.stream(ctx, http.MethodGet, path)
}

func (c *Client) stream(ctx context.Context, method, path string) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(idleTimeout, func() { cancel(fmt.Errorf("the server sent nothing for %v", idleTimeout)) })
	resp, err := c.ask(ctx, method, path, "")
	if err == nil && !framed(resp) {
		err = Final(errors.Join(errors.New("the answer does not tell where it ends"), resp.Body.Close()))
	}
	if err != nil {
		err = cause(ctx, err)
		idle.Stop()
		cancel(nil)
		return nil, err
	}
	resp.Body = &steadyBody{ctx, cancel, resp.Body, idle}
	return resp, nil
}

// ask sends a request and returns its answer, if that is 200. Otherwise the error
// wraps a *Problem.
func (c *Client) ask(ctx context.Context, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.target+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.do(req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	return nil, errors.Join(readProblem(resp, text), resp.Body.Close())
}

// framed reports whether the end of resp's body can be told from a connection
// that broke off. In HTTP/1, a body with neither a length nor chunks ends with the
// connection (RFC 9112, section 6.3).
func framed(resp *http.Response) bool {
	return resp.ProtoMajor > 1 || resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0
}

// A steadyBody is a body of which each part must come in time.
type steadyBody struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	idle   *time.Timer
}

func (s *steadyBody) Read(p []byte) (int, error) {
	s.idle.Reset(idleTimeout)
	n, err := s.body.Read(p)
	s.idle.Stop() // what the caller does with it takes its own time
	if err != nil && err != io.EOF {
		err = fmt.Errorf("broken off: %w", cause(s.ctx, err))
	}
	return n, err
}

func (s *steadyBody) Close() error {
	s.idle.Stop()
	s.cancel(nil)
	return s.body.Close()
}

// cause returns why ctx was cancelled, or err.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// retryAfter returns how long resp asks to wait, at most maxWait, and 0 if it does
// not say so in seconds.
func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 63)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	// Bounded before it is multiplied, which could overflow.
	return time.Duration(min(seconds, uint64(maxWait/time.Second))) * time.Second
}

// readProblem returns the problem that an answer holds. Answers of others, such
// as a proxy's page, become a Problem with their status alone.
func readProblem(resp *http.Response, text []byte) *Problem {
	p := &Problem{}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		_ = json.Unmarshal(text, p) // a damaged document leaves the status
	}
	p.Status, p.retryAfter = resp.StatusCode, retryAfter(resp)
	return p
}

// sleep waits for d or for the end of ctx.
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
