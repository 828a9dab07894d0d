package alert

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A board on which readings of calm devices are held has the same runs as one that adds each reading to
// them.
func TestHeld(t *testing.T) {
	rules := []Rule{
		{Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, Values: 2, MaxAge: time.Hour},
		{Name: "High", Sign: vitals.SpO2, Met: vitals.Range{Min: 99_00, Max: vitals.MaxValue}, Values: 1, MaxAge: time.Hour},
		{Name: "Fast", Sign: vitals.HeartRate, Met: vitals.Range{Min: 100_00, Max: vitals.MaxValue}, Values: 1, MaxAge: time.Hour},
		{Name: "Every", Sign: vitals.Systolic, Met: vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}, Values: 2, MaxAge: time.Hour},
		{Name: "Silent", Silent: 48 * time.Hour},
	}
	device, held := name(t, "d"), 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 41))
		now := int64(1_800_000_000_000)
		engine := func() *Engine {
			e := NewEngine(storetest.NewMemory(), rules, Options{Now: func() time.Time { return time.UnixMilli(now) }})
			e.sweep(t.Context(), nil)
			e.settle(true)
			return e
		}
		e, plain := engine(), engine()
		for s := range plain.board.calm {
			plain.board.calm[s] = vitals.Range{Min: vitals.MaxValue, Max: vitals.MinValue}
		}
		for range 12 {
			r := update{device: device, unixMs: now - rng.Int64N(12), receivedUnixMs: now}
			met := rng.IntN(6) == 0
			set := func(s vitals.Sign, of int, not, is vitals.Value) {
				switch {
				case rng.IntN(of) > 0:
				case met:
					r.values.Set(s, is)
				default:
					r.values.Set(s, not)
				}
			}
			set(vitals.SpO2, 2, 95_00, []vitals.Value{90_00, 99_00}[rng.IntN(2)])
			set(vitals.HeartRate, 2, 99_99, 100_00)
			set(vitals.Diastolic, 2, 80_00, 80_00)
			set(vitals.Systolic, 20, 120_00, 120_00)
			if r.values.IsZero() {
				continue
			}
			for _, e := range []*Engine{e, plain} {
				e.board.take(&r, nil)
				e.settle(rng.IntN(3) == 0)
			}
			w, p := e.board.devices.get(&device), plain.board.devices.get(&device)
			if w.heldSigns != 0 {
				held++
			}
			if rng.IntN(3) == 0 {
				e.board.release(w)
				if !slices.Equal(w.runs, p.runs) {
					t.Fatalf("seed %d: got %+v, want %+v", seed, w.runs, p.runs)
				}
			}
			if !maps.Equal(e.board.unread, plain.board.unread) || w.newestUnixMs != p.newestUnixMs || e.nChanges != plain.nChanges {
				t.Fatalf("seed %d: got %+v, want %+v; unread are %v, want %v", seed, w, p, e.board.unread, plain.board.unread)
			}
			clear(e.board.unread)
			clear(plain.board.unread)
			now += rng.Int64N(4)
		}
	}
	if held == 0 {
		t.Error("no reading was held")
	}
}
