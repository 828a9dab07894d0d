package storetest_test

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/storetest"
)

// TestBrokenStores runs the suite on stores that are wrong on purpose. For each
// fault the check named beside it must fail; others may.
func TestBrokenStores(t *testing.T) {
	// Do not shrink or save what the random check finds here.
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "0s")

	for _, tt := range []struct {
		fault storetest.Fault
		check string
	}{
		{"last write wins", "settle/sequences"},
		{"conflict is taken in part", "settle/sequences"},
		{"identity per reading", "settle/sequences"},
		{"gateway is compared", "settle/sequences"},
		{"last gateway is kept", "settle/sequences"},
		{"duplicate names the gateway", "settle/sequences"},
		{"last receipt is kept", "settle/sequences"},
		{"zero is no value", "settle/sequences"},
		{"drops late readings", "settle/late"},
		{"gateways are not stored", "settle/stored"},
		{"group settled against the store only", "settle/one group"},
		{"group in reverse", "settle/one group"},
		{"names the last sign", "settle/conflict sign"},
		{"keeps old outcomes", "settle/entries"},
		{"keeps the entry", "settle/entries"},
		{"changes the reading", "settle/entries"},
		{"takes empty readings", "settle/refused readings"},
		{"one device too many", "settle/too many devices"},
		{"asks no guard", "settle/withheld"},
		{"gives nothing back", "settle/withheld"},
		{"guards what is the writer's own", "settle/withheld"},
		{"forgets who completed", "settle/withheld"},
		{"unknown device is empty", "read/unknown device"},
		{"names match as prefixes", "read/similar names"},
		{"to is inclusive", "read/range"},
		{"from is exclusive", "read/range"},
		{"from is taken as unsigned", "read/range"},
		{"order is ignored", "read/range"},
		{"descending pages start at the old end", "read/pages"},
		{"short pages", "read/pages"},
		{"order is ignored", "read/pages under writes"},
		{"latest of the newest record only", "read/latest per sign"},
		{"latest by arrival", "read/latest per sign"},
		{"newest by arrival", "read/latest per sign"},
		{"devices by arrival", "read/devices"},
		{"after is inclusive", "read/devices"},
		{"devices by arrival", "read/devices under writes"},
		{"ends no context", "read/ended context"},
		{"short pages", "read/beside writes"},
		{"erase takes similar names", "remove/erase"},
		{"erase counts the device", "remove/erase"},
		{"expire is inclusive", "remove/expire"},
		{"expired signs stay", "remove/expire"},
		{"erase keeps the place", "remove/place"},
		{"expire keeps the place", "remove/place"},
		{"crash brings back what was removed", "remove/crash"},
		{"reopen forgets completions", "life/reopen"},
		{"writes after close", "life/closed"},
		{"reads after close", "life/closed"},
		{"closed without not-written", "life/closed"},
		{"closed without not-written", "life/close beside calls"},
		{"crash loses the last group", "crash/acknowledged"},
		{"crash loses the last group", "crash/beside writes"},
		{"crash tears the last reading", "crash/beside writes"},
		{"duplicates are not synced", "crash/duplicate"},
		{"last write wins", "random"},
		{"last gateway is kept", "random"},
		{"latest by arrival", "random"},
		{"short pages", "random"},
		{"expire is inclusive", "random"},
		{"erase takes similar names", "random"},
		{"crash loses the last group", "random"},
	} {
		t.Run(fmt.Sprintf("%s/%s", tt.fault, tt.check), func(t *testing.T) {
			// What is drawn at random, or depends on the scheduler, may need some runs.
			const runs = 50
			for run := 1; !fails(t, tt.check, tt.fault); run++ {
				if run == runs {
					t.Fatalf("the check %q does not see the fault %q in %d runs", tt.check, tt.fault, runs)
				}
			}
		})
	}
}

// TestSoundStore runs the same machinery without a fault: the checks above must
// fail for the fault's sake.
func TestSoundStore(t *testing.T) {
	for _, c := range storetest.Checks() {
		if fails(t, c.Name, "none") {
			t.Errorf("the check %q fails on a sound store", c.Name)
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

// A recorder is a testing.TB that keeps failures to itself.
type recorder struct {
	testing.TB // for what is not overridden

	mu       sync.Mutex
	failed   bool
	messages []string
	cleanups []func()
}

func (r *recorder) note(failed bool, message string) {
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
func (r *recorder) Fail()                        { r.note(true, "Fail") }
func (r *recorder) FailNow()                     { r.note(true, "FailNow"); runtime.Goexit() }
func (r *recorder) Log(args ...any)              { r.note(false, fmt.Sprint(args...)) }
func (r *recorder) Logf(f string, args ...any)   { r.note(false, fmt.Sprintf(f, args...)) }
func (r *recorder) Error(args ...any)            { r.note(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(true, fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.note(true, fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) {
	r.note(true, fmt.Sprintf(f, args...))
	runtime.Goexit()
}
func (r *recorder) Skip(args ...any) { r.note(false, fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Skipf(f string, args ...any) {
	r.note(false, fmt.Sprintf(f, args...))
	runtime.Goexit()
}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
