package admin_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A fleetStore is an Expirer in memory.
type fleetStore struct{ *storetest.Memory }

func (s fleetStore) devices() []storage.Device {
	all := make([]storage.Device, 64)
	n, err := s.Devices(context.Background(), vitals.Name{}, all)
	if err != nil {
		panic(err)
	}
	return all[:n]
}

func (s fleetStore) NewestUnixMs(context.Context) ([]int64, error) {
	var newest []int64
	for _, d := range s.devices() {
		newest = append(newest, d.NewestUnixMs)
	}
	return newest, nil
}

func (s fleetStore) EstimateReadings(context.Context) (int64, error) {
	n := 0
	for _, d := range s.devices() {
		n += len(s.times(d.Name))
	}
	return int64(n), nil
}

// times returns the times of a device's readings.
func (s fleetStore) times(device vitals.Name) (ms []int64) {
	all := make([]storage.Record, 512)
	n, err := s.Scan(context.Background(), storage.Range{Device: device, ToUnixMs: 1 << 62}, all)
	if err != nil {
		panic(err)
	}
	for _, r := range all[:n] {
		ms = append(ms, r.TimeUnixMs)
	}
	return ms
}

// TestClockAndRetention simulates a fleet that sends readings for weeks, while the server's
// clock is set to random times, years ahead or behind, and the clock of one device is wrong.
// While the other devices send correct times, no reading younger than 39/40 of the retention
// period is removed, whatever the server's clock. When the clock is correct again, all older
// readings are removed.
//
// Seen to fail with the mutants ignore-device-times and trust-one-device.
func TestClockAndRetention(t *testing.T) {
	const (
		keep    = 10 * day
		every   = 6 * time.Hour // between two readings of a device
		devices = 20
	)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	synctest.Test(t, func(t *testing.T) {
		t.Logf("seed %d", seed)
		var mu sync.Mutex // guards wrong
		var wrong time.Duration
		store := fleetStore{storetest.NewMemory()}
		r := &admin.Retention{Store: store, Keep: keep, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Now: func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(wrong)
			}}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })

		sent := map[vitals.Name][]time.Time{}
		send := func() {
			for i := range devices {
				name, err := vitals.ParseName(fmt.Sprintf("d-%02d", i))
				try(t, err)
				now := time.Now()
				if i == 0 {
					now = now.Add(3 * 365 * day)
				}
				e := &storage.Entry{Reading: &vitals.Reading{Device: name, TimeUnixMs: now.UnixMilli()},
					ReceivedUnixMs: now.UnixMilli()}
				e.Reading.Values.Set(vitals.HeartRate, 6000)
				try(t, store.Append([]*storage.Entry{e}))
				if i > 0 {
					sent[name] = append(sent[name], now)
				}
			}
		}
		removed := 0
		look := func() {
			young := time.Now().Add(-keep + keep/40)
			removed = 0
			for name, times := range sent {
				there := map[int64]bool{}
				for _, ms := range store.times(name) {
					there[ms] = true
				}
				for _, at := range times {
					if !there[at.UnixMilli()] {
						removed++
						if at.After(young) {
							t.Fatalf("with a clock that is off by %v, a reading of %s was removed after %v", wrong, name, time.Since(at))
						}
					}
				}
			}
		}
		for begun := time.Now(); time.Since(begun) < 40*day; {
			if random.IntN(8) == 0 {
				mu.Lock()
				wrong = []time.Duration{0, time.Minute, -time.Minute, 2 * day, -2 * day, 10 * 365 * day,
					-10 * 365 * day}[random.IntN(7)]
				mu.Unlock()
			}
			send()
			time.Sleep(every)
			look()
		}
		mu.Lock()
		wrong = 0
		mu.Unlock()
		for begun := time.Now(); time.Since(begun) < 15*day; {
			send()
			time.Sleep(every)
			look()
		}
		cancel()
		running.Wait()
		for name, times := range sent {
			oldest := store.times(name)[0]
			if late := time.Since(time.UnixMilli(oldest)) - keep; late > r.Every()+every {
				t.Errorf("%s has a reading %v older than it should be, of %d sent", name, late, len(times))
			}
		}
		if removed == 0 {
			t.Error("nothing was removed during the test")
		}
	})
}
