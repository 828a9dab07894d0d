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

// An exporter sends batches to a collector, one after another.
type exporter struct {
	cfg     Config
	client  *http.Client
	body    []byte
	failing bool // the last export failed, and the log has said so
}

func newExporter(cfg Config) *exporter {
	return &exporter{cfg: cfg, client: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute},
		// A redirect would take the headers, which may be secret, somewhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (e *exporter) close() { e.client.CloseIdleConnections() }

// Bounds of one export.
const (
	exportTries    = 4
	exportTimeout  = 10 * time.Second // of one try
	firstBackoff   = time.Second
	maxRetryAfter  = 30 * time.Second
	maxAnswerBytes = 64 << 10
	maxKeptBody    = 1 << 20
)

// errRetry marks what the OpenTelemetry protocol has a client try again: what the
// collector asks for, and connections that fail.
var errRetry = errors.New("tracing: not taken so far")

// export sends a batch, trying again where the protocol asks for it, and returns
// how many of its requests the collector has taken. A request of which a span was
// rejected was not taken.
func (e *exporter) export(ctx context.Context, batch []Request) (taken int) {
	e.body = appendTraces(e.body[:0], batch, e.cfg.Service, e.cfg.Version)
	defer func() {
		if cap(e.body) > maxKeptBody {
			e.body = nil
		}
	}()
	backoff := firstBackoff
	for try := 1; ; try++ {
		rejected, wait, err := e.send(ctx)
		if err == nil {
			e.told(nil)
			return max(0, len(batch)-rejected)
		}
		if !errors.Is(err, errRetry) || try == exportTries {
			e.told(err)
			return 0
		}
		// Collectors that were gone for a while should not be met by all at once.
		wait = max(wait, backoff/2+rand.N(backoff))
		backoff *= 2
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			e.told(err)
			return 0
		}
	}
}

// told logs when exporting begins to fail, and when it works again.
func (e *exporter) told(err error) {
	switch {
	case err != nil && !e.failing:
		e.cfg.Log.Warn("traces are not taken by the collector, and dropped", "endpoint", e.cfg.Endpoint.Host, "error", err)
	case err == nil && e.failing:
		e.cfg.Log.Info("traces are taken again", "endpoint", e.cfg.Endpoint.Host)
	}
	e.failing = err != nil
}

// send sends the body once. It returns how many spans were rejected, and with
// errRetry how long the collector asks to wait at least.
func (e *exporter) send(ctx context.Context) (rejected int, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.Endpoint.String(), bytes.NewReader(e.body))
	if err != nil {
		return 0, 0, fmt.Errorf("export traces: %w", withoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range e.cfg.Headers {
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
		return 0, 0, nil // it has said that it took them
	}
	return rejectedSpans(text), 0, nil
}

// withoutURL returns the cause of an error of net/http, which begins with the
// address as it was given: it may hold a password.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// rejectedSpans reads the partial success of an answer. What cannot be read counts
// as full success: the status said so.
func rejectedSpans(text []byte) int {
	var answer struct {
		PartialSuccess struct {
			RejectedSpans json.RawMessage `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return 0
	}
	// 64-bit numbers are strings in OTLP's JSON, and numbers are to be taken too.
	n, err := strconv.Atoi(string(bytes.Trim(answer.PartialSuccess.RejectedSpans, `"`)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
