package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// checkRandom makes random calls, reopens and crashes on the store and on the model, and compares
// them. Devices, times and values come from small sets, so that most readings share their device
// and time with another one, and most assignments cover some.
func checkRandom(t testing.TB, open func(testing.TB) Harness) {
	rapid.Check(t, func(rt *rapid.T) {
		h := open(t).withOwn(OwnSigns())
		m := &machine{h: h, s: mustOpen(rt, h.Open), model: NewMemory(), rejected: map[vitals.Name]bool{}}
		defer func() { _ = m.s.Close() }()
		actions := map[string]func(*rapid.T){
			"append":   m.append,
			"append+":  m.append, // three times as often as most others
			"append++": m.append,
			"scan":     m.scan,
			"all":      func(t *rapid.T) { wantAll(t, m.s, m.model.records, rapid.IntRange(1, 8).Draw(t, "size")) },
			"erase":    m.erase,
			"expire":   m.expire,
			"assign":   m.assign,
			"assign+":  m.assign,
			"end":      m.end,
			"erase a":  m.eraseAssignment,
			"erase v":  m.eraseValues,
			"assigned": func(t *rapid.T) { wantAssignments(t, m.s, m.model.assigned, 3) },
			"reopen":   func(t *rapid.T) { m.reopened(t, reopen(t, m.s, h)) },
		}
		if h.Crash != nil {
			actions["crash"] = m.crash
		}
		rt.Repeat(actions)
		m.reopened(rt, m.s)
	})
}

// A machine is a store together with its model.
type machine struct {
	h     Harness
	s     store
	model *Memory

	rejected  map[vitals.Name]bool // devices of rejected units
	nowUnixMs int64                // the clock of what arrives
}

var (
	randomDevices  = []string{"a", "a-", "a-1", "b", "b0"}
	randomGateways = []string{"", "", "g1", "g2"}
	randomMore     = []uint32{1 << 5, 1 << 6, 1<<5 | 1<<31, 1<<30 | 1<<31, 1<<11 | 1<<20 | 1<<12, 0xFFFFFFE0}
	randomOffsets  = []vitals.UTCOffset{0, 0, vitals.MakeUTCOffset(0), vitals.MakeUTCOffset(-210)}

	// randomSubjects has subjects that are prefixes of others, and one that is the name of a device.
	randomSubjects = []storage.Subject{"P", "P-", "P-1", "a"}
)

// drawTime mostly draws from few times, so that readings share them, and sometimes
// from many, so that a device's newest time changes.
func drawTime(t *rapid.T) int64 {
	if rapid.IntRange(0, 3).Draw(t, "far") == 0 {
		return rapid.Int64Range(0, 300).Draw(t, "time")
	}
	return rapid.Int64Range(100, 106).Draw(t, "time")
}

func drawDevice(t *rapid.T) vitals.Name {
	return mustName(rapid.SampledFrom(randomDevices).Draw(t, "device"))
}

// seldom returns true in one of n calls.
func seldom(t *rapid.T, what string, n int) bool { return rapid.IntRange(1, n).Draw(t, what) == 1 }

func (m *machine) drawEntry(t *rapid.T) *storage.Entry {
	e := entry(rapid.SampledFrom(randomDevices).Draw(t, "device"), drawTime(t))
	e.Reading.Gateway = mustName(rapid.SampledFrom(randomGateways).Draw(t, "gateway"))
	e.ReceivedUnixMs = m.nowUnixMs
	e.Reading.UTCOffset = rapid.SampledFrom(randomOffsets).Draw(t, "offset")
	present := rapid.Uint32Range(1, 1<<5-1).Draw(t, "signs")
	switch more := rapid.SampledFrom(randomMore).Draw(t, "more"); rapid.IntRange(0, 3).Draw(t, "with more") {
	case 0:
		present = more
	case 1:
		present |= more
	}
	odd := seldom(t, "value", 8) // so most values agree
	for sg := range vitals.Sign(vitals.MaxSigns) {
		if present&(1<<sg) == 0 {
			continue
		}
		all := m.h.extremesOf(sg)
		v := all[int(sg)%len(all)]
		if odd {
			v ^= 1
		}
		e.Reading.Values.Set(sg, v)
	}
	return e
}

// drawGroup draws a group, without knowing the assignments.
func (m *machine) drawGroup(t *rapid.T) []*storage.Entry {
	m.nowUnixMs += rapid.Int64Range(0, 2).Draw(t, "later")
	group := rapid.SliceOfN(rapid.Custom(m.drawEntry), 0, 12).Draw(t, "group")
	if seldom(t, "run", 10) {
		from := rapid.Int64Range(100, 200).Draw(t, "from")
		device := rapid.SampledFrom(randomDevices).Draw(t, "device")
		for ms := range rapid.Int64Range(50, 150).Draw(t, "length") {
			group = append(group, at(m.nowUnixMs, entry(device, from+ms, hr(1))))
		}
	}
	if seldom(t, "units", 2) {
		for rest := group; len(rest) > 0; {
			n := min(rapid.IntRange(1, 5).Draw(t, "unit"), len(rest))
			rest[0].Unit = int32(n)
			rest = rest[n:]
		}
	}
	if seldom(t, "claims", 2) {
		claim := &storage.Claim{Subject: rapid.SampledFrom([]storage.Subject{"", "P", "P-1"}).Draw(t, "claim"), Assign: true,
			SinceUnixMs: 50}
		for rest := group; len(rest) > 0; rest = rest[storage.UnitLen(rest):] {
			if storage.UnitLen(rest) == 1 {
				rest[0].Claim, rest[0].Recorded = claim, true
			}
		}
	}
	return group
}

func (m *machine) append(t *rapid.T) {
	group := m.drawGroup(t)
	wearers := map[vitals.Name]*storage.Wearers{}
	settleClaims(t, m.s, m.model.records, func(e *storage.Entry, change bool) storage.Outcome {
		return m.model.assigned.claim(wearers, e, change)
	}, group...)
	for rest := group; len(rest) > 0; {
		n := storage.UnitLen(rest)
		for _, e := range rest[:n] {
			if e.Outcome == 0 { // of a unit in which another reading was rejected
				for _, of := range rest[:n] {
					m.rejected[of.Reading.Device] = true
				}
			}
		}
		rest = rest[n:]
	}
}

func (m *machine) scan(t *rapid.T) {
	r := storage.Range{
		Device:     drawDevice(t),
		FromUnixMs: drawTime(t) - 1,
		ToUnixMs:   drawTime(t) + 1,
		Descending: rapid.Bool().Draw(t, "descending"),
	}
	size := rapid.IntRange(1, 8).Draw(t, "size")
	wantRecords(t, fmt.Sprintf("scan of %+v in pages of %d", r, size), scanPages(t, m.s, r, size), m.model.records.scan(r))
}

// compare compares the results of the same call on the store and on the model.
func compare[T comparable](t tb, call string, got T, err error, want T, wantErr error) {
	t.Helper()
	for _, kind := range []error{storage.ErrNotFound, storage.ErrNotAssigned, storage.ErrAssigned, storage.ErrPeriod} {
		if errors.Is(err, kind) && errors.Is(wantErr, kind) {
			return
		}
	}
	if err != nil || wantErr != nil || got != want {
		t.Fatalf("%s returned %+v, %v, want %+v, %v", call, got, err, want, wantErr)
	}
}

// erase erases a device in one of eight calls: an erasure may take a store long.
func (m *machine) erase(t *rapid.T) {
	device := drawDevice(t)
	if !seldom(t, "erase", 8) {
		return
	}
	got, err := m.s.Erase(device)
	want, wantErr := m.model.Erase(device)
	if errors.Is(wantErr, storage.ErrNotFound) && err == nil {
		want, wantErr = storage.Erasure{Device: device}, nil // the store had bytes of removed readings
	}
	compare(t, fmt.Sprintf("Erase(%s)", device), got, err, want, wantErr)
}

func (m *machine) expire(t *rapid.T) {
	before := drawTime(t)
	if rapid.Bool().Draw(t, "few") {
		before = rapid.Int64Range(0, 103).Draw(t, "before")
	}
	atMost := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Just(int64(math.MaxInt64))).Draw(t, "at most")
	got, err := m.s.Expire(context.Background(), before, atMost)
	want := m.model.records.expire(before, atMost)
	if got.More && got.Readings == atMost {
		want.More = true // a store may stop looking at the bound
	}
	// A store may have registered the devices of rejected units, and forgets them.
	if extra := got.Devices - want.Devices; extra > 0 && extra <= int64(len(m.rejected)) {
		want.Devices = got.Devices
	}
	compare(t, fmt.Sprintf("Expire(%d, %d)", before, atMost), got, err, want, nil)
}

func drawEnd(t *rapid.T) int64 {
	if seldom(t, "open", 4) {
		return storage.OpenEnd
	}
	return drawTime(t)
}

func drawSubject(t *rapid.T) storage.Subject {
	return rapid.SampledFrom(randomSubjects).Draw(t, "subject")
}

func (m *machine) assign(t *rapid.T) {
	a := storage.Assignment{Device: drawDevice(t), Subject: drawSubject(t), FromUnixMs: drawTime(t), ToUnixMs: drawEnd(t),
		ChangedUnixMs: m.nowUnixMs}
	err := m.s.Assign(context.Background(), a)
	compare(t, fmt.Sprintf("Assign(%v)", a), 0, err, 0, m.model.assigned.assign(a))
}

// drawAssignment mostly draws an assignment that there is, sometimes with another subject.
func (m *machine) drawAssignment(t *rapid.T) storage.Assignment {
	worn := storage.Worn(slices.Clone(m.model.assigned.all))
	if len(worn) == 0 || seldom(t, "unknown", 5) {
		return storage.Assignment{Device: drawDevice(t), Subject: drawSubject(t), FromUnixMs: drawTime(t)}
	}
	a := rapid.SampledFrom(worn).Draw(t, "assignment")
	if seldom(t, "another subject", 4) {
		a.Subject = drawSubject(t)
	}
	return a
}

func (m *machine) end(t *rapid.T) {
	a := m.drawAssignment(t)
	a.ToUnixMs, a.By, a.NamedUnixMs = drawEnd(t), storage.ByHand, 0
	err := m.s.EndAssignment(context.Background(), a)
	compare(t, fmt.Sprintf("EndAssignment(%v)", a), 0, err, 0, m.model.assigned.end(a))
}

// eraseAssignment erases an assignment in one of four calls, with the readings during it.
func (m *machine) eraseAssignment(t *rapid.T) {
	a := m.drawAssignment(t)
	if !seldom(t, "erase", 4) {
		return
	}
	got, err := m.s.EraseAssignment(a)
	want, wantErr := m.model.EraseAssignment(a)
	compare(t, fmt.Sprintf("EraseAssignment(%v)", a), got, err, want, wantErr)
	wantAll(t, m.s, m.model.records, 4)
}

// drawValues draws an erasure of values.
func drawValues(t *rapid.T) storage.Erasure {
	e := storage.Erasure{Device: drawDevice(t), FromUnixMs: rapid.SampledFrom([]int64{0, drawTime(t)}).Draw(t, "from")}
	e.ToUnixMs = max(drawEnd(t), e.FromUnixMs+1)
	e.Signs = rapid.SampledFrom([]uint32{0, 1 << vitals.HeartRate, 1<<vitals.SpO2 | 1<<vitals.Systolic, 1 << 31}).
		Draw(t, "signs")
	e.Gateway = mustName(rapid.SampledFrom(append(randomGateways, "nobody")).Draw(t, "gateway"))
	e.Shared = rapid.Bool().Draw(t, "shared")
	return e
}

// eraseValues erases values in one of four calls.
func (m *machine) eraseValues(t *rapid.T) {
	e := drawValues(t)
	if !seldom(t, "erase", 4) {
		return
	}
	got, err := m.s.EraseValues(e)
	want, wantErr := m.model.EraseValues(e)
	compare(t, fmt.Sprintf("EraseValues(%+v)", e), got, err, want, wantErr)
	wantAll(t, m.s, m.model.records, 4)
}

func (m *machine) crash(t *rapid.T) {
	m.h.Crash(rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced percent"), rapid.Uint64().Draw(t, "seed"))
	m.reopened(t, mustOpen(t, m.h.Open))
}

// reopened compares everything in s, which replaces m.s.
func (m *machine) reopened(t *rapid.T, s store) {
	m.s = s
	wantAll(t, s, m.model.records, 5)
	wantAssignments(t, s, m.model.assigned, 3)
}
