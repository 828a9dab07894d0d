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

// A stored is a source of one device.
type stored []storage.Record

func (s stored) devices(ctx context.Context, visit func(vitals.Name) error) error {
	return new(endless).devices(ctx, visit)
}

func (s stored) records(_ context.Context, r storage.Range, visit func(*storage.Record) error) error {
	for i := range s {
		if s[i].TimeUnixMs >= r.FromUnixMs && s[i].TimeUnixMs < r.ToUnixMs {
			if err := visit(&s[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// A replay has what had arrived by --to, also from a device whose clock is ahead, and nothing that arrived later.
func TestReplayAhead(t *testing.T) {
	const minute, to = 60_000, moment(1_800_000_000_000)
	var from stored
	for _, at := range []struct{ unixMs, arrivedUnixMs int64 }{{int64(to) - minute, int64(to) + minute},
		{int64(to) + 3*minute, int64(to) - minute}} {
		r := storage.Record{TimeUnixMs: at.unixMs, ReceivedUnixMs: at.arrivedUnixMs}
		r.Values.Set(vitals.SpO2, 85_00)
		from = append(from, r)
	}
	rules := []alert.Rule{{Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, Values: 1,
		MaxAge: time.Hour}}
	var out, errs strings.Builder
	when := to
	c := alertsTestCommand{To: &when, JSON: true}
	err := c.replay(t.Context(), from, rules, stdio{in: strings.NewReader(""), out: &out, err: &errs})
	if want := `{"device":"ward3-1","name":"Low","since":"2027-01-15T08:03:00.000Z","fired":"2027-01-15T07:59:00.000Z"}` +
		"\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", &out, err, want)
	}
}

// A replay reads at most maxReplayed readings of a device into memory. If there are more, it says what to do.
func TestReplayBound(t *testing.T) {
	rules := []alert.Rule{{Name: "Silent", Silent: time.Hour}}
	var out, errs strings.Builder
	from := &endless{n: 10 * maxReplayed}
	err := new(alertsTestCommand).replay(t.Context(), from, rules, stdio{in: strings.NewReader(""), out: &out, err: &errs})
	if err == nil ||
		err.Error() != "ward3-1 has more than 1048576 readings, or 131072 alerts: replay fewer with --from and --to" {
		t.Error(err)
	}
	if from.visited != maxReplayed+1 || out.Len() > 0 {
		t.Errorf("%d readings were read, want %d; printed %q", from.visited, maxReplayed+1, &out)
	}
}
