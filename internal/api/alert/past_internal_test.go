package alert

import (
	"cmp"
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

// A pastValue is a value of a device. Its times are minutes.
type pastValue struct {
	measured, received int
	low                bool
}

// A pastEpisode is an alert of a device. Its times are minutes, and end is 0 if it was active at the end.
type pastEpisode struct {
	rule          string
	since, newest int // the lowest since, and the newest value in a run, of all moments at which it was active
	fired, end    int
}

// pastEpisodes returns the alerts of a device whose values are in the order of their times, by the definition: it
// looks at what has arrived at each minute.
func pastEpisodes(values []pastValue, minutes, silentAfter int) (all []*pastEpisode) {
	now := map[string]*pastEpisode{}
	for m := range minutes {
		newest, run := -1, []int(nil)
		for _, v := range values {
			switch {
			case v.received > m:
				continue
			case v.low:
				run = append(run, v.measured)
			default:
				run = nil
			}
			newest = v.measured
		}
		state := func(rule string, active bool, since, newest int) {
			e := now[rule]
			switch {
			case active && e == nil:
				e = &pastEpisode{rule: rule, since: since, newest: newest, fired: m}
				now[rule], all = e, append(all, e)
			case active:
				e.since, e.newest = min(e.since, since), max(e.newest, newest)
			case e != nil:
				e.end = m
				delete(now, rule)
			}
		}
		if len(run) > 0 {
			state("Low", true, run[0], run[len(run)-1])
		} else {
			state("Low", false, 0, 0)
		}
		state("Silent", newest >= 0 && m-newest >= silentAfter, newest+silentAfter, 0)
	}
	return all
}

// belongs returns the minutes of an alert's values, or of its silence.
func (e *pastEpisode) belongs(values []pastValue, minutes int) (at []int) {
	if e.rule == "Silent" {
		for m := e.since; m < cmp.Or(e.end, minutes); m++ {
			at = append(at, m)
		}
		return at
	}
	until := cmp.Or(e.end, minutes-1)
	arrived := slices.DeleteFunc(slices.Clone(values), func(v pastValue) bool { return v.received > until })
	for _, v := range arrived {
		ended := slices.ContainsFunc(arrived, func(o pastValue) bool {
			return !o.low && o.measured > e.newest && o.measured < v.measured
		})
		if v.low && v.measured >= e.since && !ended {
			at = append(at, v.measured)
		}
	}
	return at
}

// pastParts returns the parts of the alerts of a device, by the definition.
func pastParts(values []pastValue, minutes, silentAfter int, all []storage.Assignment) (want []string) {
	for _, e := range pastEpisodes(values, minutes, silentAfter) {
		seen := int64(-1)
		for _, m := range e.belongs(values, minutes) {
			span := storage.SpanAt(all, pastBegin+int64(m)*minute)
			if span.FromUnixMs == seen {
				continue
			}
			seen = span.FromUnixMs
			begin, end := e.since, e.end
			if span.FromUnixMs > 0 {
				begin = max(begin, int((span.FromUnixMs-pastBegin)/minute))
			}
			if to := (span.ToUnixMs - pastBegin) / minute; to < int64(cmp.Or(end, minutes)) {
				end = int(to)
			}
			fired := fmt.Sprint(max(e.fired, begin))
			if end != 0 && max(e.fired, begin) > end {
				fired = "never"
			}
			want = append(want, fmt.Sprintf("%s %s %d-%d, fired %s", e.rule, span.Subject, begin, end, fired))
		}
	}
	slices.Sort(want)
	return want
}

// pastValues returns random values of a device, in the order of their times. They arrive when they are measured, in
// batches, or some of them late.
func pastValues(rng *rand.Rand, minutes int) (values []pastValue) {
	batch, late := 1+rng.IntN(2)*rng.IntN(12), rng.IntN(2)*rng.IntN(6)
	before := 0
	for m := range minutes {
		if before = []int{before, before, before, 0, 1, 2}[rng.IntN(6)]; before == 0 {
			continue
		}
		v := pastValue{measured: m, received: (m + batch - 1) / batch * batch, low: before == 1}
		if rng.IntN(8) < late {
			v.received += rng.IntN(15)
		}
		values = append(values, v)
	}
	return values
}

// The parts of past alerts are those that the definition has for random values and assignments.
func TestPastParts(t *testing.T) {
	device := name(t, "d")
	const silentAfter = 4
	rules := []Rule{lowOnly[0], {Name: "Silent", Silent: silentAfter * time.Minute}}
	divided := 0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 7))
		minutes := 10 + rng.IntN(30)
		values := pastValues(rng, minutes)
		store := storetest.NewMemory()
		for _, v := range values {
			r := vitals.Reading{Device: device, TimeUnixMs: pastBegin + int64(v.measured)*minute}
			r.Values.Set(vitals.SpO2, map[bool]vitals.Value{true: 85_00, false: 97_00}[v.low])
			r.Values.Set(vitals.HeartRate, 60_00) // no rule is about it
			try(t, store.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: pastBegin + int64(v.received)*minute}}))
		}
		for from := rng.IntN(12); from < minutes; {
			to := from + 1 + rng.IntN(12)
			a := storage.Assignment{
				Device: device, Subject: storage.Subject(fmt.Sprintf("P-%d", rng.IntN(3))),
				FromUnixMs: pastBegin + int64(from)*minute, ToUnixMs: pastBegin + int64(to)*minute,
			}
			if rng.IntN(4) == 0 {
				a.ToUnixMs = storage.OpenEnd
				to = minutes
			}
			try(t, store.Assign(t.Context(), a))
			from = to + rng.IntN(2)*rng.IntN(6)
		}
		all, err := store.DeviceAssignments(t.Context(), device)
		try(t, err)
		p := Replay{
			Rules: rules, FromUnixMs: pastBegin, UntilUnixMs: pastBegin + int64(minutes)*minute - 1,
			MostReadings: 100, MostAlerts: 100, Read: ReadFrom(store.Scan),
		}
		found, err := p.Of(t.Context(), device)
		try(t, err)
		parts, err := found.parts(t.Context(), all, p.FromUnixMs)
		try(t, err)
		divided += len(parts) - len(found.Episodes)
		var got []string
		for i, p := range parts {
			end, fired := int64(0), "never"
			if p.ResolvedUnixMs != 0 {
				end = (p.ResolvedUnixMs - pastBegin) / minute
			}
			if p.FiredUnixMs != 0 {
				fired = fmt.Sprint((p.FiredUnixMs - pastBegin) / minute)
			}
			since := (p.SinceUnixMs - pastBegin) / minute
			got = append(got, fmt.Sprintf("%s %s %d-%d, fired %s", p.Rule.Name, p.subject, since, end, fired))
			if i > 0 && parts[i-1].SinceUnixMs < p.SinceUnixMs {
				t.Errorf("seed %d: %+v follows %+v", seed, p, parts[i-1])
			}
		}
		slices.Sort(got)
		if want := pastParts(values, minutes, silentAfter, all); !slices.Equal(got, want) {
			t.Fatalf("seed %d, %+v, %v:\ngot  %q\nwant %q", seed, values, all, got, want)
		}
	}
	if divided < 50 {
		t.Errorf("assignments have divided %d alerts", divided)
	}
}

// An alert of a device whose clock is ahead ends before its values were measured. No part of it lies before the span
// whose subject it names.
func TestPastAhead(t *testing.T) {
	device, store := name(t, "d"), storetest.NewMemory()
	const border = pastBegin + 20*minute
	for _, a := range []storage.Assignment{
		{Device: device, Subject: "P-1", FromUnixMs: pastBegin, ToUnixMs: border},
		{Device: device, Subject: "P-2", FromUnixMs: border, ToUnixMs: storage.OpenEnd},
	} {
		try(t, store.Assign(t.Context(), a))
	}
	for _, v := range []struct{ measured, received, value int64 }{
		{-60_000, -120_000, 85_00}, {30_000, -20_000, 85_00}, {50_000, -5_000, 97_00},
	} {
		r := vitals.Reading{Device: device, TimeUnixMs: border + v.measured}
		r.Values.Set(vitals.SpO2, vitals.Value(v.value))
		try(t, store.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: border + v.received}}))
	}
	all, err := store.DeviceAssignments(t.Context(), device)
	try(t, err)
	p := Replay{
		Rules: lowOnly, FromUnixMs: pastBegin, UntilUnixMs: border + 60*minute,
		MostReadings: 100, MostAlerts: 100, Read: ReadFrom(store.Scan),
	}
	found, err := p.Of(t.Context(), device)
	try(t, err)
	parts, err := found.parts(t.Context(), all, p.FromUnixMs)
	try(t, err)
	var got []string
	for _, p := range parts {
		times := []int64{p.SinceUnixMs - border, p.FiredUnixMs - border, p.ResolvedUnixMs - border}
		got = append(got, fmt.Sprint(p.subject, times))
	}
	if want := []string{"P-2[0 0 0]", "P-1[-60000 -120000 -5000]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
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
	during, after func() error // after is called at the end of the last read
}

func (s *hindered) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	if err := s.during(); err != nil {
		return 0, err
	}
	return s.Memory.Scan(ctx, r, dst)
}

func (s *hindered) DeviceAssignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error) {
	all, err := s.Memory.DeviceAssignments(ctx, device)
	return all, cmp.Or(err, s.after())
}

// A replay whose context ends while it evaluates says so: its readings were read.
func TestReplayInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := Replay{
		Rules: lowOnly, UntilUnixMs: pastBegin + minute, MostReadings: 1, MostAlerts: 1,
		Read: func(_ context.Context, _ storage.Range, visit func(*storage.Record) error) error {
			defer cancel()
			return visit(&storage.Record{TimeUnixMs: pastBegin, ReceivedUnixMs: pastBegin})
		},
	}
	if found, err := p.Of(ctx, name(t, "d")); !errors.Is(err, errInterrupted) || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", found, err)
	}
}

// An evaluation that takes too long, has too many readings, or finds that others are in progress is answered with the
// bound; and one whose readings are not read in time, or removed while they are read, fails.
func TestPastBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := func() error { return nil }
		store := &hindered{Memory: storetest.NewMemory(), during: none, after: none}
		now := time.Now().UnixMilli()
		for i := range int64(3) {
			r := vitals.Reading{Device: name(t, "d"), TimeUnixMs: now - i*minute}
			r.Values.Set(vitals.SpO2, 85_00)
			try(t, store.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: r.TimeUnixMs}}))
		}
		time.Sleep(time.Hour)
		var reported []error
		service := query.Service{
			Problems: problem.New(), Subjects: store, OnError: func(err error) { reported = append(reported, err) },
		}
		h := NewHandler(NewEngine(store, lowOnly, Options{}), service, &vitals.Limits{})
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
		want("too many readings", 400,
			`"field":"from","reason":"the alerts depend on more than 2 readings, from 108h before it on`)
		h.readings = MaxReplayed
		store.after = func() error { time.Sleep(2 * MaxReplayTime); return nil }
		want("a slow evaluation", 400, "takes more than 10s: choose a shorter range")
		if len(reported) > 0 {
			t.Errorf("reported: %v", reported)
		}
		store.after = func() error { time.Sleep(2 * MaxReplayTime); return context.DeadlineExceeded }
		want("slow assignments", 503, "unreadable")
		store.during, store.after = func() error { time.Sleep(2 * MaxReplayTime); return nil }, none
		want("a slow store", 503, "unreadable")
		if len(reported) != 2 || !strings.Contains(reported[1].Error(), "not read within 10s") {
			t.Errorf("reported: %v", reported)
		}
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
