//go:build !race

package server

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

var storedMessage = []byte("HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{\"status\":\"stored\"}")

// openAccessLog returns a log that discards its lines, with budgets too large to matter.
func openAccessLog(t testing.TB, which string) *Log {
	t.Helper()
	logs, err := OpenLog(io.Discard, &LogOptions{
		LogFormat: "text", LogBudget: 1 << 40, AccessLog: which,
	})
	try(t, err)
	t.Cleanup(logs.Close)
	return logs
}

// A request that is not logged costs no allocation, in neither lane.
func TestAccessLogAllocations(t *testing.T) {
	for _, tt := range []struct {
		name   string
		which  string
		level  slog.Level
		status int
	}{
		{"off", "off", slog.LevelInfo, 500},
		{"no error", "errors", slog.LevelInfo, 399},
		{"level above", "all", slog.LevelWarn, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			logs := openAccessLog(t, tt.which)
			logs.level.Set(tt.level)
			requests := new(metrics.Requests)
			requests.OnAnswered = logs.access.answered
			counted := requests.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
			}))
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			if got := testing.AllocsPerRun(1000,
				func() { logs.access.fastLane(tt.status, storedMessage, time.Millisecond) }); got != 0 {
				t.Errorf("fast lane: %v allocations, want 0", got)
			}
			if got := testing.AllocsPerRun(1000, func() { counted.ServeHTTP(w, r) }); got != 0 {
				t.Errorf("full lane: %v allocations, want 0", got)
			}
			if got := logs.lines.Stats(); got != (logbudget.Stats{}) {
				t.Errorf("Stats: %+v, want no logged requests", got)
			}
		})
	}
}
