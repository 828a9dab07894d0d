package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A load sends every batch, sends a rejected one again, and counts both.
func TestFlow(t *testing.T) {
	var asked, size atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		if asked.Add(1) == 3 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		size.Add(n)
		w.Write(batchAnswer)
	}))
	defer srv.Close()
	f := newFlow(2500, 2, 2, time.Now(), ownOutlet(srv.Listener.Addr().String()))
	if len(f.groups) != 3 || f.conns != 2 {
		t.Fatalf("%d groups, %d connections; want 3 and 2", len(f.groups), f.conns)
	}
	p, err := f.run(t.Context(), 7)
	try(t, err)
	if p.batches != 7 || p.refused != 1 || asked.Load() != 8 || p.bytes != uint64(size.Load()) || len(p.answers) != 7 {
		t.Errorf("%+v, want 7 batches of %d bytes and 1 rejected, of %d requests", p, size.Load(), asked.Load())
	}
}

// A wrong answer ends a load with an error; so does the end of ctx, with what was
// stored.
func TestFlowEnds(t *testing.T) {
	var wrong atomic.Bool
	var asked atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if wrong.Load() {
			io.WriteString(w, `{"stored":999,"duplicate":1}`)
			return
		}
		if asked.Add(1) == 3 { // on one of the two connections there was an answer
			cancel()
		}
		w.Write(batchAnswer)
	}))
	defer srv.Close()
	f := newFlow(1500, 2, 10, time.Now(), ownOutlet(srv.Listener.Addr().String()))
	if p, err := f.run(ctx, -1); err == nil || p.batches == 0 {
		t.Errorf("%d batches, %v; want some and an error", p.batches, err)
	}
	wrong.Store(true)
	if _, err := f.run(t.Context(), 3); err == nil || !strings.Contains(err.Error(), `"duplicate`) {
		t.Errorf("a wrong answer: %v", err)
	}
	f.open = func(context.Context) (sink, error) { return nil, errors.New("no server") }
	if _, err := f.run(t.Context(), 3); err == nil {
		t.Error("a load without a server succeeded")
	}
}
