package server

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// accessMessage is the message of the access log.
const accessMessage = "request"

// An accessLog logs answered requests: method, route template, status, duration and
// length of the answer. It never logs the request's path, query, header or body, or
// the client's address, so it cannot contain a measured value, a token or a device.
//
// A request that is not logged costs no allocation and no lock.
type accessLog struct {
	log   *slog.Logger
	least atomic.Int64 // lowest status to log; 0 means that none is logged
}

// set changes which requests are logged.
func (a *accessLog) set(which string) {
	switch which {
	case "all":
		a.least.Store(1)
	case "errors":
		a.least.Store(http.StatusBadRequest)
	default:
		a.least.Store(0)
	}
}

// wants reports whether to log a request with the status.
func (a *accessLog) wants(status int) bool {
	least := int(a.least.Load())
	return least != 0 && (status == metrics.Aborted || status >= least) &&
		a.log.Enabled(context.Background(), slog.LevelInfo)
}

// answered is called for every request of the full lane.
func (a *accessLog) answered(o metrics.Answered) {
	if a.wants(o.Status) {
		a.write(o)
	}
}

// fastLane is called for every request of the fast lane with its answer, message.
func (a *accessLog) fastLane(status int, message []byte, took time.Duration) {
	if !a.wants(status) {
		return
	}
	_, body, _ := bytes.Cut(message, []byte("\r\n\r\n"))
	a.write(metrics.Answered{Method: http.MethodPost, Route: readingsTemplate, Status: status, BodyBytes: int64(len(body)),
		Duration: took})
}

func (a *accessLog) write(o metrics.Answered) {
	status := slog.Int("status", o.Status)
	if o.Status == metrics.Aborted {
		status = slog.Bool("aborted", true)
	}
	if o.Method == http.MethodHead {
		o.BodyBytes = 0 // net/http discards the body
	}
	a.log.LogAttrs(context.Background(), slog.LevelInfo, accessMessage,
		slog.String("method", metrics.KnownMethod(o.Method, "other")),
		slog.String("route", o.Route),
		status,
		slog.Float64("duration_ms", float64(o.Duration.Microseconds())/1000),
		slog.Int64("answer_bytes", o.BodyBytes),
	)
}
