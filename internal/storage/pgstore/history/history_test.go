package history_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

func name(text string) vitals.Name {
	n, err := vitals.ParseName(text)
	if err != nil {
		panic(err)
	}
	return n
}

// TestHistory adds random transactions and compares what a History has with the last of them.
func TestHistory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := history.New(history.Options{For: time.Minute, MaxBytes: 40_000})
	var all []history.Entry
	for n := range 200 {
		e := history.Entry{Mark: history.Mark{Slot: history.Slot{Server: 7, Slot: int16(n % 3)}, Number: int64(n)}, Generation: int64(n) / 10, Epoch: 1, UnixMs: 1_800_000_000_000 + int64(n)*1000}
		var readings []*storage.Entry
		if n%10 == 9 {
			e.Assignment, e.PreviousToMs = &storage.Assignment{Device: name("a"), Subject: "S", FromUnixMs: 1, ToUnixMs: int64(n)}, 5
		} else {
			readings = make([]*storage.Entry, 1+rng.IntN(300))
		}
		for i := range readings {
			r := &vitals.Reading{Device: name(string(rune('a' + rng.IntN(5)))), TimeUnixMs: rng.Int64N(100)}
			r.Values.Set(vitals.HeartRate, vitals.Value(rng.IntN(1000)))
			if rng.IntN(2) == 0 {
				r.Values.Set(vitals.BodyTemperature, 3700)
				r.Gateway, r.UTCOffset = name(string(rune('g'+rng.IntN(3)))), vitals.MakeUTCOffset(60)
			}
			readings[i] = &storage.Entry{Reading: r, ReceivedUnixMs: e.UnixMs - int64(i)}
		}
		slices.SortStableFunc(readings, func(a, b *storage.Entry) int {
			return cmp.Or(a.Reading.Device.Compare(&b.Reading.Device), cmp.Compare(a.Reading.TimeUnixMs, b.Reading.TimeUnixMs))
		})
		for _, r := range readings {
			e.Readings = append(e.Readings, history.Reading{Reading: *r.Reading, ReceivedUnixMs: r.ReceivedUnixMs})
		}
		all = append(all, e)
		e.Readings = nil
		h.Add(e, readings)

		size, fromMs := h.Stats()
		if size > 40_000 {
			t.Fatalf("the history has %d bytes", size)
		}
		kept := 0
		for range h.All() {
			kept++
		}
		last := all[len(all)-kept:]
		if kept == 0 || fromMs != last[0].UnixMs || last[kept-1].UnixMs-fromMs > 60_000 {
			t.Fatalf("the history has %d entries from %d on", kept, fromMs)
		}
		k := 0
		for got, err := range h.All() {
			want := last[k]
			k++
			if err != nil {
				t.Fatal(err)
			}
			if !equal(got, &want) {
				t.Fatalf("after %d transactions, entry %d of %d differs", n+1, k, kept)
			}
		}
		want := map[history.Slot]int64{}
		for _, e := range all[:len(all)-kept] {
			want[e.Slot] = e.Number
		}
		for slot, number := range h.Gone() {
			if want[slot] != number {
				t.Fatalf("Gone has %v at %d, want %v", slot, number, want)
			}
		}
		if len(h.Gone()) != len(want) {
			t.Fatalf("Gone is %v, want %v", h.Gone(), want)
		}
	}
	h.Forget()
	if size, fromMs := h.Stats(); size != 0 || fromMs != 0 || len(h.Gone()) != 0 {
		t.Errorf("after Forget, the history has %d bytes from %d, and has lost %v", size, fromMs, h.Gone())
	}
}

// equal compares entries. Readings of one device and time must be in the same order, others may be in another one.
func equal(got, want *history.Entry) bool {
	if got.Mark != want.Mark || got.Generation != want.Generation || got.Epoch != want.Epoch || got.UnixMs != want.UnixMs || got.PreviousToMs != want.PreviousToMs ||
		(got.Assignment == nil) != (want.Assignment == nil) || got.Assignment != nil && *got.Assignment != *want.Assignment {
		return false
	}
	sorted := slices.Clone(got.Readings)
	slices.SortStableFunc(sorted, func(a, b history.Reading) int {
		return cmp.Or(a.Device.Compare(&b.Device), cmp.Compare(a.TimeUnixMs, b.TimeUnixMs))
	})
	return slices.EqualFunc(sorted, want.Readings, func(a, b history.Reading) bool {
		return a.Device == b.Device && a.TimeUnixMs == b.TimeUnixMs && a.ReceivedUnixMs == b.ReceivedUnixMs && a.Gateway == b.Gateway && a.UTCOffset == b.UTCOffset && a.Values.Equal(&b.Values)
	})
}

// TestHistoryBytes checks that readings take few bytes.
func TestHistoryBytes(t *testing.T) {
	h := history.New(history.Options{For: time.Hour, MaxBytes: 1 << 30})
	for n := range 20 {
		readings := make([]*storage.Entry, 1000)
		for i := range readings {
			r := &vitals.Reading{Device: name("bed-" + string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10))), TimeUnixMs: 1_800_000_000_000 + int64(n*60_000), Gateway: name("ward-7")}
			r.Values.Set(vitals.HeartRate, vitals.Value(6000+i%40*100))
			r.Values.Set(vitals.SpO2, vitals.Value(9500+i%5*100))
			readings[i] = &storage.Entry{Reading: r, ReceivedUnixMs: r.TimeUnixMs + int64(i%100)}
		}
		h.Add(history.Entry{UnixMs: 1_800_000_000_000}, readings)
	}
	if size, _ := h.Stats(); size > 20_000*12 {
		t.Errorf("20,000 readings take %d bytes, want at most 12 each", size)
	}
}

func BenchmarkAdd(b *testing.B) {
	h := history.New(history.Options{For: time.Hour, MaxBytes: 1 << 20})
	readings := make([]*storage.Entry, 1000)
	for i := range readings {
		r := &vitals.Reading{Device: name("bed-" + string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10))), TimeUnixMs: 1_800_000_000_000, Gateway: name("ward-7")}
		r.Values.Set(vitals.HeartRate, vitals.Value(6000+i%40*100))
		r.Values.Set(vitals.SpO2, vitals.Value(9500+i%5*100))
		readings[i] = &storage.Entry{Reading: r, ReceivedUnixMs: r.TimeUnixMs + int64(i%100)}
	}
	for b.Loop() {
		h.Add(history.Entry{UnixMs: 1_800_000_000_000}, readings)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/reading")
}
