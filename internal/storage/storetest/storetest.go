// Package storetest is the conformance suite for stores. Its checks test the contract
// of package storage, including crashes, on any store.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Harness { ... })
//	}
//
// # How it tests
//
// Most checks test one sentence of the contract with a few readings. The check
// "random" compares the store with [Memory], a brute-force model, during random
// sequences of calls, reopens and crashes. Some of the mutants in cmd/pulsegate/testdata are
// faults of a store that the suite must find.
//
// A store under test is also a [storage.Remover] and a [storage.Subjects]. A [Harness] declares
// what else it can do: the checks of concurrent groups, of several nodes and of broken
// connections run on those that can, and the others are held to one group at a time.
//
// # Not here
//
// Nothing that is specific to one store, such as files and syncs. The tests of the
// store check that a group costs one sync, that damage is found and that a failing
// disk stops the store.
package storetest

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Harness opens and crashes one store under test, such as one in a directory. The
// store is empty at first.
type Harness struct {
	// Open opens the store with the data that Close or Crash has left.
	Open func() (storage.Store, error)

	// Crash ends the store, open or closed, as a loss of power does: data on stable
	// storage remains, and unsyncedPercent of the unsynced data, chosen by seed. With
	// 0, all unsynced data is lost; with 100, none, as when the process is killed.
	// Calls may be running on the store when Crash is called; they may return any
	// result. Afterwards, Open returns a new store.
	//
	// If Crash is nil, the checks that need it are skipped.
	Crash func(unsyncedPercent int, seed uint64)

	// OpenLimited is Open with a limit on the number of devices.
	OpenLimited func(maxDevices int) (storage.Store, error)

	// OpenSigns is Open with definitions of a user's own signs. Open defines none.
	OpenSigns func(own []vitals.Definition) (storage.Store, error)

	// OpenChanges is OpenSigns for a store that keeps events. It is nil if that is none of [storage.Changes].
	OpenChanges func(own []vitals.Definition) (storage.Store, error)

	// Concurrent means that Append may be called concurrently with itself.
	Concurrent bool

	// OpenNode opens the store once more while it is open, as another node does. It is
	// nil for a store that only one process may open.
	OpenNode func() (storage.Store, error)

	// Disturb breaks, once, whatever connects the open stores to their data. It may be
	// called while calls run: Append then returns nil or an error after which the store
	// accepts further groups. It is nil for a store without such a connection.
	Disturb func()
}

// A Check tests one part of the contract. Its Run calls open for every Harness
// that it needs.
type Check struct {
	Name string
	Run  func(t testing.TB, open func(t testing.TB) Harness)
}

// Run runs every check as a subtest of t. Each call of open must return a new, empty
// Harness.
func Run(t *testing.T, open func(t testing.TB) Harness) {
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open) })
	}
}

// Checks returns all checks. Most callers use [Run].
func Checks() []Check {
	one := func(name string, run func(testing.TB, Harness)) Check {
		return Check{name, func(t testing.TB, open func(testing.TB) Harness) { run(t, open(t)) }}
	}
	return []Check{
		one("settle/sequences", checkSequences),
		one("settle/one group", checkSequencesInOneGroup),
		one("settle/extremes", checkExtremes),
		one("settle/receipt", checkReceipt),
		one("settle/large group", checkLargeGroup),
		one("settle/entries", checkEntries),
		one("settle/invalid readings", checkInvalidReadings),
		one("settle/too many devices", checkTooManyDevices),
		one("settle/awkward names", checkAwkwardNames),
		one("settle/withheld", checkWithheld),
		one("settle/relayed", checkRelayed),
		one("settle/units", checkUnits),
		one("settle/units beyond the device limit", checkUnitsLimited),
		one("settle/units withheld", checkUnitsWithheld),
		one("signs/every sign", checkEverySign),
		one("signs/conflict sign", checkConflictOfMany),
		one("signs/dictionary", checkDictionary),
		one("read/unknown device", checkUnknownDevice),
		one("read/range", checkRange),
		one("read/pages during writes", checkPagesDuringWrites),
		one("read/devices", checkDevices),
		one("read/devices during writes", checkDevicesDuringWrites),
		one("read/canceled context", checkEndedContext),
		one("read/during writes", checkReadersDuringWrites),
		one("remove/erase", checkErase),
		one("remove/values", checkEraseValues),
		{"remove/values at random", checkRandomValues},
		one("remove/device limit", checkRemovedDevice),
		one("remove/during scans", checkEraseDuringScans),
		one("remove/crash", checkCrashAfterRemoval),
		one("subjects/assign", checkAssign),
		one("subjects/changes", checkAssignmentChanges),
		one("subjects/erase again", checkEraseAgain),
		one("subjects/too many", checkManyAssignments),
		one("subjects/race", checkAssignRace),
		one("subjects/erase", checkEraseAssignment),
		one("subjects/claims", checkClaims),
		one("subjects/order of claims", checkClaimOrder),
		one("subjects/race of claims", checkClaimRace),
		one("life/closed", checkClosed),
		one("life/close during calls", checkCloseDuringCalls),
		{"crash/duplicate", checkCrashDuplicate},
		one("crash/during writes", checkCrashDuringWrites),
		{"random", checkRandom},
		{"changes/copies", checkCopies},
		one("changes/positions", checkPositions),
		one("changes/cursors of others", checkOthersCursors),
		one("changes/erased", checkErasedAssignment),
		one("changes/erased device", checkErasedDevice),
		one("changes/expired", checkLateExpired),
		one("changes/few selected", checkFewSelected),
		one("changes/waiting", checkWaiting),
		one("nodes/concurrent groups", checkConcurrent),
		one("nodes/two nodes", checkNodes),
		one("nodes/each sees the other", checkNodesSee),
		one("nodes/disturbed", checkDisturbed),
	}
}
