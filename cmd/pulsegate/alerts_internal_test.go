package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An endless is a source of one device, with a number of readings.
type endless struct{ n, visited int }

func (s *endless) devices(_ context.Context, visit func(vitals.Name) error) error {
	name, err := vitals.ParseName("ward3-1")
	if err != nil {
		return err
	}
	return visit(name)
}

func (s *endless) records(_ context.Context, r storage.Range, visit func(*storage.Record) error) error {
	for s.visited < s.n {
		record := storage.Record{TimeUnixMs: r.FromUnixMs + int64(s.visited)}
		s.visited++
		if err := visit(&record); err != nil {
			return err
		}
	}
	return nil
}

// A replay reads at most maxReplayed readings of a device into memory. If there are more, it says what to do.
func TestReplayBound(t *testing.T) {
	rules := []alert.Rule{{Name: "Silent", Silent: time.Hour}}
	var out, errs strings.Builder
	from := &endless{n: 10 * maxReplayed}
	err := new(alertsTestCommand).replay(t.Context(), from, rules, stdio{strings.NewReader(""), &out, &errs})
	if err == nil || err.Error() != "ward3-1 has more than 1048576 readings: replay fewer with --from and --to" {
		t.Error(err)
	}
	if from.visited != maxReplayed+1 || out.Len() > 0 {
		t.Errorf("%d readings were read, want %d; printed %q", from.visited, maxReplayed+1, &out)
	}
}
