package storetest

import (
	"testing"
)

// crashLoad bounds the number of groups that a load writes until the crash happens.
// A store in memory would write thousands.
const crashLoad = 50

// checkCrashDuplicate kills the process in the middle of a load, so that unsynced
// bytes survive, and sends the load again. A reading that is then answered as a
// duplicate must survive a loss of power immediately after the answer, even if the
// first process did not sync it.
func checkCrashDuplicate(t testing.TB, open func(testing.TB) Harness) {
	for round := range uint64(3) {
		h := open(t)
		needCrash(t, h)
		s := mustOpen(t, h.Open)
		l := &load{}
		wait := l.start(s, crashLoad)
		l.waitFor(int64(6 * round))
		h.Crash(100, round)
		_ = wait() // fails if the crash was first

		s = mustOpen(t, h.Open)
		l.acked.Store(0)
		sent := l.attempted.Load()
		if err := l.run(s, sent); err != nil {
			t.Errorf("sending the load again: %v", err)
		}
		h.Crash(0, round)
		s = mustOpen(t, h.Open)
		if err := l.verifyAll(s, sent); err != nil {
			t.Errorf("round %d: after the answers and a loss of power: %v", round, err)
		}
		mustClose(t, s)
	}
}

// checkCrashDuringWrites loses power while a load is written. Afterwards all
// acknowledged readings must be stored, and every other reading as a whole or not at
// all.
func checkCrashDuringWrites(t testing.TB, h Harness) {
	needCrash(t, h)
	l := &load{}
	for round := range uint64(12) {
		s := mustOpen(t, h.Open)
		goal := l.acked.Load() + int64(round)
		wait := l.start(s, goal+crashLoad)
		l.waitFor(goal)
		acked := l.acked.Load()
		h.Crash([]int{0, 30, 70, 100}[round%4], round)
		_ = wait() // fails if the crash was first

		s = mustOpen(t, h.Open)
		if err := l.verifyAll(s, acked); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		l.acked.Store(acked) // send again what may have been lost
		mustClose(t, s)
	}
}

func needCrash(t testing.TB, h Harness) {
	t.Helper()
	if h.Crash == nil {
		t.Skip("the harness has no Crash")
	}
}
