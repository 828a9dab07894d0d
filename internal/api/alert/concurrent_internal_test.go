package alert

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A hesitant is a store that takes a while before and after it reads.
type hesitant struct {
	*storetest.Memory
	rng *rand.Rand
}

func (h *hesitant) wait() {
	time.Sleep(time.Duration(h.rng.IntN(3)*h.rng.IntN(200)) * time.Millisecond)
}

func (h *hesitant) Latest(ctx context.Context, device vitals.Name) (storage.Device, error) {
	h.wait()
	defer h.wait()
	return h.Memory.Latest(ctx, device)
}

func (h *hesitant) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	h.wait()
	defer h.wait()
	return h.Memory.Scan(ctx, r, dst)
}

func (h *hesitant) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	var all []storage.Device
	err := h.Memory.WalkDevices(ctx, func(some []storage.Device) { all = append(all, some...) })
	for i := range all {
		h.wait()
		visit(all[i : i+1])
	}
	return err
}

// What is left out while devices are read and compared makes no difference: some time later, the active alerts are
// those of the definition. Sweeps may be as rare as they are with most devices.
func TestPublishWhileReading(t *testing.T) { testPublishings(t, 20) }

func TestPublishWhileReadingExhaustive(t *testing.T) { testPublishings(t, 600) }

func testPublishings(t *testing.T, rounds uint64) {
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testPublishing(t, rand.New(rand.NewPCG(seed, 41))) })
		})
	}
}

func testPublishing(t *testing.T, rng *rand.Rand) {
	m := newModel(t, rng)
	e := NewEngine(&hesitant{m.store, rand.New(rand.NewPCG(rng.Uint64(), 1))}, m.rules,
		Options{SweepEvery: []time.Duration{time.Second, sweepAtMost}[rng.IntN(2)]})
	runEngine(t, e)
	devices := []string{"a1", "a2", "a3", "b1", "b2", "c"}
	some := func() vitals.Name { return name(t, devices[rng.IntN(len(devices))]) }
	for range 25 {
		for range rng.IntN(60) {
			now := time.Now().UnixMilli()
			r := vitals.Reading{Device: some(), TimeUnixMs: now - rng.Int64N(2)*rng.Int64N(2)*rng.Int64N(450)*1000}
			if rng.IntN(4) > 0 {
				r.Values.Set(vitals.SpO2, []vitals.Value{85_00, 97_00, 97_00, 97_00}[rng.IntN(4)])
			}
			if r.Values.IsZero() || rng.IntN(3) == 0 {
				r.Values.Set(vitals.HeartRate, []vitals.Value{120_00, 60_00, 60_00}[rng.IntN(3)])
			}
			g := []*storage.Entry{{Reading: &r, ReceivedUnixMs: now}}
			try(t, m.store.Append(g))
			e.Publish(g)
			time.Sleep(time.Duration(rng.IntN(3)*rng.IntN(30)) * time.Millisecond)
		}
		switch rng.IntN(10) {
		case 0:
			m.change(t, rng)
			try(t, e.SetRules(m.rules))
		case 1:
			device := some()
			if _, err := m.store.Erase(device); err == nil {
				e.Erased(device)
			}
		case 2:
			time.Sleep(time.Duration(rng.IntN(60)) * time.Minute)
		}
		time.Sleep(30 * time.Second)
		for m.beganSince(t, time.Now().UnixMilli()-2000) { // the engine may be about to find it
			time.Sleep(time.Second)
		}
		synctest.Wait()
		active, c := e.State(0)
		if !c.Ready {
			t.Fatal("not ready")
		}
		m.check(t, active, vitals.Name{}, time.Now().UnixMilli(), 0)
	}
}

// beganSince reports whether an alert of the definition began at a time or later.
func (m *model) beganSince(t *testing.T, unixMs int64) bool {
	want, _ := m.expected(t, time.Now().UnixMilli())
	return slices.ContainsFunc(want, func(a Alert) bool { return a.SinceUnixMs >= unixMs })
}
