package storage_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A ledger is the simplest one: it copies everything before a unit.
type ledger struct {
	group   []*storage.Entry
	records map[key]storage.Record
	before  map[key]storage.Record
	wearers map[vitals.Name]*storage.Wearers
}

type key struct {
	device vitals.Name
	timeMs int64
}

func (l *ledger) key(i int) key {
	r := l.group[i].Reading
	return key{r.Device, r.TimeUnixMs}
}

func (l *ledger) Admit(i int) storage.Outcome {
	if l.group[i].Reading.Device.IsAwkward() {
		return storage.AwkwardName
	}
	return 0
}

func (l *ledger) Wearers(i int) (*storage.Wearers, storage.Outcome) {
	device := l.group[i].Reading.Device
	if l.wearers[device] == nil {
		l.wearers[device] = storage.NewWearers(nil)
	}
	return l.wearers[device], 0
}

func (l *ledger) Find(i int) (*vitals.Values, bool, storage.Outcome) {
	r, ok := l.records[l.key(i)]
	if !ok {
		return nil, false, 0
	}
	return &r.Values, r.Shared || !r.NamesGateway(&l.group[i].Reading.Gateway), 0
}

func (l *ledger) Lacks(i int) bool {
	r := l.records[l.key(i)]
	return r.Lacks(l.group[i].Reading)
}

func (l *ledger) Store(i int) { l.records[l.key(i)] = storage.RecordOf(l.group[i]) }

func (l *ledger) Complete(i int, values vitals.Values, others bool) {
	r := l.records[l.key(i)]
	r.Complete(l.group[i], values, others)
	l.records[l.key(i)] = r
}

func (l *ledger) Begin(int, int) { l.before = maps.Clone(l.records) }

func (l *ledger) End(rejected bool) {
	if rejected {
		l.records = l.before
	}
}

// A countedGuard permits some comparisons.
type countedGuard struct{ left int }

func (g *countedGuard) Take() bool { g.left--; return g.left >= 0 }
func (g *countedGuard) Return()    { g.left++ }

// TestSettleModel settles random groups of few devices, times, values and gateways, with units, guards and claims, and
// compares outcomes, records, assignments and guards with those of storetest.Memory, which is written in another way.
func TestSettleModel(t *testing.T) {
	names := map[string]vitals.Name{}
	for _, text := range []string{"", "-", "a", "b"} {
		names[text], _ = vitals.ParseName(text) // the first is none
	}
	rapid.Check(t, func(t *rapid.T) {
		memory := storetest.NewMemory()
		l := &ledger{records: map[key]storage.Record{}, wearers: map[vitals.Name]*storage.Wearers{}}
		guards := [2]*countedGuard{{left: 3}, {left: 3}}
		draw := func(what string, all ...string) string { return rapid.SampledFrom(all).Draw(t, what) }
		for range rapid.IntRange(1, 3).Draw(t, "groups") {
			var groups [2][]*storage.Entry
			size := rapid.IntRange(1, 8).Draw(t, "size")
			claim := &storage.Claim{Subject: storage.Subject(draw("subject", "", "p", "q")),
				Unknown: draw("known", "", "no") != "", Assign: true, SinceUnixMs: 1}
			for i := 0; i < size; {
				unit := min(rapid.IntRange(1, 3).Draw(t, "unit"), size-i)
				for k := range unit {
					r := vitals.Reading{Device: names[draw("device", "a", "a", "b", "-")],
						TimeUnixMs: rapid.Int64Range(0, 2).Draw(t, "time"), Gateway: names[draw("gateway", "", "a", "b")]}
					for _, sg := range []vitals.Sign{vitals.SpO2, vitals.HeartRate} {
						if v := rapid.IntRange(0, 3).Draw(t, "value"); v < 3 || r.Values.IsZero() && sg == vitals.HeartRate {
							r.Values.Set(sg, vitals.Value(max(v-1, 0)))
						}
					}
					if draw("offset", "", "+1") != "" {
						r.UTCOffset = vitals.MakeUTCOffset(60)
					}
					guarded, claims := draw("guard", "", "yes") != "", unit == 1 && draw("claims", "", "yes") != ""
					relayed := draw("relayed", "", "yes") != ""
					for n := range groups {
						own := r
						e := &storage.Entry{Reading: &own, ReceivedUnixMs: int64(i + k), Recorded: true}
						if guarded {
							e.Guard = guards[n]
						}
						e.Relayed = relayed
						if claims {
							e.Claim = claim
						}
						if k == 0 && unit > 1 {
							e.Unit = int32(unit)
						}
						groups[n] = append(groups[n], e)
					}
				}
				i += unit
			}
			l.group = groups[0]
			storage.Settle(groups[0], l)
			if err := memory.Append(groups[1]); err != nil {
				t.Fatal(err)
			}
			for i, got := range groups[0] {
				if want := groups[1][i]; got.Outcome != want.Outcome || got.Sign != want.Sign {
					t.Fatalf("reading %d got %s, sign %d, want %s, sign %d", i, storetest.OutcomeName(got.Outcome), got.Sign,
						storetest.OutcomeName(want.Outcome), want.Sign)
				}
			}
			if *guards[0] != *guards[1] {
				t.Fatalf("the guard has %d left, want %d", guards[0].left, guards[1].left)
			}
			compareLedger(t, l, memory, names["a"], names["b"])
		}
	})
}

// compareLedger compares what a ledger has with a store, and gives it the store's assignments.
func compareLedger(t *rapid.T, l *ledger, s *storetest.Memory, devices ...vitals.Name) {
	ctx, count := context.Background(), 0
	for _, device := range devices {
		page := make([]storage.Record, 9)
		n, err := s.Scan(ctx, storage.Range{Device: device, ToUnixMs: 9}, page)
		if err != nil {
			t.Fatal(err)
		}
		count += n
		for _, want := range page[:n] {
			got := l.records[key{device, want.TimeUnixMs}]
			if fmt.Sprint(gatewayOf(got), got.Values, got.UTCOffset, got.Shared,
				got.ReceivedUnixMs) != fmt.Sprint(gatewayOf(want), want.Values, want.UTCOffset, want.Shared, want.ReceivedUnixMs) {
				t.Fatalf("the record of %s at %d is %+v, want %+v", device, want.TimeUnixMs, got, want)
			}
		}
		assigned := make([]storage.Assignment, 99)
		n, err = s.Assignments(ctx, storage.AssignmentKey{}, assigned)
		if err != nil {
			t.Fatal(err)
		}
		assigned = slices.DeleteFunc(assigned[:n], func(a storage.Assignment) bool { return a.Device != device })
		if w := l.wearers[device]; w != nil {
			have := storetest.Changed(w)
			if !slices.Equal(have, assigned) {
				t.Fatalf("the assignments of %s are %v, want %v", device, have, assigned)
			}
		}
		l.wearers[device] = storage.NewWearers(slices.Clone(assigned))
	}
	if count != len(l.records) {
		t.Fatalf("there are %d records, want %d", len(l.records), count)
	}
}

func gatewayOf(r storage.Record) string {
	if r.Gateway == nil {
		return ""
	}
	return r.Gateway.String()
}
