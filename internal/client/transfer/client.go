package transfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
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
)

// A Client talks to one server.
type Client struct {
	target string // without a slash at its end
	token  string // "": none
	http   *http.Client
	wait   func(ctx context.Context, d time.Duration) error
}

// Credentials say who a client is, and whom it trusts.
type Credentials struct {
	Token string      // sent as a bearer token; "": none
	TLS   *tls.Config // for https; nil: the system's CAs, and no client certificate
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

// SendBatch posts a JSON array of readings. It tries again when there was no
// answer, or one with status 408, 429, 500, 502, 503 or 504, until ctx ends or
// for at most 8 tries. Any other *Problem means that the server refused the batch
// whole. After all other errors, it is not known what is stored.
func (c *Client) SendBatch(ctx context.Context, body []byte) (Answer, error) {
	backoff := 200 * time.Millisecond
	for try := 1; ; try++ {
		answer, after, err := c.sendOnce(ctx, body)
		if err == nil || after < 0 || ctx.Err() != nil {
			return answer, err
		}
		if try == maxTries {
			return answer, fmt.Errorf("gave up after %d tries: %w", maxTries, err)
		}
		if after == 0 {
			// Spread the tries of many clients that were cut off at one moment.
			after = backoff/2 + rand.N(backoff)
			backoff *= 2
		}
		if err := c.wait(ctx, after); err != nil {
			return answer, err
		}
	}
}

// do sends a request with the client's credentials.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

// sendOnce posts body once. after tells how long to wait before the next try: 0
// leaves that to the caller, and less than 0 means that another try is of no use.
func (c *Client) sendOnce(ctx context.Context, body []byte) (answer Answer, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target+"/v1/readings", bytes.NewReader(body))
	if err != nil {
		return answer, -1, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.do(req)
	if err != nil {
		return answer, 0, fmt.Errorf("send readings: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return answer, 0, fmt.Errorf("read answer: %w", err)
	case len(text) > maxAnswerBytes:
		return answer, -1, fmt.Errorf("read answer: longer than %d bytes", maxAnswerBytes)
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusMultiStatus:
		if err := json.Unmarshal(text, &answer); err != nil {
			return Answer{}, -1, errors.New("read answer: it is not one of Pulsegate's")
		}
		return answer, 0, nil
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		// After some of these the batch may be stored, in part or whole. To send it
		// again is safe all the same: a reading is identified by device, time and
		// sign, and the server answers what it stored before as a duplicate.
		return answer, retryAfter(resp), readProblem(resp, text)
	}
	return answer, -1, readProblem(resp, text)
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
	p.Status = resp.StatusCode
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
