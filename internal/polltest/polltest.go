// Package polltest waits in tests for conditions that other goroutines and processes
// bring about.
//
// # Promise
//
// [Until] returns as soon as a condition holds, and fails the test if it does not hold
// within [Patience]. Patience makes no claim about speed: it only bounds how long a
// failing test hangs, and is long enough for a busy machine.
//
// [Try] ends a test after an error.
//
// # Not here
//
// No polling in synctest bubbles: use synctest.Wait.
package polltest

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience is how long a test waits for a condition that must become true.
const Patience = 2 * time.Minute

// Until polls holds at short intervals until it returns true. After Patience it fails
// the test with a message that names the condition, so it must be called from the
// test's goroutine.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Within(Patience, holds) {
		t.Fatalf("not within %v: %s", Patience, what)
	}
}

// Within polls holds and reports whether it returned true within d. The intervals are an eighth of the
// time that it has waited, so that long waits cost little.
// It polls at least once after d, so that a process that was not scheduled for a long time does
// not miss what became true.
func Within(d time.Duration, holds func() bool) bool {
	start := time.Now()
	for {
		waited := time.Since(start)
		if holds() {
			return true
		}
		if waited >= d {
			return false
		}
		time.Sleep(min(max(waited/8, 100*time.Microsecond), 100*time.Millisecond))
	}
}

// Try ends the test if one of errs is not nil.
func Try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Main runs the tests of a package, and fails if goroutines remain after them. It waits up to
// Patience for their end: those of closed connections, for one, end soon after their test.
func Main(m *testing.M) { goleak.VerifyTestMain(settled{m}) }

// A settled runs tests and waits until their goroutines have ended.
type settled struct{ m *testing.M }

// Run implements goleak.TestingM.
func (s settled) Run() int {
	code := s.m.Run()
	if code == 0 {
		Within(Patience, func() bool { return goleak.Find() == nil })
	}
	return code
}
