// Package storetest is the conformance suite for stores: what package storage
// promises, as checks that every store passes, crashes included.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Harness { ... })
//	}
//
// # How it tests
//
// Most checks state one sentence of the contract with a handful of readings. The
// check "random" compares the store with [Memory], a model that answers by brute
// force, after random sequences of groups, reopens and crashes. The checks
// themselves are tested: the package's own tests run them against stores that are
// wrong on purpose, and each of those must be caught.
//
// What is about removal runs on stores that implement [storage.Remover].
//
// # Not here
//
// Nothing of a certain store: no files, no syncs. That a group costs one sync,
// that damage is found, that a failing disk stops the store, is tested beside
// the store.
package storetest

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// A Harness is the place of one store under test, such as a directory. It starts
// empty.
type Harness struct {
	// Open opens the store on what Close or Crash has left.
	Open func() (storage.Store, error)

	// Crash ends the store, open or closed, as a loss of power does: what was on
	// stable storage remains, and of the rest a part that unsyncedPercent and seed
	// choose. 0 keeps nothing of it, 100 keeps all, which is what a killed
	// process leaves. Calls may be running on the store when Crash is called;
	// they end with any result. After it, Open gives a new store.
	//
	// A store that cannot crash leaves Crash nil and misses a part of the suite.
	Crash func(unsyncedPercent int, seed uint64)

	// OpenLimited is Open with a bound on the number of devices. A store without
	// one leaves OpenLimited nil.
	OpenLimited func(maxDevices int) (storage.Store, error)
}

// A Check tests one part of the contract. Its Run calls open for every Harness
// that it needs.
type Check struct {
	Name string
	Run  func(t testing.TB, open func(t testing.TB) Harness)
}

// Run runs every check as a subtest of t. Each call of open must return another,
// empty Harness.
func Run(t *testing.T, open func(t testing.TB) Harness) {
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open) })
	}
}

// Checks returns all checks. Most callers want [Run].
func Checks() []Check {
	one := func(name string, run func(testing.TB, Harness)) Check {
		return Check{name, func(t testing.TB, open func(testing.TB) Harness) { run(t, open(t)) }}
	}
	return []Check{
		one("settle/stored", checkStored),
		one("settle/sequences", checkSequences),
		one("settle/one group", checkSequencesInOneGroup),
		one("settle/conflict sign", checkConflictSign),
		one("settle/extremes", checkExtremes),
		one("settle/late", checkLate),
		one("settle/large group", checkLargeGroup),
		one("settle/entries", checkEntries),
		one("settle/refused readings", checkRefusedReadings),
		one("settle/too many devices", checkTooManyDevices),
		one("settle/awkward names", checkAwkwardNames),
		one("settle/withheld", checkWithheld),
		one("read/unknown device", checkUnknownDevice),
		one("read/range", checkRange),
		one("read/similar names", checkSimilarNames),
		one("read/pages", checkPages),
		one("read/pages under writes", checkPagesUnderWrites),
		one("read/latest per sign", checkLatestPerSign),
		one("read/devices", checkDevices),
		one("read/devices under writes", checkDevicesUnderWrites),
		one("read/ended context", checkEndedContext),
		one("read/beside writes", checkReadersBesideWrites),
		one("remove/erase", checkErase),
		one("remove/expire", checkExpire),
		one("remove/place", checkRemovedPlace),
		one("remove/crash", checkRemovedCrash),
		one("life/reopen", checkReopen),
		one("life/closed", checkClosed),
		one("life/close beside calls", checkCloseBesideCalls),
		one("crash/acknowledged", checkCrashAcknowledged),
		{"crash/duplicate", checkCrashDuplicate},
		one("crash/beside writes", checkCrashBesideWrites),
		{"random", checkRandom},
	}
}
