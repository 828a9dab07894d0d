// Package polltest waits in tests for what other goroutines and processes bring
// about.
//
// # Promise
//
// [Until] returns as soon as a condition holds, and fails the test when it does not
// hold for [Patience]. Patience is no claim about speed: it only bounds how long a
// test hangs that will fail, and is long enough for a machine that has other work.
//
// # Not here
//
// What stands still in a synctest bubble needs no polling: synctest.Wait returns
// when it does.
package polltest

import (
	"testing"
	"time"
)

// Patience is how long a test waits for something that must come about.
const Patience = 2 * time.Minute

// Until polls holds, in short intervals, until it returns true. It ends the test when
// Patience is over, naming what was waited for, and so belongs to the test's goroutine.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Within(Patience, holds) {
		t.Fatalf("not within %v: %s", Patience, what)
	}
}

// Within polls holds, in short intervals, and reports whether it returned true within
// d. It polls once at least.
func Within(d time.Duration, holds func() bool) bool {
	pause := 100 * time.Microsecond
	for deadline := time.Now().Add(d); !holds(); {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
		pause = min(2*pause, 10*time.Millisecond)
	}
	return true
}
