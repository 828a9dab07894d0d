package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// An exporter sends batches to a collector, one at a time.
type exporter struct {
	opt     Options
	client  *http.Client
	failing bool // the last export failed and was logged
}

func newExporter(opt Options) *exporter {
	return &exporter{opt: opt, client: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute},
		// Following a redirect would send the headers, which may be secret, to another
		// server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (e *exporter) close() { e.client.CloseIdleConnections() }

// Bounds of one export.
const (
	exportTries    = 4
	exportTimeout  = 10 * time.Second // per attempt
	firstBackoff   = time.Second
	maxRetryAfter  = 30 * time.Second
	maxAnswerBytes = 64 << 10
)

// errRetry marks failures after which the OpenTelemetry protocol has a client retry:
// retryable responses and failed connections.
var errRetry = errors.New("the spans are not accepted yet")

// export sends a batch, with retries as the protocol demands. It returns how many
// requests the collector accepted. A request with a rejected span was not accepted.
func (e *exporter) export(ctx context.Context, batch []Request) (taken int) {
	body := encode(batch, e.opt.Service, e.opt.Version)
	backoff := firstBackoff
	for try := 1; ; try++ {
		rejected, wait, err := e.send(ctx, body)
		if err == nil {
			e.logOutcome(nil)
			return max(0, len(batch)-rejected)
		}
		if !errors.Is(err, errRetry) || try == exportTries {
			e.logOutcome(err)
			return 0
		}
		// Jitter, so that clients do not all return at once to a collector that was
		// down.
		wait = max(wait, backoff/2+rand.N(backoff))
		backoff *= 2
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			e.logOutcome(err)
			return 0
		}
	}
}

// logOutcome logs when exports begin to fail and when they succeed again.
func (e *exporter) logOutcome(err error) {
	switch {
	case err != nil && !e.failing:
		e.opt.Log.Warn("trace export failed; traces are dropped", "endpoint", e.opt.Endpoint.Host, "error", err)
	case err == nil && e.failing:
		e.opt.Log.Info("trace export works again", "endpoint", e.opt.Endpoint.Host)
	}
	e.failing = err != nil
}

// send sends a batch once. It returns how many spans were rejected and, with errRetry,
// how long the collector asks to wait at least.
func (e *exporter) send(ctx context.Context, body []byte) (rejected int, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.opt.Endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return 0, 0, fmt.Errorf("export traces: %w", withoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range e.opt.Headers {
		req.Header.Set(name, value)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return 0, 0, fmt.Errorf("export traces: %w: %w", errRetry, withoutURL(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	switch {
	// OTLP 1.x, "Retryable Response Codes".
	case resp.StatusCode == 429, resp.StatusCode == 502, resp.StatusCode == 503, resp.StatusCode == 504:
		seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16) // a date counts as 0
		return 0, min(time.Duration(seconds)*time.Second, maxRetryAfter), fmt.Errorf("%w: %s", errRetry, resp.Status)
	case resp.StatusCode/100 != 2:
		return 0, 0, fmt.Errorf("export traces: %s", resp.Status)
	case err != nil:
		return 0, 0, nil // the status means that the collector accepted them
	}
	return rejectedSpans(text), 0, nil
}

// withoutURL returns the cause of an error from net/http, without the URL, which may
// contain a password.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// rejectedSpans returns the number of rejected spans in a response. A malformed
// response counts as full success, in line with its status.
func rejectedSpans(text []byte) int {
	var answer struct {
		PartialSuccess struct {
			// In OTLP's JSON encoding, 64-bit integers are strings, but receivers must also
			// accept numbers. json.Number accepts both.
			RejectedSpans json.Number `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return 0
	}
	n, _ := strconv.Atoi(answer.PartialSuccess.RejectedSpans.String())
	return max(0, n)
}
