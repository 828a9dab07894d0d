package pebblestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// A fault fails the operations for which match returns true, while it is on.
type fault struct {
	on      atomic.Bool
	match   func(errorfs.Op) bool
	failed  atomic.Int64
	failing error
}

func (f *fault) MaybeError(op errorfs.Op) error {
	if !f.on.Load() || !f.match(op) {
		return nil
	}
	f.failed.Add(1)
	return f.failing
}

func (f *fault) String() string { return "fault" }

var errDisk error = syscall.EIO

func logOperation(kinds ...errorfs.OpKind) func(errorfs.Op) bool { return operation(".log", kinds...) }

func operation(name string, kinds ...errorfs.OpKind) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		for _, k := range kinds {
			if op.Kind == k && strings.Contains(op.Path, name) {
				return true
			}
		}
		return false
	}
}

// TestFailedLog fails writes and syncs of the log. The store must fail and report it, must
// report neither success nor ErrNotWritten for the group, and must still serve readers.
func TestFailedLog(t *testing.T) {
	for _, tt := range []struct {
		name  string
		match func(errorfs.Op) bool
	}{
		{"sync", logOperation(errorfs.OpFileSync, errorfs.OpFileSyncData)},
		{"write", logOperation(errorfs.OpFileWrite)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fault{match: tt.match, failing: errDisk}
			disk := vfs.NewCrashableMem()
			var messages []string
			s := mustOpen(t, pebblestore.Options{
				FS:      inject(disk, f),
				OnFatal: func(message string) { messages = append(messages, message) },
			})
			mustAppend(t, s, entry("d", 1, 1))
			before := mustDump(t, s)
			f.on.Store(true)
			err := s.Append([]*storage.Entry{entry("d", 2, 2), entry("e", 1, 1)})
			if !errors.Is(err, storage.ErrFailed) || errors.Is(err, storage.ErrNotWritten) {
				t.Errorf("Append returns %v, want ErrFailed and not ErrNotWritten", err)
			}
			if len(messages) != 1 {
				t.Fatalf("OnFatal was called %d times, want once", len(messages))
			}
			for _, want := range []string{dataDir, errDisk.Error(), "acknowledged", "then restart", "pulsegate check"} {
				if !strings.Contains(messages[0], want) {
					t.Errorf("the message %q does not contain %q", messages[0], want)
				}
			}
			f.on.Store(false) // the store must not trust a disk that works again
			err = s.Append([]*storage.Entry{entry("d", 3, 3)})
			if !errors.Is(err, storage.ErrFailed) || !errors.Is(err, storage.ErrNotWritten) {
				t.Errorf("the next Append returns %v, want ErrFailed and ErrNotWritten", err)
			}
			if err := s.Ready(); !errors.Is(err, storage.ErrFailed) || shown(t, s, "store_failed") != 1 {
				t.Errorf("Ready returns %v, want ErrFailed, and in the metrics", err)
			}
			if got := mustDump(t, s); got != before {
				t.Errorf("readers see\n%swant\n%s", got, before)
			}
			crashed := disk.CrashClone(vfs.CrashCloneCfg{})
			_ = s.Close() // may fail
			if len(messages) != 1 {
				t.Errorf("Close has called OnFatal again: %q", messages[1:])
			}

			s = mustOpen(t, pebblestore.Options{FS: crashed})
			defer mustClose(t, s)
			if d, e := count(t, s, "d"), count(t, s, "e"); !(d == 1 && e == 0 || d == 2 && e == 1) {
				t.Errorf("after a restart there are %d and %d records, want 1 and 0, or 2 and 1", d, e)
			}
		})
	}
}

// TestFailedManifest fails the sync of the manifest in a flush: Pebble's background work
// cannot continue, and OnFatal must be called.
func TestFailedManifest(t *testing.T) {
	wantExit(t, "fail the manifest", "MANIFEST", errDisk.Error(), dataDir, "acknowledged")
}

func failManifest(string) { failUntilExit(manifestFault()) }

func manifestFault() *fault {
	return &fault{match: operation("MANIFEST", errorfs.OpFileSync, errorfs.OpFileSyncData), failing: errDisk}
}

// TestFailedCreation fails the sync of the manifest of a new store. Open must return after
// OnFatal, and the next Open must create a store. The test runs in its own process because
// Pebble does not close the manifest.
//
// Seen to fail when Open waited for the end of the process.
func TestFailedCreation(t *testing.T) {
	wantExit(t, "fail the creation")
}

func failCreation(string) {
	fs, f := vfs.NewMem(), manifestFault()
	f.on.Store(true)
	time.AfterFunc(time.Minute, func() { fmt.Println("Open has not returned"); os.Exit(1) })
	calls := 0
	_, err := pebblestore.Open(dataDir, pebblestore.Options{FS: inject(fs, f), OnFatal: func(string) { calls++ }})
	if !errors.Is(err, storage.ErrFailed) || !strings.Contains(err.Error(), errDisk.Error()) || calls != 1 {
		fmt.Printf("Open returns %v, and OnFatal was called %d times; want ErrFailed and one call\n", err, calls)
		os.Exit(1)
	}
	s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs})
	if err == nil {
		err = errors.Join(s.Append([]*storage.Entry{entry("d", 1, 1)}), s.Close())
	}
	exitIf(err)
	os.Exit(3)
}

// TestFatalComesFirst checks what a store returns while Options.OnFatal reports a failure in
// the background. No other call may report the failure earlier: a caller that ends the
// process because of it would suppress the message and the exit code.
//
// Seen to fail when Append returned ErrFailed as soon as the failure was recorded.
func TestFatalComesFirst(t *testing.T) {
	wantExit(t, "ask a store that fails")
}

func askFailing(string) {
	var s *pebblestore.Store
	var returned atomic.Bool
	appended := make(chan error, 1)
	f := manifestFault()
	s, err := pebblestore.Open(dataDir, pebblestore.Options{
		FS: inject(vfs.NewMem(), f),
		OnFatal: func(string) {
			if err := s.Ready(); !errors.Is(err, storage.ErrFailed) {
				fmt.Println("Ready returned", err)
				os.Exit(1)
			}
			go func() {
				err := s.Append([]*storage.Entry{entry("d", 2, 2)})
				if !returned.Load() {
					fmt.Println("Append returned before OnFatal:", err)
					os.Exit(1)
				}
				appended <- err
			}()
			time.Sleep(200 * time.Millisecond) // Append must not return in this time
			returned.Store(true)
		},
	})
	exitIf(err)
	exitIf(s.Append([]*storage.Entry{entry("d", 1, 1)}))
	f.on.Store(true)
	go func() { _ = pebblestore.Flush(s) }() // never returns
	select {
	case err := <-appended:
		if errors.Is(err, storage.ErrFailed) && errors.Is(err, storage.ErrNotWritten) {
			os.Exit(3)
		}
		fmt.Println("Append returned", err)
	case <-time.After(time.Minute):
		fmt.Println("OnFatal was not called, or Append has not returned")
	}
	os.Exit(1)
}

// TestFailedLogChange fails the end of one log file and the creation of the next. Pebble
// would panic while its locks are inconsistent, which would end the process. The store must
// report the failure and block.
func TestFailedLogChange(t *testing.T) {
	for scene, want := range map[string]string{
		"fail a new log":        "a new log",
		"fail the end of a log": "cannot be written",
	} {
		wantExit(t, scene, want, errDisk.Error(), dataDir, "acknowledged")
	}
}

func failNewLog(string) {
	failUntilExit(&fault{match: logOperation(errorfs.OpCreate, errorfs.OpReuseForWrite), failing: errDisk})
}

func failLogEnd(string) {
	sync := logOperation(errorfs.OpFileSync, errorfs.OpFileSyncData)
	failUntilExit(&fault{
		match:   func(op errorfs.Op) bool { return sync(op) && bytes.Contains(debug.Stack(), []byte("closeInternal")) },
		failing: errDisk,
	})
}

// exitSoon is an Options.OnFatal that returns and ends the process a little later. The store
// must not end it: a panic would exit with 2.
func exitSoon(message string) {
	fmt.Println(message)
	time.AfterFunc(50*time.Millisecond, func() { os.Exit(3) })
}

// failUntilExit writes with a fault until OnFatal is called.
func failUntilExit(f *fault) {
	s, err := pebblestore.Open(dataDir, pebblestore.Options{
		FS: inject(vfs.NewMem(), f), MemTableBytes: 64 << 10,
		OnFatal: exitSoon,
	})
	exitIf(err)
	f.on.Store(true)
	for k := range int64(1000) {
		err := s.Append(shifted(manyEntries(50), 1000*k))
		if errors.Is(err, storage.ErrFailed) {
			select {} // OnFatal was called; see TestFatalComesFirst
		}
		if err != nil {
			fmt.Println(err)
			time.Sleep(time.Minute) // OnFatal ends the process
			os.Exit(1)
		}
	}
}

// TestFailedReplay fails every attempt to write the replayed log to tables. Pebble would
// retry forever.
func TestFailedReplay(t *testing.T) {
	wantExit(t, "fail the replay", "cannot be written to tables", errDisk.Error(), dataDir)
}

func failReplay(string) {
	fs := vfs.NewMem()
	s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs})
	if err == nil {
		err = errors.Join(s.Append(manyEntries(100)), s.Close())
	}
	exitIf(err)
	f := &fault{match: operation(".sst", errorfs.OpCreate), failing: errDisk}
	f.on.Store(true)
	_, err = pebblestore.Open(dataDir, pebblestore.Options{
		FS:      inject(fs, f),
		OnFatal: exitSoon,
	})
	fmt.Println("Open returned", err)
	os.Exit(1)
}

// wantExit runs a scene in a child process, which must exit with code 3 and print all of texts.
func wantExit(t *testing.T, scene string, texts ...string) {
	t.Helper()
	cmd := child(t, scene, "")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("%s: the process ended with %d, %v, want 3, and printed:\n%s", scene, code, err, out)
	}
	for _, want := range texts {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: the process printed %q, want %q in it", scene, out, want)
		}
	}
}
