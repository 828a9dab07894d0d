package pebblestore_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// A tableGate blocks the creation of tables of one kind while it is shut.
type tableGate struct {
	vfs.FS
	kind vfs.DiskWriteCategory

	mu   sync.Mutex
	shut chan struct{}
	held int
}

func newTableGate(fs vfs.FS, kind vfs.DiskWriteCategory) *tableGate {
	return &tableGate{FS: fs, kind: kind, shut: make(chan struct{})}
}

func (g *tableGate) Create(name string, kind vfs.DiskWriteCategory) (vfs.File, error) {
	g.mu.Lock()
	shut := g.shut
	if kind == g.kind && shut != nil {
		g.held++
	}
	g.mu.Unlock()
	if kind == g.kind && shut != nil {
		<-shut
	}
	return g.FS.Create(name, kind)
}

func (g *tableGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
	}
	g.shut = nil
}

func (g *tableGate) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held > 0
}

// TestStalls blocks compactions. Writes must not stall before 64 flushed tables overlap, and
// then the stall must be counted.
//
// Seen to fail with the mutant stall-early.
func TestStalls(t *testing.T) {
	t.Parallel()
	gate := newTableGate(vfs.NewMem(), "pebble-compaction")
	s := mustOpen(t, pebblestore.Options{FS: gate})
	defer mustClose(t, s)
	defer gate.open()
	var writer sync.WaitGroup
	var flushed atomic.Int64
	writer.Go(func() {
		for i := range int64(68) {
			mustAppend(t, s, entry("a", i, 1), entry("z", i, 1))
			// Tables with records and segments overlap.
			if err := errors.Join(pebblestore.Seal(s), pebblestore.Flush(s)); err != nil {
				t.Error(err)
			}
			flushed.Add(1)
		}
	})
	polltest.Until(t, "writes wait", func() bool { return shown(t, s, "store_stalls_total") == 1 })
	if n := flushed.Load(); n < 62 {
		t.Errorf("writes stall with %d overlapping tables", n)
	}
	first := shown(t, s, "store_stall_seconds_total")
	polltest.Until(t, "the time of a wait that lasts counts",
		func() bool { return shown(t, s, "store_stall_seconds_total") > first })
	gate.open()
	writer.Wait()
	if stalls, seconds := shown(t, s, "store_stalls_total"), shown(t, s, "store_stall_seconds_total"); stalls != 1 ||
		seconds <= first {
		t.Errorf("afterwards the metrics have %v stalls and %v s", stalls, seconds)
	}
}

// TestFlushBesideReopen makes Expire wait for a flush that never begins, because the tree is
// closed and reopened. Reopening flushes the memtable.
//
// Seen to fail with the mutant wait-for-dropped-flush.
func TestFlushBesideReopen(t *testing.T) {
	t.Parallel()
	gate := newTableGate(vfs.NewMem(), "pebble-memtable-flush")
	s := mustOpen(t, pebblestore.Options{FS: gate})
	defer mustClose(t, s)
	defer gate.open()
	mustAppend(t, s, entry("d", 1, 1))
	flushed, reopened := make(chan error, 2), make(chan error, 1)
	go func() { flushed <- pebblestore.Flush(s) }()
	polltest.Until(t, "a flush is held up", gate.holds)
	mustAppend(t, s, entry("d", 2, 1))
	go func() { flushed <- pebblestore.Flush(s) }()
	polltest.Until(t, "another one waits for it", func() bool { return pebblestore.MemTables(s) >= 3 })
	go func() { reopened <- pebblestore.Reopen(s) }()
	polltest.Until(t, "the tree is being closed", func() bool { return pebblestore.Locked(s) })
	gate.open()
	for _, ch := range []chan error{reopened, flushed, flushed} {
		try(t, receive(t, ch))
	}
	if got := count(t, s, "d"); got != 2 {
		t.Errorf("%d records, want 2", got)
	}
}

// receive returns the next value of ch.
func receive(t *testing.T, ch <-chan error) error {
	t.Helper()
	select {
	case err := <-ch:
		return err
	case <-time.After(polltest.Patience):
		t.Fatal("nothing was received")
		return nil
	}
}
