package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// checkRandomValues makes random erasures of values, and compares every value that is left with a map of single values.
// An erasure that removes less than what was asked for fails it, and so does one that removes more. It shares no code
// with what stores, and the model, use to select what an erasure removes.
func checkRandomValues(t testing.TB, open func(testing.TB) Harness) {
	h := open(t).withOwn(OwnSigns())
	s := mustOpen(t, h.Open)
	defer func() { mustClose(t, s) }()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++ // each has devices of its own: opening a store may take long
		m := &valueMap{s: s, all: map[valuePlace]*heardReading{}, prefix: fmt.Sprintf("v%d", run)}
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			for range rapid.IntRange(1, 3).Draw(rt, "groups") {
				m.append(rt)
			}
			m.erase(rt)
			if seldom(rt, "reopen", 8) {
				s = reopen(rt, s, h)
				m.s = s
			}
			m.check(rt)
		}
	})
}

// A valueMap is what a store should have of the devices of a run.
type valueMap struct {
	s      store
	prefix string // of the names of the devices
	all    map[valuePlace]*heardReading
}

type valuePlace struct {
	device string
	unixMs int64
}

// A heardReading is a reading that one or more gateways have heard.
type heardReading struct {
	gateways []string // which have stored or completed it, in order; "" means none was named
	values   map[vitals.Sign]vitals.Value
}

// gateway returns the first gateway that was named.
func (r *heardReading) gateway() string {
	for _, g := range r.gateways {
		if g != "" {
			return g
		}
	}
	return ""
}

// alone reports whether all values have come the same way.
func (r *heardReading) alone() bool { return len(slices.Compact(slices.Clone(r.gateways))) == 1 }

// hear adds the values of an entry, as a store settles it.
func (m *valueMap) hear(device string, e *storage.Entry) {
	place := valuePlace{device, e.Reading.TimeUnixMs}
	r := m.all[place]
	if r == nil {
		r = &heardReading{values: map[vitals.Sign]vitals.Value{}}
		m.all[place] = r
	}
	completes := false
	for sg, v := range e.Reading.Values.All() {
		if _, has := r.values[sg]; !has {
			r.values[sg], completes = v, true
		}
	}
	if completes {
		r.gateways = append(r.gateways, e.Reading.Gateway.String())
	}
}

var erasedSigns = []vitals.Sign{vitals.HeartRate, vitals.SpO2, vitals.Systolic, vitals.MaxSigns - 1}

func (m *valueMap) devices() []string { return []string{m.prefix, m.prefix + "-", m.prefix + "-1"} }

// append stores a group: few readings that several gateways hear, or a run that makes segments.
func (m *valueMap) append(t *rapid.T) {
	device := rapid.SampledFrom(m.devices()).Draw(t, "device")
	gateway := func() string { return rapid.SampledFrom([]string{"", "g1", "g1", "g2"}).Draw(t, "gateway") }
	add := func(unixMs int64, gateway string, present uint32) *storage.Entry {
		e := by(gateway, entry(device, unixMs))
		for i, sg := range erasedSigns {
			if present&(1<<i) != 0 {
				e.Reading.Values.Set(sg, vitals.Value(500+unixMs))
			}
		}
		m.hear(device, e)
		return e
	}
	signs := rapid.Uint32Range(1, 1<<len(erasedSigns)-1)
	var group []*storage.Entry
	if seldom(t, "run", 3) {
		of, from, length := gateway(), rapid.Int64Range(0, 60).Draw(t, "from"), rapid.Int64Range(40, 150).Draw(t, "length")
		step, present := rapid.Int64Range(1, 2).Draw(t, "step"), signs.Draw(t, "signs")
		for i := range length {
			group = append(group, add(from+i*step, of, present))
		}
	} else {
		for range rapid.IntRange(1, 20).Draw(t, "readings") {
			group = append(group, add(rapid.Int64Range(0, 80).Draw(t, "time"), gateway(), signs.Draw(t, "signs")))
		}
	}
	mustAppend(t, m.s, group...)
}

// erase erases values of the store, and of the map.
func (m *valueMap) erase(t *rapid.T) {
	device := rapid.SampledFrom(m.devices()).Draw(t, "device")
	from, to := rapid.Int64Range(0, 100).Draw(t, "from"), rapid.SampledFrom([]int64{0, storage.OpenEnd}).Draw(t, "to")
	if to == 0 {
		to = from + rapid.Int64Range(1, 100).Draw(t, "length")
	}
	present := rapid.Uint32Range(0, 1<<len(erasedSigns)-1).Draw(t, "signs")
	gateway := rapid.SampledFrom([]string{"", "g1", "g2", "nobody"}).Draw(t, "gateway")
	shared := gateway != "" && rapid.Bool().Draw(t, "shared")
	e := storage.Erasure{Device: mustName(device), FromUnixMs: from, ToUnixMs: to, Gateway: mustName(gateway),
		Shared: shared}
	for i, sg := range erasedSigns {
		if present&(1<<i) != 0 {
			e.Signs |= 1 << sg
		}
	}
	want, wantErr := e, storage.ErrNotFound
	for place, r := range m.all {
		if place.device != device {
			continue
		}
		wantErr = nil
		if place.unixMs < from || place.unixMs >= to || gateway != "" && (r.gateway() != gateway || !shared && !r.alone()) {
			continue
		}
		some := false
		for i, sg := range erasedSigns {
			if _, has := r.values[sg]; has && (present == 0 || present&(1<<i) != 0) {
				delete(r.values, sg)
				some = true
			}
		}
		if some {
			want.Readings++
		}
	}
	for place, r := range m.all {
		if len(r.values) == 0 {
			delete(m.all, place)
		}
	}
	got, err := m.s.EraseValues(e)
	compare(t, fmt.Sprintf("EraseValues(%+v)", e), got, err, want, wantErr)
}

// check compares the readings of the devices, and their latest values, with the map.
func (m *valueMap) check(t *rapid.T) {
	for _, device := range m.devices() {
		want := map[int64]*heardReading{}
		for place, r := range m.all {
			if place.device == device {
				want[place.unixMs] = r
			}
		}
		latest := storage.Device{Name: mustName(device), NewestUnixMs: -1}
		if len(want) > 0 {
			for _, r := range scanPages(t, m.s, allOf(device), 50) {
				m.checkReading(t, device, &r, want[r.TimeUnixMs])
				delete(want, r.TimeUnixMs)
				latest.NewestUnixMs = r.TimeUnixMs
				for sg, v := range r.Values.All() {
					latest.Latest[sg] = storage.Latest{TimeUnixMs: r.TimeUnixMs, UTCOffset: r.UTCOffset, Value: v, Known: true}
				}
			}
			if len(want) > 0 {
				t.Errorf("%s lacks %d readings that were not to be erased", device, len(want))
			}
			wantLatest(t, m.s, latest)
		} else if _, err := m.s.Latest(context.Background(), mustName(device)); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Latest of %s without readings returned %v", device, err)
		}
	}
}

func (m *valueMap) checkReading(t *rapid.T, device string, r *storage.Record, want *heardReading) {
	if want == nil {
		t.Fatalf("%s still has the erased reading of %d: %s", device, r.TimeUnixMs, describe(*r))
	}
	var values vitals.Values
	for sg, v := range want.values {
		values.Set(sg, v)
	}
	gateway := ""
	if r.Gateway != nil {
		gateway = r.Gateway.String()
	}
	if r.Values != values || gateway != want.gateway() || r.Shared == want.alone() {
		t.Errorf("%s has %s, want %+v", device, describe(*r), *want)
	}
}
