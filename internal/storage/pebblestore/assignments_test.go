package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// The subject to be erased is unlike any other data, as the erased device is.
const erasedSubject = "Hn6Yt3Bs8Qw1Ec5Mz9Lk2Vg7Xj4"

// erasedAssignment returns the assignment that includes the readings of fill from from to before
// to.
func erasedAssignment(from, to int64) storage.Assignment {
	return storage.Assignment{
		Device: mustName(erasedDevice), Subject: erasedSubject,
		FromUnixMs: erasedEntry(20 * from).Reading.TimeUnixMs, ToUnixMs: erasedEntry(20*to-1).Reading.TimeUnixMs + 1,
	}
}

// beside returns readings of the device, without traces, immediately before and after a.
func beside(a storage.Assignment) []*storage.Entry {
	return []*storage.Entry{entry(erasedDevice, a.FromUnixMs-1, 71), entry(erasedDevice, a.ToUnixMs, 72)}
}

func mustAssign(t testing.TB, s *pebblestore.Store, all ...storage.Assignment) {
	t.Helper()
	for _, a := range all {
		try(t, s.Assign(context.Background(), a))
	}
}

func subjectTraces() []string { return append(oldTraces(), erasedSubject[:12], erasedSubject[12:24]) }

// TestEraseAssignment erases an assignment whose readings are in old and new tables, in the log,
// in reused logs. Not a byte of these, and of the subject, may be left; everything else of the
// device must be.
func TestEraseAssignment(t *testing.T) {
	fs := vfs.NewMem()
	o := pebblestore.Options{FS: fs, MemTableBytes: 64 << 10, WindowRows: 300}
	s := mustOpen(t, o)
	a := erasedAssignment(0, 200)
	mustAssign(t, s, a)
	mustAppend(t, s, beside(a)...)
	fill(t, s, 0, 100)
	mustClose(t, s)
	s = mustOpen(t, o)
	fill(t, s, 100, 200)
	other := storage.Assignment{Device: a.Device, Subject: "other", FromUnixMs: a.ToUnixMs, ToUnixMs: storage.OpenEnd}
	mustAssign(t, s, other)
	polltest.Until(t, "a table holds traces before the erasure", func() bool { // flushes run in the background
		return suffixes(tracesOf(fs, dataDir, subjectTraces()))["sst"] > 0
	})

	e, err := s.EraseAssignment(a)
	if want := (storage.Erasure{Device: a.Device, Readings: 4000, Subject: a.Subject, FromUnixMs: a.FromUnixMs,
		ToUnixMs: a.ToUnixMs}); err != nil || e != want {
		t.Fatalf("EraseAssignment returns %+v, %v, want %+v", e, err, want)
	}
	if found := tracesOf(fs, dataDir, subjectTraces()); len(found) > 0 {
		t.Errorf("after it, %v hold traces", found)
	}
	if n := count(t, s, erasedDevice); n != 2 {
		t.Errorf("the device has %d records, want those beside the assignment", n)
	}
	d, err := s.Latest(context.Background(), a.Device)
	if err != nil || d.NewestUnixMs != a.ToUnixMs {
		t.Errorf("Latest returns %+v, %v", d, err)
	}
	if all, err := s.DeviceAssignments(context.Background(), a.Device); err != nil || len(all) != 1 ||
		!all[0].Same(other) {
		t.Errorf("DeviceAssignments returns %v, %v", all, err)
	}
	if _, err := s.EraseAssignment(a); !errors.Is(err, storage.ErrNotAssigned) {
		t.Errorf("a second one returns %v, want ErrNotAssigned", err)
	}
	mustClose(t, s)
	report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
	if err != nil || report.Readings != 10_002 || report.Assignments != 1 || report.Format != 1 {
		t.Errorf("Check returns %+v, %v", report, err)
	}
}

// TestEraseRemovesAssignments erases a device with assignments: not a byte of its subjects may be
// left.
func TestEraseRemovesAssignments(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs, MemTableBytes: 64 << 10})
	a := erasedAssignment(0, 10)
	mustAssign(t, s, a)
	try(t, pebblestore.Flush(s))
	a.ToUnixMs++
	try(t, s.EndAssignment(context.Background(), a))
	fill(t, s, 0, 10)
	_, err := s.Erase(a.Device)
	try(t, err)
	if found := tracesOf(fs, dataDir, append(subjectTraces(), erasedDevice[:12], erasedDevice[12:24])); len(found) > 0 {
		t.Errorf("%v hold traces", found)
	}
	mustClose(t, s)
	if report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); err != nil ||
		report.Assignments != 0 {
		t.Errorf("Check returns %+v, %v", report, err)
	}
}

// TestEraseAssignmentCrash loses power before every operation of the erasure of an assignment that
// changes files. After the next start, the assignment and all its readings must be stored, or
// neither and not a byte of them; everything else must be.
func TestEraseAssignmentCrash(t *testing.T) {
	t.Parallel()
	a := erasedAssignment(1, 21)
	crashDuringErasure(t, subjectTraces(), 0, func(s *pebblestore.Store) (storage.Erasure, error) {
		return s.EraseAssignment(a)
	})
}

// TestEraseValuesCrash does the same with erasures of values, the second one of those of a gateway.
func TestEraseValuesCrash(t *testing.T) {
	t.Parallel()
	a := erasedAssignment(1, 21)
	e := storage.Erasure{Device: a.Device, FromUnixMs: a.FromUnixMs, ToUnixMs: a.ToUnixMs, Signs: 1 << vitals.HeartRate}
	gateway := e
	gateway.Signs, gateway.Gateway, gateway.Shared = 0, mustName(erasedGateway), true
	for _, e := range []storage.Erasure{e, gateway} {
		t.Run(e.Gateway.String(), func(t *testing.T) {
			t.Parallel()
			crashDuringErasure(t, oldTraces(), 1, func(s *pebblestore.Store) (storage.Erasure, error) {
				return s.EraseValues(e)
			})
		})
	}
}

// crashDuringErasure tests an erasure after which a number of assignments and no trace is left.
func crashDuringErasure(t *testing.T, traces []string, assignments int,
	erase func(*pebblestore.Store) (storage.Erasure, error)) {
	var mu sync.Mutex // guards what follows
	var found []*vfs.MemFS
	active := false
	disk := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(9, 9))
	snap := func() {
		found = append(found,
			disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100, 50}[len(found)%4], RNG: rng}))
	}
	s := mustOpen(t,
		pebblestore.Options{MemTableBytes: 64 << 10, FS: inject(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if active && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				snap()
			}
			return nil
		}))})
	fill(t, s, 1, 21)
	a := erasedAssignment(1, 21)
	mustAppend(t, s, beside(a)...)
	for ms := range int64(9) { // some that have a value more
		e := entry(erasedDevice, a.FromUnixMs+1+ms, vitals.Value(ms))
		e.Reading.Values.Set(vitals.SpO2, 7000)
		mustAppend(t, s, e)
	}
	mustAssign(t, s, a)
	before := mustDump(t, s)
	mu.Lock()
	active = true
	mu.Unlock()
	want, err := erase(s)
	try(t, err)
	want.Readings = 0
	mu.Lock()
	active = false
	whileErasing := len(found)
	for range 4 {
		snap()
	}
	mu.Unlock()
	after := mustDump(t, s)
	mustClose(t, s)

	every := 1
	if testing.Short() {
		every = 7
	}
	verify := func(fs *vfs.MemFS) (gone bool, err error) {
		if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); err != nil {
			return false, err
		}
		recorded := 0
		s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs, OnErased: func(e storage.Erasure) error {
			e.Readings = 0
			if recorded++; e != want {
				return fmt.Errorf("recorded %+v", e)
			}
			return nil
		}})
		if err != nil {
			return false, err
		}
		defer s.Close()
		text, err := dump(s)
		if err != nil {
			return false, err
		}
		all, err := s.SubjectAssignments(context.Background(), erasedSubject)
		switch {
		case err != nil:
			return false, err
		case text == before && len(all) == 1 && recorded == 0:
			return false, nil
		case text != after || len(all) != assignments:
			return false, fmt.Errorf("neither the state before nor that after: %d assignments", len(all))
		}
		if left := tracesOf(fs, dataDir, traces); len(left) > 0 {
			return true, fmt.Errorf("%v hold traces", left)
		}
		return true, nil
	}
	removed := 0
	for i, fs := range found {
		if i%every != 0 && i < whileErasing {
			continue
		}
		gone, err := verify(fs)
		if err != nil || !gone && i >= whileErasing {
			t.Errorf("crash %d of %d: %v, removed: %t", i, len(found), err, gone)
		}
		if gone {
			removed++
		}
	}
	t.Logf("%d crashes, %d after the removal", len(found), removed)
}

// TestCheckAssignments damages assignments and their index. Check must find each.
func TestCheckAssignments(t *testing.T) {
	a := storage.Assignment{Device: mustName("a"), Subject: "P", FromUnixMs: 10, ToUnixMs: 20}
	b := storage.Assignment{Device: mustName("a"), Subject: "Q", FromUnixMs: 20, ToUnixMs: 30}
	overlapping := b
	overlapping.FromUnixMs--
	for name, change := range map[string]func(set func(key, value []byte), remove func(key []byte)){
		"": func(func(key, value []byte), func([]byte)) {},
		"index of subjects does not agree": func(_ func(key, value []byte), remove func([]byte)) {
			remove(pebblestore.SubjectKey(a))
		},
		"index of subjects does not agree ": func(set func(key, value []byte), _ func([]byte)) {
			set(pebblestore.SubjectKey(overlapping), nil)
		},
		"index of subjects does not agree  ": func(_ func(key, value []byte), remove func([]byte)) {
			remove(pebblestore.AssignKey(a))
		},
		"assignments overlap": func(set func(key, value []byte), _ func([]byte)) {
			set(pebblestore.AssignKey(overlapping), pebblestore.AssignValue(overlapping))
			set(pebblestore.SubjectKey(overlapping), nil)
		},
		"wrong length": func(set func(key, value []byte), _ func([]byte)) {
			set(pebblestore.AssignKey(a), pebblestore.AssignValue(a)[:8])
		},
		"unknown version": func(set func(key, value []byte), _ func([]byte)) {
			set(pebblestore.AssignKey(a), append([]byte{3}, pebblestore.AssignValue(a)[1:]...))
		},
		"not encoded as it would be": func(set func(key, value []byte), _ func([]byte)) {
			set(pebblestore.AssignKey(a), append(pebblestore.AssignValue(a), '_'))
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			s := mustOpen(t, pebblestore.Options{FS: disk})
			mustAssign(t, s, a, b)
			fs := disk.CrashClone(vfs.CrashCloneCfg{})
			mustClose(t, s)
			db := openRaw(t, fs)
			var err error
			change(func(key, value []byte) { err = errors.Join(err, db.Set(key, value, pebble.Sync)) },
				func(key []byte) { err = errors.Join(err, db.Delete(key, pebble.Sync)) })
			try(t, err, db.Close())
			_, err = pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
			if name = strings.TrimSpace(name); name == "" && err != nil || name != "" && (!errors.Is(err, storage.ErrCorrupt) ||
				!strings.Contains(err.Error(), name)) {
				t.Errorf("Check returns %v, want %q", err, name)
			}
		})
	}
}

// TestEraseAssignmentEnded ends an assignment earlier, and assigns the device to the next subject, after the
// erasure of the assignment has begun to seal readings. What the device measured for the next one stays,
// also if the process ends at any later write and a start finishes the erasure.
//
// Seen to fail when the end was read before the readings were sealed, and when the intent kept the old end.
func TestEraseAssignmentEnded(t *testing.T) {
	t.Parallel()
	a := storage.Assignment{Device: mustName("d"), Subject: "P-17", FromUnixMs: 10, ToUnixMs: 100}
	next := storage.Assignment{Device: a.Device, Subject: "P-18", FromUnixMs: 50, ToUnixMs: 100}
	var s *pebblestore.Store
	var armed, ended atomic.Bool
	var err error
	var mu sync.Mutex
	var crashed []*vfs.MemFS
	disk := vfs.NewCrashableMem()
	s = mustOpen(t, pebblestore.Options{CacheBytes: 1, FS: inject(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && ended.Load() {
			left := disk.CrashClone(vfs.CrashCloneCfg{})
			mu.Lock()
			defer mu.Unlock()
			crashed = append(crashed, left)
		}
		if strings.HasSuffix(op.Path, ".sst") && bytes.Contains(debug.Stack(), []byte("mergeLate")) &&
			armed.CompareAndSwap(true, false) {
			earlier := a
			earlier.ToUnixMs = next.FromUnixMs
			err = errors.Join(s.EndAssignment(context.Background(), earlier), s.Assign(context.Background(), next))
			ended.Store(true)
		}
		return nil
	}))})
	defer mustClose(t, s)
	// The assignment stays in memory, and the table has no key after it: the table is being opened when its end is set.
	pebblestore.WithoutStart(s)
	mustAppend(t, s, entry("d", 10, 1), entry("d", 60, 1))
	try(t, pebblestore.Seal(s), pebblestore.Flush(s), s.Assign(t.Context(), a))
	mustAppend(t, s, entry("d", 15, 1))
	armed.Store(true)
	e, eraseErr := s.EraseAssignment(a)
	ended.Store(false)
	if armed.Load() || err != nil || eraseErr != nil || e.Readings != 2 {
		t.Errorf("EraseAssignment returns %+v, %v; ended: %t, %v", e, eraseErr, !armed.Load(), err)
	}
	if n := count(t, s, "d"); n != 1 {
		t.Errorf("the device has %d readings, want that of the next subject", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(crashed) == 0 {
		t.Error("nothing was written after the assignment had ended")
	}
	for i, left := range crashed {
		s := mustOpen(t, pebblestore.Options{FS: left})
		if n := count(t, s, "d"); n != 1 {
			t.Errorf("after a crash at write %d, the device has %d readings, want that of the next subject", i, n)
		}
		mustClose(t, s)
	}
}
