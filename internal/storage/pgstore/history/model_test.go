package history_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// anyReadings returns valid readings of every kind, also unlikely ones, in the order that Add needs. Some have the same
// device and time.
func anyReadings(rng *rand.Rand, n int) []*storage.Entry {
	devices := []vitals.Name{name("a"), name("a-long-common-prefix-1"), name("a-long-common-prefix-2"),
		name(strings.Repeat("z", vitals.MaxNameBytes))}
	times := []int64{0, 1, 1_800_000_000_000, vitals.MaxTimeUnixMs}
	received := []int64{-1 << 63, 0, 1_800_000_000_000, 1<<63 - 1}
	gateways := 1 + rng.IntN(2*n)
	all := make([]*storage.Entry, n)
	for i := range all {
		r := &vitals.Reading{Device: devices[rng.IntN(len(devices))], TimeUnixMs: times[rng.IntN(len(times))] ^ rng.Int64N(4)}
		r.TimeUnixMs = min(r.TimeUnixMs, vitals.MaxTimeUnixMs)
		if gateway := rng.IntN(1 + gateways); gateway > 0 {
			r.Gateway = name(fmt.Sprint("gateway-", gateway))
		}
		if rng.IntN(2) == 0 {
			r.UTCOffset = vitals.MakeUTCOffset(vitals.MinUTCOffsetMinutes +
				rng.IntN(vitals.MaxUTCOffsetMinutes-vitals.MinUTCOffsetMinutes+1))
		}
		for r.Values.IsZero() {
			for s := range vitals.Sign(vitals.MaxSigns) {
				if rng.IntN(4) == 0 {
					r.Values.Set(s, vitals.Value(rng.Uint32()>>rng.IntN(32)))
				}
			}
		}
		all[i] = &storage.Entry{Reading: r, ReceivedUnixMs: received[rng.IntN(len(received))] ^ rng.Int64N(4),
			Relayed: rng.IntN(3) == 0}
	}
	slices.SortStableFunc(all, func(a, b *storage.Entry) int {
		return cmp.Or(a.Reading.Device.Compare(&b.Reading.Device), cmp.Compare(a.Reading.TimeUnixMs, b.Reading.TimeUnixMs))
	})
	return all
}

// A modelEntry is what TestModel expects of an entry.
type modelEntry struct {
	history.Entry
	bytes int64
}

// TestModel compares a History with a list of which the first entries go when they are too old, or when the sum of all
// sizes is too large.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// 448: an assignment
		opt := history.Options{For: time.Minute, MaxBytes: rapid.OneOf(rapid.SampledFrom([]int64{448, 896}),
			rapid.Int64Range(1, 20_000)).Draw(t, "max bytes")}
		h := history.New(opt)
		var kept []modelEntry
		var number, nowMs, bytes int64 = 0, 1_800_000_000_000, 0
		gone := map[history.Slot]int64{}

		add := func(e history.Entry, readings []*storage.Entry) {
			number++
			e.Mark = history.Mark{Slot: history.Slot{Server: -number % 2, Slot: int16(number % 3)}, Number: number}
			e.UnixMs = nowMs
			h.Add(e, readings)
			alone := history.New(history.Options{For: time.Minute, MaxBytes: 1 << 40})
			alone.Add(e, readings)
			want := modelEntry{Entry: e}
			want.bytes, _ = alone.Stats()
			want.Assignments = slices.Clone(e.Assignments)
			clear(e.Assignments) // they are not retained
			for _, r := range readings {
				want.Readings = append(want.Readings, history.Reading{Reading: *r.Reading, ReceivedUnixMs: r.ReceivedUnixMs,
					Relayed: r.Relayed})
				*r.Reading, *r = vitals.Reading{}, storage.Entry{}
			}
			kept = append(kept, want)
			bytes += want.bytes
			for len(kept) > 0 && (bytes > opt.MaxBytes || kept[0].UnixMs < nowMs-opt.For.Milliseconds()) {
				gone[kept[0].Slot] = kept[0].Number
				bytes -= kept[0].bytes
				kept = kept[1:]
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add readings": func(t *rapid.T) {
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				n := rapid.OneOf(rapid.IntRange(1, 3), rapid.IntRange(1, 300)).Draw(t, "readings")
				add(history.Entry{Generation: rapid.Int64().Draw(t, "generation"), Epoch: rapid.Int64().Draw(t, "epoch")},
					anyReadings(rng, n))
			},
			"add assignments": func(t *rapid.T) {
				var all []storage.Assignment
				for range rapid.IntRange(1, 3).Draw(t, "assignments") {
					a := storage.Assignment{Device: name("a"),
						Subject: storage.Subject(rapid.SampledFrom([]string{"S", strings.Repeat("S", 64)}).Draw(t, "subject"))}
					a.FromUnixMs, a.ToUnixMs = rapid.Int64().Draw(t, "from"), rapid.Int64().Draw(t, "to")
					all = append(all, a)
				}
				add(history.Entry{Assignments: all, PreviousToMs: rapid.Int64().Draw(t, "previous")}, nil)
			},
			"time passes": func(t *rapid.T) {
				nowMs += rapid.OneOf(rapid.SampledFrom([]int64{60_000, 60_001}), rapid.Int64Range(0, 70_000)).Draw(t, "ms")
			},
			"the clock goes back": func(t *rapid.T) { nowMs -= rapid.Int64Range(0, 5_000).Draw(t, "ms") },
			"forget": func(*rapid.T) {
				h.Forget()
				kept, bytes = nil, 0
				clear(gone)
			},
			"change what was returned": func(*rapid.T) {
				for e := range h.All() {
					clear(e.Readings)
					clear(e.Assignments)
					*e = history.Entry{}
				}
			},
			"": func(t *rapid.T) {
				var fromMs int64
				if len(kept) > 0 {
					fromMs = kept[0].UnixMs
				}
				if gotBytes, gotFromMs := h.Stats(); gotBytes != bytes || gotFromMs != fromMs {
					t.Fatalf("the history has %d bytes from %d on, want %d from %d on", gotBytes, gotFromMs, bytes, fromMs)
				}
				if !maps.Equal(h.Past().Gone, gone) {
					t.Fatalf("Gone returned %v, want %v", h.Past().Gone, gone)
				}
				i := 0
				for got, err := range h.All() {
					if err != nil {
						t.Fatal(err)
					}
					if i == len(kept) || !equal(got, &kept[i].Entry) {
						t.Fatalf("entry %d of %d differs", i, len(kept))
					}
					i++
				}
				if i != len(kept) {
					t.Fatalf("the history has %d entries, want %d", i, len(kept))
				}
			},
		})
	})
}

// TestBytesCounted compares the bytes that a History counts with those that it has allocated, for entries that take
// most besides their readings.
func TestBytesCounted(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, readings := range []int{0, 1, 30} {
		before := heap()
		h := history.New(history.Options{For: time.Hour, MaxBytes: 8 << 20})
		for i := range 60_000 / (1 + readings) {
			var some []*storage.Entry
			e := history.Entry{UnixMs: 1_800_000_000_000}
			for j := range readings {
				r := &vitals.Reading{Device: name(fmt.Sprintf("device-%02d", j)), Gateway: name(fmt.Sprintf("gateway-%d-%d", i, j))}
				r.Values.Set(vitals.HeartRate, 6000)
				some = append(some, &storage.Entry{Reading: r})
			}
			if readings == 0 {
				e.Assignments = []storage.Assignment{{Device: name("device"), Subject: storage.Subject(fmt.Sprint("subject-", i))}}
			}
			h.Add(e, some)
		}
		allocated := heap() - before
		if counted, _ := h.Stats(); allocated > 2*counted {
			t.Errorf("entries of %d readings have allocated %d bytes, and %d are counted", readings, allocated, counted)
		}
		runtime.KeepAlive(h)
	}
}
