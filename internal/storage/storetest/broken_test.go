package storetest_test

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/storetest"
)

// TestBrokenStores runs the suite on deliberately faulty stores. For each fault, the
// check listed with it must fail; others may fail too.
func TestBrokenStores(t *testing.T) {
	// Do not shrink or save what the random check finds here.
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "0s")

	for _, tt := range []struct {
		fault storetest.Fault
		check string
	}{
		{"last write wins", "settle/sequences"},
		{"conflict is stored in part", "settle/sequences"},
		{"identity per reading", "settle/sequences"},
		{"gateway is compared", "settle/sequences"},
		{"last gateway is kept", "settle/sequences"},
		{"duplicate sets the gateway", "settle/sequences"},
		{"last receipt is kept", "settle/sequences"},
		{"offset is compared", "offset/sequences"},
		{"last offset is kept", "offset/sequences"},
		{"duplicate sets the offset", "offset/sequences"},
		{"entries of a group ignore each other", "offset/one group"},
		{"offsets are not stored", "offset/stored"},
		{"offset of zero is not stored", "offset/stored"},
		{"last offset is kept", "offset/random"},
		{"latest values have no offset", "offset/latest"},
		{"latest values have the newest offset", "offset/latest"},
		{"zero counts as missing", "settle/sequences"},
		{"late reading is dropped", "settle/late"},
		{"gateways are not stored", "settle/stored"},
		{"entries of a group ignore each other", "settle/one group"},
		{"group is settled in reverse", "settle/one group"},
		{"conflict names the last sign", "settle/conflict sign"},
		{"old outcome is kept", "settle/entries"},
		{"entry is retained", "settle/entries"},
		{"reading is modified", "settle/entries"},
		{"empty reading is accepted", "settle/invalid readings"},
		{"one device too many", "settle/too many devices"},
		{"guard is not called", "settle/withheld"},
		{"guard is never returned to", "settle/withheld"},
		{"writer's own record is guarded", "settle/withheld"},
		{"completion by another is forgotten", "settle/withheld"},
		{"unknown device is empty", "read/unknown device"},
		{"names match as prefixes", "read/similar names"},
		{"to is inclusive", "read/range"},
		{"from is exclusive", "read/range"},
		{"from is unsigned", "read/range"},
		{"order is ignored", "read/range"},
		{"descending pages start at the oldest", "read/pages"},
		{"short pages", "read/pages"},
		{"order is ignored", "read/pages during writes"},
		{"latest of the newest record only", "read/latest per sign"},
		{"latest by arrival", "read/latest per sign"},
		{"newest by arrival", "read/latest per sign"},
		{"devices by arrival", "read/devices"},
		{"after is inclusive", "read/devices"},
		{"devices by arrival", "read/devices during writes"},
		{"context is ignored", "read/canceled context"},
		{"short pages", "read/during writes"},
		{"erase removes similar names", "remove/erase"},
		{"erase counts devices", "remove/erase"},
		{"expire is inclusive", "remove/expire"},
		{"expired signs stay", "remove/expire"},
		{"erased device counts towards the limit", "remove/device limit"},
		{"expired device counts towards the limit", "remove/device limit"},
		{"crash restores removed readings", "remove/crash"},
		{"assignments may overlap by a millisecond", "subjects/assign"},
		{"assignments may not touch", "subjects/assign"},
		{"assignments of several devices exclude each other", "subjects/assign"},
		{"concurrent assignments do not see each other", "subjects/race"},
		{"erase leaves assignments", "subjects/erase"},
		{"an erased assignment includes its end", "subjects/erase"},
		{"an erased assignment stays", "subjects/erase"},
		{"all assignments of a device are erased", "subjects/erase"},
		{"assignments may overlap by a millisecond", "subjects/random"},
		{"erase leaves assignments", "subjects/random"},
		{"an erased assignment includes its end", "subjects/random"},
		{"reopen forgets completions", "life/reopen"},
		{"writes after close", "life/closed"},
		{"reads after close", "life/closed"},
		{"closed without not-written", "life/closed"},
		{"closed without not-written", "life/close during calls"},
		{"crash loses the last group", "crash/acknowledged"},
		{"crash loses the last group", "crash/during writes"},
		{"crash tears the last reading", "crash/during writes"},
		{"duplicates are not synced", "crash/duplicate"},
		{"last write wins", "random"},
		{"last gateway is kept", "random"},
		{"latest by arrival", "random"},
		{"short pages", "random"},
		{"expire is inclusive", "random"},
		{"erase removes similar names", "random"},
		{"crash loses the last group", "random"},
		{"concurrent groups do not see each other", "nodes/concurrent groups"},
		{"concurrent groups do not see each other", "nodes/two nodes"},
		{"last write wins", "nodes/two nodes"},
		{"nodes have their own records", "nodes/each sees the other"},
		{"a broken connection loses the last group", "nodes/disturbed"},
		{"a broken connection ends the store", "nodes/disturbed"},
	} {
		t.Run(fmt.Sprintf("%s/%s", tt.fault, tt.check), func(t *testing.T) {
			// A check with random input, or one that depends on the scheduler, may need
			// several runs.
			const runs = 50
			for run := 1; !fails(t, tt.check, tt.fault); run++ {
				if run == runs {
					t.Fatalf("check %q did not fail for fault %q in %d runs", tt.check, tt.fault, runs)
				}
			}
		})
	}
}

// TestFaultlessStore runs the same harness without a fault, to show that the checks
// above fail because of the fault.
func TestFaultlessStore(t *testing.T) {
	for _, c := range storetest.Checks() {
		if fails(t, c.Name, "none") {
			t.Errorf("check %q failed on a store without a fault", c.Name)
		}
	}
}

// fails reports whether a check fails on a store with a fault.
func fails(t *testing.T, check string, f storetest.Fault) bool {
	for _, c := range storetest.Checks() {
		if c.Name != check {
			continue
		}
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() { // FailNow ends the goroutine
			defer close(done)
			defer r.cleanUp()
			c.Run(r, func(testing.TB) storetest.Harness { return storetest.BrokenHarness(f) })
		}()
		<-done
		for _, m := range r.messages {
			t.Log(m)
		}
		return r.Failed()
	}
	t.Fatalf("there is no check %q", check)
	return false
}

func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	old := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(old) })
}

// A recorder is a testing.TB that records failures and does not report them.
type recorder struct {
	testing.TB // for the methods that are not overridden

	mu       sync.Mutex
	failed   bool
	messages []string
	cleanups []func()
}

func (r *recorder) record(failed bool, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.messages = append(r.messages, message)
}

func (r *recorder) cleanUp() {
	for _, f := range r.cleanups {
		defer f()
	}
}

func (r *recorder) Helper()                      {}
func (r *recorder) Fail()                        { r.record(true, "Fail") }
func (r *recorder) FailNow()                     { r.record(true, "FailNow"); runtime.Goexit() }
func (r *recorder) Log(args ...any)              { r.record(false, fmt.Sprint(args...)) }
func (r *recorder) Logf(f string, args ...any)   { r.record(false, fmt.Sprintf(f, args...)) }
func (r *recorder) Error(args ...any)            { r.record(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.record(true, fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.record(true, fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) {
	r.record(true, fmt.Sprintf(f, args...))
	runtime.Goexit()
}
func (r *recorder) Skip(args ...any) { r.record(false, fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Skipf(f string, args ...any) {
	r.record(false, fmt.Sprintf(f, args...))
	runtime.Goexit()
}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
