package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// OwnSigns returns definitions of as many signs as a table has room for beside the built-in ones.
func OwnSigns() (own []vitals.Definition) {
	for i := range vitals.MaxSigns - vitals.NumBuiltIn {
		own = append(own, vitals.Definition{
			Field: fmt.Sprintf("own_%d", i), Label: fmt.Sprintf("Own %d", i), Unit: "K", Decimals: i % (vitals.MaxDecimals + 1),
			Accepted: vitals.Range{Min: vitals.MinValue + 1, Max: vitals.MaxValue - 1},
			Usual:    vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue},
		})
	}
	return own
}

// withOwn returns h with an Open that defines own.
func (h Harness) withOwn(own []vitals.Definition) Harness {
	h.Open = func() (storage.Store, error) { return h.OpenSigns(own) }
	return h
}

// extremesOf returns values of a sign.
func (h Harness) extremesOf(sg vitals.Sign) []vitals.Value {
	return []vitals.Value{0, 1, -1, math.MaxUint16, math.MaxUint16 + 1, math.MinInt16 - 1, vitals.MinValue,
		vitals.MaxValue}
}

// checkEverySign stores, repeats, contradicts and completes values of each of 32 signs.
func checkEverySign(t testing.TB, h Harness) {
	h = h.withOwn(OwnSigns())
	s := mustOpen(t, h.Open)
	model := records{}
	for sg := range vitals.Sign(vitals.MaxSigns) {
		next := (sg + 1) % vitals.MaxSigns
		var group []*storage.Entry
		for i, v := range h.extremesOf(sg) {
			ms := int64(sg)*100 + int64(i)
			device := fmt.Sprintf("own-%d", sg%4)
			group = append(group,
				entry(device, ms, sign{sg, v}),
				entry(device, ms, sign{sg, v}),
				entry(device, ms, sign{sg, v ^ 1}, sign{next, 5}),
				offset(60, entry(device, ms, sign{sg, v}, sign{next, 7})),
				entry(device, ms, sign{next, 8}))
		}
		// One record has all signs in the end, added in both directions.
		for device, sg := range map[string]vitals.Sign{"up": sg, "down": vitals.MaxSigns - 1 - sg} {
			group = append(group, by(fmt.Sprintf("g%d", sg%3), entry(device, 7, sign{sg, vitals.Value(sg)})))
			if _, held := model[mustName(device)]; held {
				group = append(group, entry(device, 7, sign{sg, vitals.Value(sg) + 1}, hr(9)))
			}
			group = append(group, entry(device, int64(sg)+8, sign{sg, -vitals.Value(sg) & math.MaxUint16}))
		}
		settleAll(t, s, model, group...)
	}
	wantAll(t, s, model, 7)
	s = reopen(t, s, h)
	wantAll(t, s, model, 7)
	// Units that fit, and one that contradicts a sign of the last number.
	const last = vitals.MaxSigns - 1
	settleAll(t, s, model, unit(entry("up", 1, sign{last, 1}), entry("unit", 1, sign{last, -9}),
		entry("unit", 1, sign{11, 9}))...)
	settleAll(t, s, model, unit(entry("up", 2, sign{last, 1}), entry("unit", 1, sign{last, 9}),
		entry("unit", 2, sign{12, 9}))...)
	settleAll(t, s, model, unit(entry("up", 2, sign{last, 1}), entry("unit", 1, sign{last, -9}),
		entry("unit", 1, sign{13, 9}))...)
	wantAll(t, s, model, 7)
	mustExpire(t, s, model, 20)
	mustErase(t, s, model, "own-1")
	settleAll(t, s, model, entry("own-1", 20, sign{last, 5}), entry("up", 7, sign{last, 6}))
	mustExpire(t, s, model, 1700)
	s = reopen(t, s, h)
	wantAll(t, s, model, 7)
	mustClose(t, s)
}

// checkConflictOfMany checks that a conflict names the first sign that contradicts, among 32.
func checkConflictOfMany(t testing.TB, h Harness) {
	s := open(t, h.withOwn(OwnSigns()))
	mustSettle(t, s, entry("d", 1, hr(1), sign{vitals.BodyTemperature, 1}, sign{20, 1}, sign{31, 1}), storage.Stored)
	for _, tt := range []struct {
		signs []sign
		want  vitals.Sign
	}{
		{[]sign{sys(1), hr(2), rhr(2), {31, 2}}, vitals.HeartRate},
		{[]sign{hr(1), {vitals.BodyTemperature, 2}, {20, 2}}, vitals.BodyTemperature},
		{[]sign{{vitals.RespiratoryRate, 1}, {20, -1}, {31, 2}}, 31}, // which was defined first
		{[]sign{hr(1), {20, 1 << 16}, {31, 1}}, 20},
	} {
		e := entry("d", 1, tt.signs...)
		mustSettle(t, s, e, storage.Conflict)
		if e.Sign != tt.want {
			t.Errorf("conflict names sign %d, want %d", e.Sign, tt.want)
		}
	}
	want := recordOf(entry("d", 1, hr(1), sign{vitals.BodyTemperature, 1}, sign{20, 1}, sign{31, 1}))
	wantRecords(t, "scan", scanPages(t, s, allOf("d"), 2), []storage.Record{want})
}

// checkDictionary opens a store with several definitions of signs.
func checkDictionary(t testing.TB, h Harness) {
	own := OwnSigns()[:4]
	s := mustOpen(t, func() (storage.Store, error) { return h.OpenSigns(own[:2]) })
	if first := s.Signs(); first != s.Signs() {
		t.Error("Signs returned two tables")
	}
	wantSign := func(field string, number vitals.Sign, retired bool) {
		t.Helper()
		sg, ok := s.Signs().Named(field)
		if !ok || sg != number || s.Signs().Of(sg).Retired != retired {
			t.Errorf("%s has number %d (%t), want %d, retired %t", field, sg, ok, number, retired)
		}
	}
	model := records{}
	first := vitals.OwnSign(0)
	group := []*storage.Entry{entry("d", 1, sign{first, -5}), entry("d", 2, hr(1), sign{first - 1, 1 << 20})}
	settleAll(t, s, model, group...)
	err := s.Append([]*storage.Entry{entry("d", 3, hr(1)), entry("d", 4, sign{first - 2, 1})})
	if !errors.Is(err, storage.ErrNotWritten) {
		t.Errorf("Append with an unknown sign returned %v, want ErrNotWritten", err)
	}

	// Without definitions, all signs are retired, and their values are read and removed.
	s = reopen(t, s, h)
	wantSign(own[0].Field, first, true)
	wantSign(own[1].Field, first-1, true)
	wantAll(t, s, model, 1)

	// Numbers stay, whatever the order, and are not used again.
	changed := own[1]
	changed.Label, changed.Accepted = "Another label", vitals.Range{Min: 1, Max: 2}
	mustClose(t, s)
	s = mustOpen(t, func() (storage.Store, error) { return h.OpenSigns([]vitals.Definition{own[3], changed}) })
	wantSign(own[0].Field, first, true)
	wantSign(own[1].Field, first-1, false)
	wantSign(own[3].Field, first-2, false)
	settleAll(t, s, model, entry("d", 3, sign{first - 2, 7}), entry("d", 1, sign{first - 1, 8}))
	wantAll(t, s, model, 2)
	mustClose(t, s)
	s = mustOpen(t, h.Open)
	if d := s.Signs().Of(first - 1); d == nil || d.Label != changed.Label || d.Accepted != changed.Accepted ||
		d.Unit != changed.Unit || d.Decimals != changed.Decimals {
		t.Errorf("the definition is %+v after a reopen, want %+v", d, changed)
	}
	mustClose(t, s)

	// A change of what stored values mean is refused.
	unitChanged, decimalsChanged := slices.Clone(own[:1]), slices.Clone(own[:1])
	unitChanged[0].Unit, decimalsChanged[0].Decimals = "mm[Hg]", own[0].Decimals+1
	for part, bad := range map[string][]vitals.Definition{"unit": unitChanged, "decimals": decimalsChanged} {
		s, err := h.OpenSigns(bad)
		if err == nil {
			_ = s.Close()
		}
		if at, ok := errors.AsType[*vitals.FieldOf](err); !ok || at.Part != part || !errors.Is(err, vitals.ErrDefinition) {
			t.Errorf("Open with other %s returned %v, want an error about that", part, err)
		}
	}
	s = mustOpen(t, func() (storage.Store, error) { return h.OpenSigns(own) })
	wantSign(own[0].Field, first, false)
	wantSign(own[2].Field, first-3, false)
	wantAll(t, s, model, 2)
	mustErase(t, s, model, "d")
	mustClose(t, s)
}
