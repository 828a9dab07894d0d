package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// checkRandom runs random sequences of groups, reads, reopens and crashes on the
// store and on the model, and compares them. Devices, times and values come from
// small sets, so that most readings share their device and time with another one.
func checkRandom(t testing.TB, open func(testing.TB) Harness) { random(t, open, false) }

// checkRandomOffsets is checkRandom with offsets from UTC.
func checkRandomOffsets(t testing.TB, open func(testing.TB) Harness) { random(t, open, true) }

func random(t testing.TB, open func(testing.TB) Harness, offsets bool) {
	rapid.Check(t, func(rt *rapid.T) {
		h := open(t)
		s, err := h.Open()
		if err != nil {
			rt.Fatalf("Open: %v", err)
		}
		m := &machine{h: h, s: s, model: records{}, offsets: offsets}
		defer func() { _ = m.s.Close() }()
		actions := map[string]func(*rapid.T){
			"append":  m.append,
			"append+": m.append, // twice as often as the others
			"scan":    m.scan,
			"latest":  m.latest,
			"devices": m.devices,
			"reopen":  m.reopen,
		}
		if h.Crash != nil {
			actions["crash"] = m.crash
		}
		if _, ok := s.(storage.Remover); ok {
			actions["erase"], actions["expire"] = m.erase, m.expire
		}
		rt.Repeat(actions)
		wantAll(rt, m.s, m.model, 4)
	})
}

// A machine is a store together with its model.
type machine struct {
	h     Harness
	s     storage.Store
	model records

	offsets bool // readings have offsets from UTC
}

var (
	randomDevices  = []string{"a", "a-", "a-1", "b", "b0"}
	randomGateways = []string{"", "", "g1", "g2"}
	randomOffsets  = []vitals.UTCOffset{0, 0, vitals.MakeUTCOffset(0), vitals.MakeUTCOffset(-210)}
)

// drawTime mostly draws from few times, so that readings share them, and sometimes
// from many, so that a device's newest time changes.
func drawTime(t *rapid.T) int64 {
	if rapid.IntRange(0, 3).Draw(t, "far") == 0 {
		return rapid.Int64Range(0, 300).Draw(t, "time")
	}
	return rapid.Int64Range(100, 106).Draw(t, "time")
}

func (m *machine) drawEntry(t *rapid.T) *storage.Entry {
	e := entry(rapid.SampledFrom(randomDevices).Draw(t, "device"), drawTime(t))
	e.Reading.Gateway = mustName(rapid.SampledFrom(randomGateways).Draw(t, "gateway"))
	e.ReceivedUnixMs = rapid.Int64Range(1, 3).Draw(t, "received")
	if m.offsets {
		e.Reading.UTCOffset = rapid.SampledFrom(randomOffsets).Draw(t, "offset")
	}
	present := rapid.Uint8Range(1, 1<<vitals.NumSigns-1).Draw(t, "signs")
	odd := rapid.IntRange(0, 7).Draw(t, "value") == 0 // rarely, so that most values agree
	for sg := range vitals.Sign(vitals.NumSigns) {
		if present&(1<<sg) == 0 {
			continue
		}
		v := vitals.Hundredths(100 + sg)
		if odd {
			v++
		}
		e.Reading.Values.Set(sg, v)
	}
	return e
}

func (m *machine) append(t *rapid.T) {
	group := rapid.SliceOfN(rapid.Custom(m.drawEntry), 0, 12).Draw(t, "group")
	if rapid.IntRange(0, 9).Draw(t, "run") == 0 {
		from := rapid.Int64Range(100, 200).Draw(t, "from")
		device := rapid.SampledFrom(randomDevices).Draw(t, "device")
		for ms := range rapid.Int64Range(50, 150).Draw(t, "length") {
			group = append(group, entry(device, from+ms, hr(1)))
		}
	}
	if err := m.s.Append(group); err != nil {
		t.Fatalf("Append: %v", err)
	}
	for i, e := range group {
		outcome, sg := m.model.settle(e, 0)
		if e.Outcome != outcome || outcome == storage.Conflict && e.Sign != sg {
			t.Fatalf("reading %d, of %s at %s, settled as %s (%s), want %s (%s)", i, e.Reading.Device, describe(recordOf(e)),
				OutcomeName(e.Outcome), e.Sign, OutcomeName(outcome), sg)
		}
	}
}

func (m *machine) scan(t *rapid.T) {
	r := storage.Range{
		Device:     mustName(rapid.SampledFrom(randomDevices).Draw(t, "device")),
		FromUnixMs: drawTime(t) - 1,
		ToUnixMs:   drawTime(t) + 1,
		Descending: rapid.Bool().Draw(t, "descending"),
	}
	size := rapid.IntRange(1, 8).Draw(t, "size")
	wantRecords(t, fmt.Sprintf("scan of %+v in pages of %d", r, size), scanPages(t, m.s, r, size), m.model.scan(r))
}

func (m *machine) latest(t *rapid.T) {
	name := mustName(rapid.SampledFrom(randomDevices).Draw(t, "device"))
	got, err := m.s.Latest(context.Background(), name)
	if m.model[name] == nil {
		if !errors.Is(err, storage.ErrNotFound) {
			t.Fatalf("Latest(%s) returned %v, want ErrNotFound", name, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("Latest(%s): %v", name, err)
	}
	wantDevices(t, "latest", []storage.Device{got}, []storage.Device{m.model.latest(name)})
}

func (m *machine) devices(t *rapid.T) {
	size := rapid.IntRange(1, 6).Draw(t, "size")
	wantDevices(t, "devices", devicePages(t, m.s, size), m.model.devices(vitals.Name{}))
}

// erase erases a device in one of eight calls: an erasure may take a store long.
func (m *machine) erase(t *rapid.T) {
	name := mustName(rapid.SampledFrom(randomDevices).Draw(t, "device"))
	if rapid.IntRange(0, 7).Draw(t, "erase") > 0 {
		return
	}
	got, err := m.s.(storage.Remover).Erase(name)
	want := int64(len(m.model[name]))
	delete(m.model, name)
	unknown := want == 0 && errors.Is(err, storage.ErrNotFound)
	if !unknown && (err != nil || got != storage.Erasure{Device: name, Readings: want}) {
		t.Fatalf("Erase(%s) returned %+v, %v, want %d readings", name, got, err, want)
	}
}

func (m *machine) expire(t *rapid.T) {
	before := drawTime(t)
	if rapid.Bool().Draw(t, "few") {
		before = rapid.Int64Range(0, 103).Draw(t, "before")
	}
	atMost := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Just(int64(math.MaxInt64))).Draw(t, "at most")
	got, err := m.s.(storage.Remover).Expire(context.Background(), before, atMost)
	want := m.model.expire(before, atMost)
	if got.More && got.Readings == atMost {
		want.More = true // a store may stop looking at the bound
	}
	if err != nil || got != want {
		t.Fatalf("Expire(%d, %d) returned %+v, %v, want %+v", before, atMost, got, err, want)
	}
}

func (m *machine) reopen(t *rapid.T) {
	if err := m.s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	m.open(t)
}

func (m *machine) crash(t *rapid.T) {
	m.h.Crash(rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced percent"), rapid.Uint64().Draw(t, "seed"))
	m.open(t)
}

func (m *machine) open(t *rapid.T) {
	s, err := m.h.Open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	m.s = s
	wantAll(t, s, m.model, 5)
}
