package profile_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

// fraction returns the mutex profile's current rate.
func fraction() int { return runtime.SetMutexProfileFraction(-1) }

func TestContention(t *testing.T) {
	// The first rate makes the runtime measure its clock, which takes real time.
	runtime.SetBlockProfileRate(int(time.Second))
	runtime.SetBlockProfileRate(0)
	synctest.Test(t, func(t *testing.T) {
		var contention pg.Contention
		start := time.Now()
		open := func(ctx context.Context, query string) *httptest.ResponseRecorder {
			rec := httptest.NewRecorder()
			contention.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "POST", pg.ContentionPath+query, nil))
			return rec
		}
		at := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(time.Until(start.Add(d)))
			synctest.Wait()
			if got := fraction(); got != want {
				t.Errorf("after %v: got mutex fraction %d, want %d", d, got, want)
			}
		}
		// Two windows overlap; the second client disconnects; a third comes later.
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan string, 1)
		second := make(chan string, 1)
		go func() { first <- open(t.Context(), "?seconds=10&mutex_fraction=3&block_rate_ns=1000000").Body.String() }()
		at(time.Second, 3)
		go func() { second <- open(ctx, "?seconds=600").Body.String() }()
		at(11*time.Second, 3)
		if got, want := <-first, "mutex_fraction=3 block_rate_ns=1000000\n"; got != want {
			t.Errorf("first: got %q, want %q", got, want)
		}
		cancel()
		at(12*time.Second, 0)
		if got := <-second; got != "" {
			t.Errorf("second: got %q, want nothing", got)
		}
		go func() { first <- open(t.Context(), "?seconds=1").Body.String() }()
		at(12500*time.Millisecond, 10)
		at(14*time.Second, 0)
		if got, want := <-first, "mutex_fraction=10 block_rate_ns=1000000000\n"; got != want {
			t.Errorf("third: got %q, want %q", got, want)
		}
	})
}

func TestContentionRejects(t *testing.T) {
	for _, tt := range []struct {
		method, query string
		want          int
	}{
		{"GET", "?seconds=1", http.StatusMethodNotAllowed},
		{"POST", "", http.StatusBadRequest},
		{"POST", "?seconds=0", http.StatusBadRequest},
		{"POST", "?seconds=601", http.StatusBadRequest},
		{"POST", "?seconds=1.5", http.StatusBadRequest},
		{"POST", "?seconds=1&mutex_fraction=0", http.StatusBadRequest},
		{"POST", "?seconds=1&block_rate_ns=-1", http.StatusBadRequest},
	} {
		var contention pg.Contention
		rec := httptest.NewRecorder()
		contention.ServeHTTP(rec, httptest.NewRequest(tt.method, pg.ContentionPath+tt.query, nil))
		if rec.Code != tt.want || strings.TrimSpace(rec.Body.String()) == "" {
			t.Errorf("%s %s: got %d %q, want %d", tt.method, tt.query, rec.Code, rec.Body, tt.want)
		}
		if fraction() != 0 {
			t.Errorf("%s %s: recording is on", tt.method, tt.query)
		}
	}
}
