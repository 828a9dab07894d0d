package storetest

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// checkCopies lets consumers copy a store during random calls, reopens and crashes. They read pages of different
// sizes, stop within passes, and go back to earlier states. When one has caught up, its copy equals the store.
func checkCopies(t testing.TB, open func(testing.TB) Harness) {
	if open(t).OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	rapid.Check(t, func(rt *rapid.T) {
		h := open(t)
		h.Open = func() (storage.Store, error) { return h.OpenChanges(OwnSigns()) }
		// The store reads the clock when it erases.
		m := &machine{h: h, s: mustOpen(rt, h.Open), model: NewMemory(), nowUnixMs: time.Now().UnixMilli()}
		defer func() { _ = m.s.Close() }()
		all := newConsumers()
		nodes := make([]store, 2) // more of them, if the store has several
		defer func() {
			for _, s := range nodes {
				if s != nil {
					_ = s.Close()
				}
			}
		}()
		node := func(t *rapid.T) store {
			if h.OpenNode == nil {
				return m.s
			}
			i := rapid.IntRange(0, len(nodes)).Draw(t, "node")
			if i == len(nodes) {
				return m.s
			}
			if nodes[i] == nil {
				nodes[i] = mustOpen(t, h.Open)
			}
			return nodes[i]
		}
		onNode := func(do func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) {
				first := m.s
				m.s = node(t)
				do(t)
				m.s = first
			}
		}
		read := func(t *rapid.T) {
			c := all[rapid.IntRange(0, len(all)-1).Draw(t, "consumer")]
			c.read(t, node(t), rapid.SampledFrom([]int{1, 2, 3, 7, 1000}).Draw(t, "most"))
		}
		actions := map[string]func(*rapid.T){
			"append": m.appendAny, "append+": onNode(m.appendAny), "change": m.change, "change+": onNode(m.change),
			"remove": onNode(m.remove),
			"read":   read, "read+": read, "read++": read,
			"reopen": func(t *rapid.T) { m.s = reopen(t, m.s, h) },
			"save":   func(t *rapid.T) { c := all[rapid.IntRange(0, len(all)-1).Draw(t, "consumer")]; c.saved = c.clone() },
			"go back": func(t *rapid.T) {
				if i := rapid.IntRange(0, len(all)-1).Draw(t, "consumer"); all[i].saved != nil {
					all[i] = all[i].saved.clone()
				}
			},
			"gap": func(t *rapid.T) { // as after ErrUnknownPosition
				all[rapid.IntRange(0, len(all)-1).Draw(t, "consumer")].cursor = storage.ChangeCursor{}
			},
			"catch up": func(t *rapid.T) {
				for _, c := range all {
					c.catchUp(t, node(t))
				}
			},
		}
		if h.Disturb != nil {
			actions["disturb"] = func(*rapid.T) { h.Disturb() }
		}
		if h.Crash != nil {
			actions["crash"] = func(t *rapid.T) {
				m.h.Crash(rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced percent"), rapid.Uint64().Draw(t, "seed"))
				m.s = mustOpen(t, m.h.Open)
				clear(nodes)
			}
		}
		rt.Repeat(actions)
		for _, c := range all {
			c.catchUp(rt, m.s)
		}
		// When all that has expired is removed, copies have nothing of it.
		before := int64(0)
		for _, x := range m.s.(storage.Changes).Horizons() {
			before = max(before, x.BeforeUnixMs)
		}
		for more := true; more; {
			x, err := m.s.Expire(context.Background(), before, math.MaxInt64)
			if err != nil {
				rt.Fatalf("Expire: %v", err)
			}
			more = x.More
		}
		for _, c := range all {
			c.catchUp(rt, m.s)
			c.compareBut(rt, m.s, nil)
		}
	})
}

// catchUp reads until the consumer has caught up.
func (c *consumer) catchUp(t tb, s store) {
	t.Helper()
	for range math.MaxInt16 {
		if c.read(t, s, 50) {
			return
		}
	}
	t.Fatalf("a consumer does not catch up")
}

// appendAny appends a group, however it is settled.
func (m *machine) appendAny(t *rapid.T) { mustAppend(t, m.s, m.drawGroup(t)...) }

// drawOne draws one of the assignments to subjects that there are.
func (m *machine) drawOne(t *rapid.T) (a storage.Assignment, ok bool) {
	var some [100]storage.Assignment
	n, err := m.s.Assignments(context.Background(), storage.AssignmentKey{}, some[:])
	if err != nil {
		t.Fatalf("Assignments: %v", err)
	}
	all := storage.Worn(some[:n])
	if len(all) == 0 {
		return a, false
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "assignment")], true
}

// change makes an assignment, or ends one at some time. It is admitted or not.
func (m *machine) change(t *rapid.T) {
	a := storage.Assignment{Device: drawDevice(t), Subject: drawSubject(t), FromUnixMs: drawTime(t), ToUnixMs: drawEnd(t),
		ChangedUnixMs: m.nowUnixMs}
	if old, ok := m.drawOne(t); ok && rapid.Bool().Draw(t, "end") {
		old.ToUnixMs, old.ChangedUnixMs, old.By, old.NamedUnixMs = a.ToUnixMs, m.nowUnixMs, storage.ByHand, 0
		_ = m.s.EndAssignment(context.Background(), old)
		return
	}
	_ = m.s.Assign(context.Background(), a)
}

// remove erases a device, an assignment or values, or expires readings, some times.
func (m *machine) remove(t *rapid.T) {
	var err error
	switch rapid.IntRange(0, 7).Draw(t, "what") {
	case 0:
		_, err = m.s.Erase(drawDevice(t))
	case 1:
		if a, ok := m.drawOne(t); ok {
			_, err = m.s.EraseAssignment(a)
		}
	case 2:
		_, err = m.s.EraseValues(drawValues(t))
	case 3:
		_, err = m.s.Expire(context.Background(), drawTime(t),
			rapid.OneOf(rapid.Int64Range(1, 5), rapid.Just(int64(math.MaxInt64))).Draw(t, "at most"))
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("removal: %v", err)
	}
}
