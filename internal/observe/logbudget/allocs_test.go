//go:build !race

package logbudget_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
)

// A line whose level is disabled, or that is beyond its budget, does not allocate.
func TestNoAllocations(t *testing.T) {
	l := logbudget.New(io.Discard, logbudget.Options{LinesPerMinute: 1})
	defer l.Close(context.Background())
	log := slog.New(l.Handler())
	ctx, failure := context.Background(), errors.New("failure")
	for _, tt := range []struct {
		name string
		log  func()
	}{
		{"off", func() { log.Debug("off") }},
		{"off, with attributes", func() {
			log.LogAttrs(ctx, slog.LevelDebug, "off", slog.Int("n", 1<<20), slog.Any("error", failure))
		}},
		{"suppressed", func() {
			log.LogAttrs(ctx, slog.LevelError, "on", slog.Int("n", 1<<20), slog.Any("error", failure))
		}},
	} {
		tt.log() // the first line creates its kind
		tt.log()
		if got := testing.AllocsPerRun(1000, tt.log); got != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, got)
		}
	}
}

// TestMillionErrorsExhaustive is for make exhaustive, and too slow with the race detector.
func TestMillionErrorsExhaustive(t *testing.T) { logErrors(t, 1_000_000) }
