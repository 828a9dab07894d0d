package alert

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// pastBegin is a time, and a minute has 60,000 ms after it.
const pastBegin = 1_800_000_000_000

// pastParts returns the parts of the alerts of a device, by the definition: minute by minute, of values that arrive
// when they are measured. A minute of values is 0 if there is none, 1 for a low value and 2 for another one.
func pastParts(values []int, silentAfter int, all []storage.Assignment) (want []string) {
	subject := func(m int) string {
		span := storage.SpanAt(all, pastBegin+int64(m)*minute)
		return fmt.Sprintf("%s %d", span.Subject, span.FromUnixMs)
	}
	minutes := func(unixMs int64) int64 { return (unixMs - pastBegin) / minute }
	part := func(rule string, m, since, end int) { // of the span of the minute m
		span := storage.SpanAt(all, pastBegin+int64(m)*minute)
		begin, ended := int64(since), int64(end)
		if span.FromUnixMs > 0 {
			begin = max(begin, minutes(span.FromUnixMs))
		}
		if to := minutes(span.ToUnixMs); to < int64(len(values)) && (end == 0 || to < int64(end)) {
			ended = to
		}
		want = append(want, fmt.Sprintf("%s %s %d-%d", rule, span.Subject, begin, ended))
	}
	newest := -1
	for m := 0; m < len(values); m++ {
		if values[m] != 0 {
			newest = m
		}
		if newest >= 0 && m-newest == silentAfter {
			end := 0
			for n := m; n < len(values) && end == 0; n++ {
				if values[n] != 0 {
					end = n
				}
			}
			last := end
			if end == 0 {
				last = len(values)
			}
			seen := ""
			for n := m; n < last; n++ {
				if s := subject(n); s != seen {
					part("Silent", n, m, end)
					seen = s
				}
			}
		}
		if values[m] != 1 || lowBefore(values, m) {
			continue
		}
		end, seen := 0, ""
		var low []int
		for n := m; n < len(values) && end == 0; n++ {
			switch values[n] {
			case 1:
				low = append(low, n)
			case 2:
				end = n
			}
		}
		for _, n := range low {
			if s := subject(n); s != seen {
				part("Low", n, m, end)
				seen = s
			}
		}
	}
	slices.Sort(want)
	return want
}

// lowBefore reports whether the last value before a minute is low.
func lowBefore(values []int, m int) bool {
	for m--; m >= 0; m-- {
		if values[m] != 0 {
			return values[m] == 1
		}
	}
	return false
}

// The parts of past alerts are those that the definition has for random values and assignments.
func TestPastParts(t *testing.T) {
	device := name(t, "d")
	const silentAfter = 4
	rules := []Rule{lowOnly[0], {Name: "Silent", Silent: silentAfter * time.Minute}}
	divided := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 7))
		values := make([]int, 10+rng.IntN(30))
		store := storetest.NewMemory()
		var before int
		for m := range values {
			switch before = []int{before, before, before, 0, 1, 2}[rng.IntN(6)]; before {
			case 0:
				continue
			case 1:
				values[m] = 1
			default:
				values[m] = 2
			}
			r := vitals.Reading{Device: device, TimeUnixMs: pastBegin + int64(m)*minute}
			r.Values.Set(vitals.SpO2, []vitals.Value{0, 85_00, 97_00}[values[m]])
			r.Values.Set(vitals.HeartRate, 60_00) // no rule is about it
			try(t, store.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: r.TimeUnixMs}}))
		}
		for from := rng.IntN(12); from < len(values); {
			to := from + 1 + rng.IntN(12)
			a := storage.Assignment{
				Device: device, Subject: storage.Subject(fmt.Sprintf("P-%d", rng.IntN(3))),
				FromUnixMs: pastBegin + int64(from)*minute, ToUnixMs: pastBegin + int64(to)*minute,
			}
			if rng.IntN(4) == 0 {
				a.ToUnixMs = storage.OpenEnd
				to = len(values)
			}
			try(t, store.Assign(t.Context(), a))
			from = to + rng.IntN(2)*rng.IntN(6)
		}
		all, err := store.DeviceAssignments(t.Context(), device)
		try(t, err)
		until := pastBegin + int64(len(values))*minute - 1
		p := Replay{
			Rules: rules, FromUnixMs: pastBegin, UntilUnixMs: until,
			MostReadings: 100, MostAlerts: 100, Read: ReadFrom(store.Scan),
		}
		found, err := p.Of(t.Context(), device)
		try(t, err)
		parts, err := found.parts(t.Context(), all, p.FromUnixMs)
		try(t, err)
		divided += len(parts) - len(found.Episodes)
		var got []string
		for i, p := range parts {
			ended := int64(0)
			if p.ResolvedUnixMs != 0 {
				ended = (p.ResolvedUnixMs - pastBegin) / minute
			}
			got = append(got, fmt.Sprintf("%s %s %d-%d", p.Rule.Name, p.subject, (p.SinceUnixMs-pastBegin)/minute, ended))
			if i > 0 && parts[i-1].SinceUnixMs < p.SinceUnixMs || p.FiredUnixMs < p.SinceUnixMs {
				t.Errorf("seed %d: %+v follows %+v", seed, p, parts[max(0, i-1)])
			}
		}
		slices.Sort(got)
		if want := pastParts(values, silentAfter, all); !slices.Equal(got, want) {
			t.Fatalf("seed %d, %v, %v:\ngot  %q\nwant %q", seed, values, all, got, want)
		}
	}
	if divided < 50 {
		t.Errorf("assignments have divided %d alerts", divided)
	}
}

// A replay of more readings or alerts than it may have ends with an error.
func TestReplayMost(t *testing.T) {
	device := name(t, "d")
	var records []storage.Record
	for i := range 20 {
		at := pastBegin + int64(i)*1000
		r := storage.Record{TimeUnixMs: at, ReceivedUnixMs: at}
		r.Values.Set(vitals.SpO2, []vitals.Value{97_00, 85_00}[i%2])
		records = append(records, r)
	}
	p := Replay{
		UntilUnixMs: pastBegin + 1e9, MostReadings: len(records), MostAlerts: 20,
		Read: func(_ context.Context, _ storage.Range, visit func(*storage.Record) error) (err error) {
			for i := 0; i < len(records) && err == nil; i++ {
				err = visit(&records[i])
			}
			return err
		},
	}
	p.Rules = []Rule{lowOnly[0], lowOnly[0]}
	found, err := p.Of(t.Context(), device)
	if err != nil || len(found.Episodes) != p.MostAlerts {
		t.Errorf("%+v, %v", found, err)
	}
	p.MostReadings--
	if _, err := p.Of(t.Context(), device); !errors.Is(err, ErrTooMany) {
		t.Errorf("more readings than it may have: %v", err)
	}
	p.MostReadings = len(records) + 2
	for range 2 {
		last := records[len(records)-2]
		last.TimeUnixMs, last.ReceivedUnixMs = last.TimeUnixMs+2000, last.ReceivedUnixMs+2000
		records = append(records, last)
	}
	if _, err := p.Of(t.Context(), device); !errors.Is(err, ErrTooMany) {
		t.Errorf("more alerts than it may have: %v", err)
	}
}

// A hindered is a store of which something happens during each read.
type hindered struct {
	*storetest.Memory
	during func() error
}

func (s *hindered) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	if err := s.during(); err != nil {
		return 0, err
	}
	return s.Memory.Scan(ctx, r, dst)
}

// An evaluation that takes too long, has too many readings, or finds that others are in progress is answered with the
// bound; and one whose readings are removed while they are read fails.
func TestPastBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hindered{Memory: storetest.NewMemory(), during: func() error { return nil }}
		now := time.Now().UnixMilli()
		for i := range int64(3) {
			r := vitals.Reading{Device: name(t, "d"), TimeUnixMs: now - i*minute}
			r.Values.Set(vitals.SpO2, 85_00)
			try(t, store.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: r.TimeUnixMs}}))
		}
		time.Sleep(time.Hour)
		h := NewHandler(NewEngine(store, lowOnly, Options{}), query.Service{Problems: problem.New()}, &vitals.Limits{})
		get := func() (int, string) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path+"?device=d&from=-24h", nil))
			return w.Code, w.Body.String()
		}
		want := func(what string, status int, part string) {
			t.Helper()
			if got, text := get(); got != status || !strings.Contains(text, part) {
				t.Errorf("%s: %d %s, want %d with %q", what, got, text, status, part)
			}
		}
		want("few", 200, `"total":1`)
		h.readings = 2
		want("too many readings", 400, `"field":"from","reason":"the alerts depend on more than 2 readings, from 108h before it on`)
		h.readings = MaxReplayed
		store.during = func() error { time.Sleep(replayFor); return nil }
		want("a slow store", 400, "takes more than 10s: choose a shorter range")
		store.during = func() error { return storage.ErrRemoved }
		want("removed", 500, "Readings were removed while they were read.")

		goOn := make(chan struct{})
		store.during = func() error { <-goOn; return nil }
		done := make(chan int, MaxReplays)
		for range MaxReplays {
			go func() {
				status, _ := get()
				done <- status
			}()
		}
		synctest.Wait()
		want("others are in progress", 503, "Too many")
		close(goOn)
		for range MaxReplays {
			if status := <-done; status != 200 {
				t.Errorf("one of %d at a time: %d", MaxReplays, status)
			}
		}
		want("afterwards", 200, `"total":1`)
	})
}
