package query_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
)

// Two questions are answered at a time, over all handlers; the third waits, and
// then is refused, or answered if there is a place in time.
//
// Seen to fail when each handler has places of its own, when a place is not given
// back, and when nobody waits.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		bound := query.Bound(2, problem.New().Overloaded)
		slow := bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-release }))
		quick := bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
		ask := func(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			return w
		}
		for range 2 {
			go ask(t.Context(), slow)
		}
		synctest.Wait()
		start := time.Now()
		w := ask(t.Context(), quick)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "#overloaded") {
			t.Errorf("the third is answered %d %s, want 503 overloaded", w.Code, w.Body)
		}
		if wait, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || wait < 1 || wait > 5 {
			t.Errorf("Retry-After %q, want 1 to 5", w.Header().Get("Retry-After"))
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("refused after %v, want a second", took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		ask(gone, quick)
		if took := time.Since(start); took != time.Second {
			t.Errorf("a client that is gone was waited with, for %v", took-time.Second)
		}
		time.AfterFunc(time.Second/2, func() { close(release) })
		if w := ask(t.Context(), quick); w.Code != http.StatusOK {
			t.Errorf("with a place in time: %d, want 200", w.Code)
		}
	})
}
