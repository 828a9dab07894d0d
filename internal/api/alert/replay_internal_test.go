package alert

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// replayAll replays records, which are in ascending order.
func replayAll(
	t *testing.T, rules []Rule, device vitals.Name, records []storage.Record, untilUnixMs int64,
) (episodes []Episode, late int, err error) {
	h := newHistory(rules, device)
	for i := range records {
		h.add(&records[i])
	}
	return h.replay(t.Context(), rules, untilUnixMs, 1000)
}

// At each moment of a replay, those alerts are active that the definition has for what had arrived by
// then.
func TestReplay(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 41))
		m := newModel(t, rng)
		device := name(t, []string{"a1", "b1"}[rng.IntN(2)])
		begin := int64(1_800_000_000_000)
		now := begin
		var entries []*storage.Entry // none completes another: a record has one time of arrival
		has := map[int64]bool{}
		for range 30 {
			if rng.IntN(6) == 0 {
				now += rng.Int64N(40*60) * minute
			}
			for _, e := range m.randomGroup(t, rng, []string{device.String()}, &now, counts) {
				if !has[e.Reading.TimeUnixMs] {
					entries = append(entries, e)
				}
				has[e.Reading.TimeUnixMs] = true
			}
		}
		stored := func(untilUnixMs int64) *storetest.Memory {
			store := storetest.NewMemory()
			try(t, store.Signs().Define([]vitals.Definition{ownSign}))
			for _, e := range entries {
				if e.ReceivedUnixMs >= untilUnixMs {
					continue
				}
				try(t, store.Append([]*storage.Entry{e}))
			}
			return store
		}
		records := make([]storage.Record, len(entries))
		if n, err := stored(2*begin).Scan(t.Context(), storage.Range{Device: device, ToUnixMs: 2 * begin},
			records); n != len(records) || err != nil {
			t.Fatal(n, err)
		}
		for range 20 {
			until := begin + rng.Int64N(now+100*60*minute-begin)
			episodes, _, err := replayAll(t, m.rules, device, records, until)
			try(t, err)
			var got, want []string
			for _, e := range episodes {
				if e.FiredUnixMs < e.SinceUnixMs && e.Rule.Silent != 0 ||
					e.ResolvedUnixMs != 0 && e.ResolvedUnixMs < e.FiredUnixMs {
					t.Errorf("seed %d: %+v", seed, e)
				}
				if e.ResolvedUnixMs == 0 {
					got = append(got, e.Rule.Name)
				}
			}
			m.store = stored(until)
			active, _ := m.expected(t, until)
			for _, a := range active {
				want = append(want, a.Rule.Name)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, at %d: got %q, want %q", seed, until, got, want)
			}
		}
	}
}

// A replay shows when an alert would have begun and ended: by both clocks, with silence and late values.
func TestReplayTimes(t *testing.T) {
	rules := []Rule{
		{Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, For: 2 * time.Minute, Values: 3,
			MaxAge: 10 * time.Minute},
		{Name: "Silent", Silent: 30 * time.Minute, MaxAge: 2 * time.Hour},
	}
	var records []storage.Record
	add := func(atMinute, arrivedMinute int64, spo2 vitals.Value) {
		r := storage.Record{TimeUnixMs: atMinute * minute, ReceivedUnixMs: arrivedMinute*minute + 1000}
		r.Values.Set(vitals.SpO2, spo2)
		records = append(records, r)
	}
	add(1, 1, 85_00)
	add(2, 2, 85_00)
	add(3, 3, 85_00) // fires
	add(4, 4, 95_00) // resolves
	for m := int64(10); m < 20; m++ {
		add(m, 60, 85_00) // these are too late, and do not end the silence
	}
	add(61, 61, 97_00)
	episodes, late, err := replayAll(t, rules, name(t, "d"), records, 600*minute)
	try(t, err)
	slices.SortStableFunc(episodes, func(a, b Episode) int { return cmp.Compare(a.FiredUnixMs, b.FiredUnixMs) })
	var got []string
	for _, e := range episodes {
		got = append(got, fmt.Sprintf("%s %d %d %d", e.Rule.Name, e.SinceUnixMs/minute, e.FiredUnixMs/minute,
			e.ResolvedUnixMs/minute))
	}
	want := []string{"Low 3 3 4", "Silent 34 34 61", "Silent 91 91 181"}
	if !slices.Equal(got, want) || late != 10 {
		t.Errorf("got %q and %d late readings, want %q and 10", got, late, want)
	}
	const centuries = 10_000_000_000_000 // more than a time.Duration has
	if episodes, _, err = replayAll(t, lowOnly, name(t, "d"), records[:1], centuries); err != nil || len(episodes) != 1 ||
		episodes[0].ResolvedUnixMs != minute+Lasts.Milliseconds() {
		t.Errorf("after centuries: %+v, %v", episodes, err)
	}
}

// Readings that arrive within a moment are evaluated together, when the last of them has arrived, but not those
// that arrive when the replay has ended.
func TestReplayTogether(t *testing.T) {
	const begin, gap = 1_800_000_000_000, 40
	var records []storage.Record
	for i, v := range []vitals.Value{85_00, 85_00, 97_00} {
		r := storage.Record{TimeUnixMs: begin + int64(i)*gap, ReceivedUnixMs: begin + int64(i)*gap + 1}
		r.Values.Set(vitals.SpO2, v)
		records = append(records, r)
	}
	rule := lowOnly[0]
	rule.Values = 2
	episodes, _, err := replayAll(t, []Rule{rule}, name(t, "d"), records, begin+2*gap)
	if err != nil || len(episodes) != 1 || episodes[0].SinceUnixMs != begin+gap ||
		episodes[0].FiredUnixMs != begin+gap+1 || episodes[0].ResolvedUnixMs != 0 {
		t.Errorf("got %+v, %v", episodes, err)
	}
}
