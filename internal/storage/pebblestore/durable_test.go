package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A syncGate blocks syncs of the log while it is shut.
type syncGate struct {
	mu      sync.Mutex
	shut    chan struct{} // nil: open
	waiting chan struct{} // receives when a sync is blocked
}

func newSyncGate() *syncGate { return &syncGate{waiting: make(chan struct{}, 10)} }

func (g *syncGate) MaybeError(op errorfs.Op) error {
	if op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData || !isLog(op.Path) {
		return nil
	}
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		g.waiting <- struct{}{}
		<-shut
	}
	return nil
}

func (g *syncGate) String() string { return "sync gate" }

func (g *syncGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *syncGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

// TestReadersWaitForSync checks that a reading is not visible while its sync runs, although
// Pebble shows it, and that readers do not block during the sync.
func TestReadersWaitForSync(t *testing.T) {
	gate := newSyncGate()
	s := mustOpen(t, pebblestore.Options{FS: inject(vfs.NewMem(), gate)})
	defer mustClose(t, s)
	mustAppend(t, s, entry("old", 1, 1))
	before := mustDump(t, s)

	gate.close()
	done := make(chan error)
	go func() {
		done <- s.Append([]*storage.Entry{entry("old", 2, 2), with(entry("old", 1, 1), vitals.SpO2, 3), entry("new", 1, 1)})
	}()
	<-gate.waiting
	if got := mustDump(t, s); got != before {
		t.Errorf("while the sync runs, readers see\n%swant\n%s", got, before)
	}
	if _, err := s.Latest(context.Background(), mustName("new")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("while the sync runs, Latest returns %v, want ErrNotFound", err)
	}
	gate.open()
	if err := <-done; err != nil {
		t.Fatalf("Append: %v", err)
	}
	if got := count(t, s, "old"); got != 2 {
		t.Errorf("after the sync, there are %d records, want 2", got)
	}
	if d, err := s.Latest(context.Background(), mustName("old")); err != nil || d.NewestUnixMs != 2 ||
		d.Latest[vitals.SpO2].Value != 3 {
		t.Errorf("after the sync, Latest returns %+v, %v", d, err)
	}
}

// TestDuplicateOfUnsynced kills the store after a reading was written and before it was
// synced. The next store finds it in the log and settles a retry as a duplicate, without
// writing: by then the reading must survive a loss of power.
func TestDuplicateOfUnsynced(t *testing.T) {
	gate := newSyncGate()
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, pebblestore.Options{FS: inject(disk, gate)})
	mustAppend(t, s, entry("d", 1, 1))
	gate.close()
	done := make(chan error)
	go func() { done <- s.Append([]*storage.Entry{entry("d", 2, 2)}) }()
	<-gate.waiting
	killed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	lost := disk.CrashClone(vfs.CrashCloneCfg{})
	gate.open()
	try(t, <-done)
	mustClose(t, s)

	s = mustOpen(t, pebblestore.Options{FS: lost})
	if got := count(t, s, "d"); got != 1 {
		t.Fatalf("%d records survive a crash before the sync, want 1", got)
	}
	mustClose(t, s)

	s = mustOpen(t, pebblestore.Options{FS: killed})
	retry := entry("d", 2, 2)
	mustAppend(t, s, retry)
	wantOutcome(t, retry, storage.Duplicate)
	if n := shown(t, s, "store_syncs_total"); n != 0 {
		t.Errorf("a duplicate cost %v syncs, want none", n)
	}
	after := killed.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	s = mustOpen(t, pebblestore.Options{FS: after})
	defer mustClose(t, s)
	if got := count(t, s, "d"); got != 2 {
		t.Errorf("after the outcome and a loss of power there are %d records, want 2", got)
	}
}

// A crashPoint is a copy of the disk as a crash at some point would leave it.
type crashPoint struct {
	op    errorfs.Op
	at    string
	fs    *vfs.MemFS
	acked int
}

// crashEverywhere writes groups of every kind, and before each operation that changes files
// it copies the disk as a crash would leave it. It returns an error for each copy in which
// a store does not recover exactly the acknowledged groups, with or without the group that
// was being written, for every stride-th copy from a random one on. It stops at maxProblems.
func crashEverywhere(t *testing.T, wrap func(vfs.FS) vfs.FS, maxProblems, stride int) (points int, problems []error) {
	var (
		mu     sync.Mutex
		found  []crashPoint
		acked  atomic.Int64
		active atomic.Bool
		disk   = vfs.NewCrashableMem()
		rng    = rand.New(rand.NewPCG(7, 7))
	)
	spy := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !active.Load() || op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		// Count before copying: groups acknowledged during the copy may be in it or
		// not.
		n := int(acked.Load())
		percent := []int{0, 100, 50, 0}[len(found)%4]
		found = append(found, crashPoint{
			op:    op,
			at:    fmt.Sprintf("before operation %d, %v of %s, unsynced %d %%", len(found), op.Kind, op.Path, percent),
			fs:    disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}),
			acked: n,
		})
		return nil
	})
	// Small memtables cause flushes, compactions and new logs.
	// Small windows and segments are sealed, merged and split all the time.
	s := mustOpen(t, pebblestore.WithSegmentRows(pebblestore.Options{FS: inject(wrap(disk), spy), MemTableBytes: 64 << 10,
		WindowRows: 60, Signs: []vitals.Definition{drift()}}, 20))
	model := storetest.NewMemory()
	try(t, model.Signs().Define([]vitals.Definition{drift()}))
	states := []string{mustDump(t, model)}
	active.Store(true)
	for k := range int64(80) {
		var group []*storage.Entry
		for i := range int64(60) {
			e := entry(fmt.Sprintf("dev-%d", i%7), 1000*k+i, vitals.Value(i))
			e.Reading.Gateway = mustName(fmt.Sprintf("a-gateway-with-a-long-name-to-fill-the-memtables-sooner-%d", k))
			if k%3 == 1 && i < 9 {
				with(e, vitals.OwnSign(0), vitals.Value(-i))
			}
			group = append(group, e)
		}
		if k > 0 {
			group = append(group, entry("dev-1", 1000*k-500, 1), with(entry("dev-2", 1000*(k-1)+2, 2), vitals.SpO2, 5),
				entry("dev-3", 1000*k+3, 99))
		}
		if k > 10 { // into older segments
			group = append(group, entry("dev-4", 1000*(k/2)+500+k%2, 1), entry("dev-4", 1000*(k/2)+600+k%2, 1),
				with(entry("dev-5", 1000*(k-9)+5, 5), vitals.SpO2, 5))
		}
		mustAppend(t, s, group...)
		mustAppend(t, model, group...)
		states = append(states, mustDump(t, model))
		acked.Add(1)
		if k%20 == 19 {
			try(t, pebblestore.Flush(s))
		}
		if k == 40 {
			merged, split := pebblestore.SegmentRows(s, mustName("dev-6")), pebblestore.SegmentRows(s, mustName("dev-4"))
			if !slices.Contains(merged, 16) || !slices.Contains(split, 11) {
				t.Errorf("there are segments of %v and %v rows: none was merged, or none was split", merged, split)
			}
		}
		if k >= 40 {
			continue // sealed while others are written
		}
		try(t, pebblestore.Seal(s))
	}
	for k := range int64(3) {
		group := []*storage.Entry{entry("small", 1000*k, 1), entry("small", 1000*k+1, 2)}
		mustAppend(t, s, group...)
		mustAppend(t, model, group...)
		states = append(states, mustDump(t, model))
		acked.Add(1)
		try(t, pebblestore.Seal(s))
	}
	try(t, pebblestore.TidyPass(s))
	if got := pebblestore.SegmentRows(s, mustName("small")); !slices.Equal(got, []int{6}) {
		t.Errorf("small segments were merged to segments of %v rows, want 6", got)
	}
	active.Store(false)
	mustClose(t, s)
	tables := 0 // also those that were compacted into others
	for _, p := range found {
		if p.op.Kind == errorfs.OpCreate && strings.HasSuffix(p.op.Path, ".sst") {
			tables++
		}
	}
	if tables < 2 {
		t.Fatalf("the load made %d tables, want at least 2", tables)
	}
	for _, p := range strided(t, found, stride) {
		if err := recovers(p, states); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", p.at, err))
		}
		if len(problems) == maxProblems {
			break
		}
	}
	return len(found), problems
}

// recovers opens the copy and compares the store with states.
func recovers(p crashPoint, states []string) error {
	if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: p.fs}); err != nil {
		return err
	}
	s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: p.fs})
	if err != nil {
		return err
	}
	defer s.Close()
	got, err := dump(s)
	if err != nil {
		return err
	}
	if got != states[p.acked] && (p.acked+1 == len(states) || got != states[p.acked+1]) {
		return fmt.Errorf("after %d acknowledged groups, the store holds neither these nor one more, but state %d (-1: none)",
			p.acked, slices.Index(states, got))
	}
	return nil
}

// TestCrashEverywhere checks for acknowledged readings after a crash before some operations on
// files, and TestCrashEverywhereExhaustive (make exhaustive) before every one.
func TestCrashEverywhere(t *testing.T) {
	long(t)
	t.Parallel()
	crashHonest(t, 4)
}

func TestCrashEverywhereExhaustive(t *testing.T) {
	long(t)
	t.Parallel()
	crashHonest(t, 1)
}

func crashHonest(t *testing.T, stride int) {
	points, problems := crashEverywhere(t, func(fs vfs.FS) vfs.FS { return fs }, 10, stride)
	t.Logf("%d crashes", points)
	for _, err := range problems {
		t.Error(err)
	}
	if points < 100 {
		t.Errorf("only %d crashes", points)
	}
}

// TestCrashEverywhereSees shows that TestCrashEverywhere can fail: on a disk that does not
// sync, acknowledged readings are lost.
func TestCrashEverywhereSees(t *testing.T) {
	long(t)
	t.Parallel()
	_, problems := crashEverywhere(t, func(fs vfs.FS) vfs.FS { return lyingFS{fs} }, 1, 1)
	if len(problems) == 0 {
		t.Error("no reading was lost on a disk that does not sync")
	}
}

// TestCrashWhileCreating crashes before every operation of the first Open. The next Open
// must find a store or create one.
func TestCrashWhileCreating(t *testing.T) {
	long(t)
	t.Parallel()
	found := crashesOf(vfs.NewCrashableMem(), []int{0, 50, 100}, func(fs vfs.FS) {
		mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
	})
	for _, p := range found {
		s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: p.fs})
		if err != nil {
			t.Errorf("%s: %v", p.at, err)
			continue
		}
		mustAppend(t, s, entry("d", 1, 1))
		after := p.fs.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, s)
		s, err = pebblestore.Open(dataDir, pebblestore.Options{FS: after})
		if err != nil {
			t.Errorf("%s: after the next crash: %v", p.at, err)
			continue
		}
		if got := count(t, s, "d"); got != 1 {
			t.Errorf("%s: %d records after the next crash, want 1", p.at, got)
		}
		mustClose(t, s)
	}
	t.Logf("%d crashes", len(found))
}
