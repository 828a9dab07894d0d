package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// checkConcurrent appends groups from several goroutines to one store.
func checkConcurrent(t testing.TB, h Harness) {
	if !h.Concurrent {
		t.Skip("the store settles one group at a time")
	}
	s := open(t, h)
	rush(t, s, s, s, s)
	rushUnits(t, s, s, s)
}

// checkNodes appends groups to two nodes at the same time.
func checkNodes(t testing.TB, h Harness) {
	if h.OpenNode == nil {
		t.Skip("only one process may open the store")
	}
	a, b := open(t, h), openNode(t, h)
	rush(t, a, b)
	rushUnits(t, a, b)
}

func openNode(t testing.TB, h Harness) store {
	t.Helper()
	s := mustOpen(t, h.OpenNode)
	t.Cleanup(func() { s.Close() })
	return s
}

// rush appends a group to each of the stores, which share their data, at the same time. The
// groups consist of the same readings: equal ones, contradicting ones, and parts of one
// record, each group in another order. They must be settled as if they had been appended one
// after the other.
func rush(t testing.TB, stores ...storage.Store) {
	t.Helper()
	const rounds, devices = 12, 6
	for round := range int64(rounds) {
		groups := make([][]*storage.Entry, len(stores))
		for i := range groups {
			rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			var group []*storage.Entry
			for d := range devices {
				device := fmt.Sprintf("rush-%d", d)
				group = append(group,
					// equal
					entry(device, round, hr(vitals.Value(1+d))),
					// contradicting
					entry(device, 1000+round, spo2(vitals.Value(1+i))),
					// parts
					entry(device, 2000+round, []sign{sys(9), {vitals.BodyWeight, -8}, rhr(7), {vitals.GlucoseMass, 1 << 20}}[i%4]),
					// some of each
					entry(device, 3000+round, hr(5), []sign{{vitals.PulseRate, 1}, {vitals.PulseRate, 2}, {vitals.PulseRate, 1},
						rhr(3)}[i%4]))
			}
			rng.Shuffle(len(group), func(a, b int) { group[a], group[b] = group[b], group[a] })
			groups[i] = group
		}
		begin := make(chan struct{})
		var calls sync.WaitGroup
		errs := make([]error, len(stores))
		for i := range stores {
			calls.Go(func() {
				<-begin
				errs[i] = stores[i].Append(groups[i])
			})
		}
		close(begin)
		calls.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("concurrent Appends: %v", err)
		}
		if err := serial(stores[0], groups); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// serial returns an error if the outcomes of groups, which hold each device and time at most
// once, and what is stored afterwards, cannot be those of settling them one after the other.
func serial(s storage.Store, groups [][]*storage.Entry) error {
	type key struct {
		device vitals.Name
		ms     int64
	}
	byKey := map[key][]*storage.Entry{}
	for _, group := range groups {
		for _, e := range group {
			k := key{e.Reading.Device, e.Reading.TimeUnixMs}
			byKey[k] = append(byKey[k], e)
		}
	}
	for k, entries := range byKey {
		var page [1]storage.Record
		n, err := s.Scan(context.Background(), storage.Range{Device: k.device, FromUnixMs: k.ms, ToUnixMs: k.ms + 1}, page[:])
		if err != nil {
			return fmt.Errorf("Scan: %w", err)
		}
		if n != 1 {
			return fmt.Errorf("%s has %d records at %d, want 1", k.device, n, k.ms)
		}
		if !possible(entries, page[0].Values) {
			var outcomes []string
			for _, e := range entries {
				outcomes = append(outcomes, OutcomeName(e.Outcome))
			}
			return fmt.Errorf("%s at %d: no order of the readings gives their outcomes %q and the record %s", k.device, k.ms,
				outcomes, describe(page[0]))
		}
	}
	return nil
}

// possible reports whether settling entries in some order gives their outcomes, and then the
// values of their record.
func possible(entries []*storage.Entry, want vitals.Values) bool {
	done := make([]bool, len(entries))
	var try func(have vitals.Values, left int) bool
	try = func(have vitals.Values, left int) bool {
		if left == 0 {
			return have == want
		}
		for i, e := range entries {
			if done[i] {
				continue
			}
			outcome, merged := storage.Stored, e.Reading.Values
			if !have.IsZero() {
				if sg, conflict := firstConflict(have, e.Reading.Values); conflict {
					if e.Outcome == storage.Conflict && e.Sign != sg {
						continue
					}
					outcome, merged = storage.Conflict, have
				} else if merged = union(have, e.Reading.Values); merged == have {
					outcome = storage.Duplicate
				} else {
					outcome = storage.Completed
				}
			}
			if e.Outcome != outcome {
				continue
			}
			done[i] = true
			if try(merged, left-1) {
				return true
			}
			done[i] = false
		}
		return false
	}
	return try(vitals.Values{}, len(entries))
}

// checkNodesSee settles readings at two nodes in turn: each must know what the other has
// stored, completed, erased and expired.
func checkNodesSee(t testing.TB, h Harness) {
	if h.OpenNode == nil {
		t.Skip("only one process may open the store")
	}
	nodes := []store{open(t, h), openNode(t, h)}
	model := records{}
	for i := range int64(40) {
		s := nodes[i%2]
		settleAll(t, s, model,
			entry("d", i, hr(vitals.Value(i))),
			entry("d", i-i%3, spo2(vitals.Value(i))),
			entry("d", max(i-1, 0), hr(vitals.Value(i/2*2))),
			entry(fmt.Sprintf("d-%d", i%7), i/7, rhr(vitals.Value(i%2))))
		if i%5 == 4 {
			gone := mustName(fmt.Sprintf("d-%d", i%7))
			delete(model, gone)
			if _, err := s.Erase(gone); err != nil && !errors.Is(err, storage.ErrNotFound) {
				t.Fatalf("Erase: %v", err)
			}
			model.expire(i/2, 1<<40)
			if _, err := s.Expire(context.Background(), i/2, 1<<40); err != nil {
				t.Fatalf("Expire: %v", err)
			}
		}
		for _, reader := range nodes {
			wantAll(t, reader, model, 5)
		}
	}
}

// checkDisturbed breaks connections while a load is written. A group may then have an unknown
// outcome, but the store goes on, what was acknowledged is stored, and nothing is altered.
func checkDisturbed(t testing.TB, h Harness) {
	if h.Disturb == nil {
		t.Skip("the store has no connection")
	}
	s := open(t, h)
	l := &load{}
	for round := range int64(8) {
		goal := l.acked.Load() + 1
		wait := l.start(s, goal+5)
		l.waitFor(goal)
		h.Disturb()
		if err := wait(); err != nil {
			if errors.Is(err, storage.ErrFailed) {
				t.Fatalf("round %d: a broken connection ended the store: %v", round, err)
			}
			if !errors.Is(err, storage.ErrNotWritten) {
				t.Logf("round %d: unknown outcome: %v", round, err)
			}
		}
		if err := l.verifyAll(s, l.acked.Load()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
