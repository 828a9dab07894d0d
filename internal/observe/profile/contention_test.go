package profile_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

// fraction returns the mutex profile's current rate.
func fraction() int { return runtime.SetMutexProfileFraction(-1) }

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
