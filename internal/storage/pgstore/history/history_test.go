package history_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
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

// equal compares entries, with readings in their order.
func equal(got, want *history.Entry) bool {
	if got.Mark != want.Mark || got.Generation != want.Generation || got.Epoch != want.Epoch ||
		got.UnixMs != want.UnixMs || got.PreviousToMs != want.PreviousToMs ||
		!slices.Equal(got.Assignments, want.Assignments) {
		return false
	}
	return slices.EqualFunc(got.Readings, want.Readings, func(a, b history.Reading) bool {
		return a.Device == b.Device && a.TimeUnixMs == b.TimeUnixMs && a.ReceivedUnixMs == b.ReceivedUnixMs &&
			a.Gateway == b.Gateway && a.UTCOffset == b.UTCOffset && a.Values.Equal(&b.Values)
	})
}

// fleet returns a reading each of many devices, which have sent them through some gateways.
func fleet(devices, gateways int) []*storage.Entry {
	readings := make([]*storage.Entry, devices)
	for i := range readings {
		r := &vitals.Reading{Device: name(fmt.Sprintf("bed-%06d", i)), TimeUnixMs: 1_800_000_000_000,
			Gateway: name(fmt.Sprintf("ward-%05d", i*7919%gateways))}
		r.Values.Set(vitals.HeartRate, vitals.Value(6000+i%40*100))
		r.Values.Set(vitals.SpO2, vitals.Value(9500+i%5*100))
		readings[i] = &storage.Entry{Reading: r, ReceivedUnixMs: r.TimeUnixMs + int64(i%100)}
	}
	return readings
}

// TestHistoryBytes checks that readings take few bytes.
func TestHistoryBytes(t *testing.T) {
	for _, tt := range []struct{ gateways, most int64 }{{1, 11}, {30, 13}, {1000, 26}} {
		h := history.New(history.Options{For: time.Hour, MaxBytes: 1 << 30})
		h.Add(history.Entry{UnixMs: 1_800_000_000_000}, fleet(1000, int(tt.gateways)))
		if size, _ := h.Stats(); size > 1000*tt.most {
			t.Errorf("1,000 readings of %d gateways take %d bytes, want at most %d each", tt.gateways, size, tt.most)
		}
	}
}

// The entries of a transaction are next to each other, whatever others are added meanwhile: the first one has the
// readings.
func TestAddMore(t *testing.T) {
	h := history.New(history.Options{For: time.Hour, MaxBytes: 1 << 30})
	const transactions, entries = 200, 5
	var running sync.WaitGroup
	for i := range int64(transactions) {
		running.Go(func() {
			all := make([]history.Entry, entries)
			for n := range all {
				all[n] = history.Entry{Mark: history.Mark{Number: i}, UnixMs: time.Now().UnixMilli()}
			}
			h.Add(all[0], fleet(1, 1), all[1:]...)
		})
	}
	running.Wait()
	var numbers []int64
	for e, err := range h.All() {
		if try(t, err); (len(e.Readings) == 1) != (len(numbers)%entries == 0) {
			t.Errorf("entry %d has %d readings", len(numbers), len(e.Readings))
		}
		numbers = append(numbers, e.Number)
	}
	if n := len(slices.Compact(numbers)); n != transactions {
		t.Errorf("%d runs of entries, want %d", n, transactions)
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, readings := range []int{1, 100, 1000, 4000} {
		for _, gateways := range []int{1, 30, 10_000} {
			b.Run(fmt.Sprintf("readings=%d/gateways=%d", readings, gateways), func(b *testing.B) {
				h := history.New(history.Options{For: time.Hour, MaxBytes: 16 << 20})
				some := fleet(readings, gateways)
				b.ReportAllocs()
				for b.Loop() {
					h.Add(history.Entry{UnixMs: 1_800_000_000_000}, some)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*readings), "ns/reading")
			})
		}
	}
}

var try = polltest.Try
