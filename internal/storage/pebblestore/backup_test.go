package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
	"github.com/pulsegate/pulsegate/vitals"
)

const (
	backupPath   = "backups/one"
	restoredPath = "restored/data"
)

// mustBackup returns the archive of a backup of an open store.
func mustBackup(t testing.TB, s *pebblestore.Store) []byte {
	t.Helper()
	b, err := s.Backup()
	try(t, err)
	var archive bytes.Buffer
	_, err = b.WriteTo(&archive)
	try(t, err)
	try(t, b.Close())
	return archive.Bytes()
}

func mustReceive(t testing.TB, fs vfs.FS, archive []byte) pebblestore.Report {
	t.Helper()
	report, err := pebblestore.ReceiveBackup(context.Background(), bytes.NewReader(archive), backupPath,
		backup.Options{FS: fs})
	try(t, err)
	return report
}

// openAt opens another directory than dataDir.
func openAt(t testing.TB, fs vfs.FS, dir string) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open(dir, pebblestore.Options{FS: fs})
	try(t, err)
	return s
}

// TestBackupUnderLoad backs up a store during writes. Every group that was appended before
// must be in the backup; of the later groups, the first ones may be.
func TestBackupUnderLoad(t *testing.T) {
	const before, after = 60, 200
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MemTableBytes: 64 << 10})
	defer mustClose(t, s)
	for k := range int64(before) {
		mustAppend(t, s, shifted(manyEntries(50), 1000*k)...)
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for k := range int64(after) {
			if err := s.Append(shifted(manyEntries(50), 1000*(before+k))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var archives [][]byte
	for range 3 {
		archives = append(archives, mustBackup(t, s))
	}
	writer.Wait()
	archives = append(archives, mustBackup(t, s))
	last := int64(0)
	for i, archive := range archives {
		fs := vfs.NewCrashableMem()
		report := mustReceive(t, fs, archive)
		groups := report.Readings / 50
		if groups < max(before, last) || groups > before+after || report.Readings%50 != 0 ||
			i == 3 && groups != before+after {
			t.Errorf("backup %d holds %d readings, %d groups", i, report.Readings, groups)
		}
		last = groups

		fs = fs.CrashClone(vfs.CrashCloneCfg{}) // it must be on stable storage
		_, err := pebblestore.Restore(context.Background(), backupPath, restoredPath, backup.Options{FS: fs})
		try(t, err)
		fs = fs.CrashClone(vfs.CrashCloneCfg{})
		restored := openAt(t, fs, restoredPath)
		again := manyEntries(50)
		mustAppend(t, restored, shifted(again, 1000*(groups-1))...)
		for _, e := range again {
			wantOutcome(t, e, storage.Duplicate)
		}
		mustAppend(t, restored, entry("new", 1, 1))
		mustClose(t, restored)
	}
}

// TestBackupIsWhole opens, reads and checks a backup, which has the assignments and the definitions of
// signs too, and tries to write to it.
func TestBackupIsWhole(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs, MemTableBytes: 64 << 10, Signs: []vitals.Definition{drift()}})
	for k := range int64(30) {
		mustAppend(t, s, shifted(manyEntries(100), 1000*k)...)
	}
	own := vitals.OwnSign(0)
	mustAppend(t, s, with(entry("dev-1", 1, 0), own, -5))
	assigned := erasedAssignment(1, 2)
	mustAssign(t, s, assigned)
	want := mustDump(t, s)
	report := mustReceive(t, fs, mustBackup(t, s))
	if report.Readings != 3001 || report.Devices != 50 || report.Assignments != 1 || report.Values[own] != 1 ||
		report.Signs.Field(own) != drift().Field {
		t.Errorf("the report is %+v", report)
	}
	if names, err := fs.List(dataDir); err != nil || slices.Contains(names, "checkpoint") {
		t.Errorf("the checkpoint is still there: %v, %v", names, err)
	}
	mustClose(t, s)

	_, err := pebblestore.Open(backupPath, pebblestore.Options{FS: fs})
	if !errors.Is(err, pebblestore.ErrBackup) || !strings.Contains(err.Error(), "pulsegate restore") {
		t.Errorf("Open of a backup returns %v, want ErrBackup with what to do", err)
	}
	r, err := pebblestore.Open(backupPath, pebblestore.Options{FS: fs, ReadOnly: true})
	try(t, err)
	if got := mustDump(t, r); got != want {
		t.Error("the backup differs from the store")
	}
	if all, err := r.SubjectAssignments(context.Background(), assigned.Subject); err != nil || len(all) != 1 ||
		!all[0].Same(assigned) {
		t.Errorf("the backup has assignments %v, %v", all, err)
	}
	if d := r.Signs().Of(own); d == nil || d.Field != drift().Field || d.Decimals != drift().Decimals || !d.Retired {
		t.Errorf("in the backup, the sign is %+v", d)
	}
	mustClose(t, r)

	// A backup of the stopped store, and one of the backup.
	for _, dir := range []string{dataDir, backupPath} {
		b, err := backup.Stopped(context.Background(), dir, fs)
		try(t, err)
		var archive bytes.Buffer
		n, err := b.WriteTo(&archive)
		if err != nil || n != int64(archive.Len()) || b.Bytes() > n {
			t.Errorf("WriteTo returns %d, %v, for %d bytes in an archive of %d", n, err, b.Bytes(), archive.Len())
		}
		if _, err := pebblestore.Open(dir, pebblestore.Options{FS: fs, ReadOnly: true}); !errors.Is(err, storage.ErrLocked) {
			t.Errorf("while it is copied, Open returns %v, want ErrLocked", err)
		}
		try(t, b.Close())
		copied, err := pebblestore.ReceiveBackup(context.Background(), &archive, "again/of/"+dir, backup.Options{FS: fs})
		if err != nil || copied.Readings != 3001 {
			t.Errorf("backup of %s: %+v, %v", dir, copied, err)
		}
	}
}

// TestBackupCut receives truncated and damaged archives. They must leave no files.
func TestBackupCut(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MemTableBytes: 64 << 10})
	for k := range int64(20) {
		mustAppend(t, s, shifted(manyEntries(50), 1000*k)...)
	}
	archive := mustBackup(t, s)
	mustClose(t, s)
	receive := func(what string, r io.Reader) {
		t.Helper()
		fs := vfs.NewMem()
		_, err := pebblestore.ReceiveBackup(context.Background(), r, backupPath, backup.Options{FS: fs})
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		if names, _ := fs.List("backups"); len(names) > 0 {
			t.Errorf("%s: left %v", what, names)
		}
	}
	// An archive ends with two empty blocks of 512 bytes, preceded by the block of
	// PULSEGATE and its header.
	for n := 0; n < len(archive)-3*512; n += 512 {
		receive("cut", bytes.NewReader(archive[:n]))
	}
	receive("cut inside", bytes.NewReader(archive[:len(archive)-3*512+50]))
	receive("connection reset", io.MultiReader(bytes.NewReader(archive[:len(archive)/2]),
		iotest.ErrReader(errors.New("connection reset"))))
	for offset := 600; offset < len(archive)-1024; offset += 997 {
		damaged := slices.Clone(archive)
		if damaged[offset] ^= 4; archive[offset] == 0 {
			continue // may be padding
		}
		receive("damaged", bytes.NewReader(damaged))
	}
}

// TestBackupPlaces writes copies to directories that are not empty, and to empty ones.
func TestBackupPlaces(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem()})
	mustAppend(t, s, manyEntries(10)...)
	archive := mustBackup(t, s)
	mustClose(t, s)
	for _, tt := range []struct {
		name  string
		files []string
		want  error
	}{
		{"missing", nil, nil},
		{"empty", []string{"backups/one/"}, nil},
		{"empty file system", []string{"backups/one/lost+found/"}, nil},
		{"a file", []string{"backups/one/x"}, backup.ErrNotEmpty},
		{"interrupted copy", []string{"backups/one.partial/x"}, backup.ErrNotEmpty},
		{"interrupted copy inside", []string{"backups/one/partial/x"}, backup.ErrNotEmpty},
		{"a store", []string{"backups/one/PULSEGATE"}, backup.ErrNotEmpty},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem()
			for _, file := range tt.files {
				dir := fs.PathDir(file)
				try(t, fs.MkdirAll(dir, 0o700))
				if !strings.HasSuffix(file, "/") {
					writeFile(t, fs, file, "mine")
				}
			}
			if err := backup.CheckDestination(backupPath, fs); !errors.Is(err, tt.want) {
				t.Errorf("CheckDestination returns %v, want %v", err, tt.want)
			}
			_, err := pebblestore.ReceiveBackup(context.Background(), bytes.NewReader(archive), backupPath,
				backup.Options{FS: fs})
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			for _, file := range tt.files {
				if text, err := readFile(fs, file); !strings.HasSuffix(file, "/") && (err != nil || text != "mine") {
					t.Errorf("%s holds %q, %v", file, text, err)
				}
			}
			if tt.want != nil {
				return
			}
			_, err = pebblestore.Check(context.Background(), backupPath, pebblestore.CheckOptions{FS: fs})
			try(t, err)
			if names, _ := fs.List(backupPath); slices.Contains(names, "partial") {
				t.Errorf("left %v", names)
			}
		})
	}
}

// TestBackupModes writes a copy to a directory that other users may read. They must not
// be able to read its files.
func TestBackupModes(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem()})
	mustAppend(t, s, manyEntries(10)...)
	archive := mustBackup(t, s)
	mustClose(t, s)
	open := t.TempDir()
	try(t, os.Chmod(open, 0o755))
	missing := filepath.Join(open, "not", "there")
	for _, dir := range []string{missing, filepath.Join(open, "there")} {
		if dir != missing {
			try(t, os.Mkdir(dir, 0o755))
		}
		_, err := pebblestore.ReceiveBackup(context.Background(), bytes.NewReader(archive), dir, backup.Options{})
		try(t, err)
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) < 5 {
			t.Fatalf("%d files, %v", len(entries), err)
		}
		for _, e := range entries {
			info, err := e.Info()
			try(t, err)
			if info.Mode().Perm()&0o077 != 0 && info.Size() > 0 {
				t.Errorf("%s has the mode %v", e.Name(), info.Mode())
			}
		}
	}
	if info, err := os.Stat(missing); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has the mode %v, %v", info.Mode(), err)
	}
}

// TestBackupNoSpace checks that a copy for which there is not enough space is rejected
// before anything is written.
func TestBackupNoSpace(t *testing.T) {
	fs := vfs.NewMem()
	fs.TestingSetDiskUsage(free(10 << 20))
	_, err := pebblestore.ReceiveBackup(context.Background(), nil, backupPath, backup.Options{FS: fs, Bytes: 9 << 20})
	if !errors.Is(err, storage.ErrDiskLow) || !strings.Contains(err.Error(), "10485760 bytes are free") {
		t.Errorf("got %v, want ErrDiskLow with the free bytes", err)
	}
	if names, _ := fs.List(""); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

// TestBackupFaults fails each operation on the copy's file system in turn. Either the
// copy is complete and valid, or there is none.
func TestBackupFaults(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem()})
	mustAppend(t, s, manyEntries(10)...)
	archive := mustBackup(t, s)
	mustClose(t, s)
	for _, inside := range []bool{false, true} {
		failures := 0
		for n := int64(1); ; n++ {
			mem := vfs.NewMem()
			if inside {
				try(t, mem.MkdirAll(backupPath, 0o700))
			}
			fault := &nthWrite{n: n}
			_, err := pebblestore.ReceiveBackup(context.Background(), bytes.NewReader(archive), backupPath,
				backup.Options{FS: inject(mem, fault)})
			_, checkErr := pebblestore.Check(context.Background(), backupPath, pebblestore.CheckOptions{FS: mem})
			if err == nil && checkErr != nil {
				t.Errorf("fault %d: no error, and %v", n, checkErr)
			}
			if err != nil {
				failures++
				names, _ := mem.List(backupPath)
				if checkErr != nil && len(slices.DeleteFunc(names, func(n string) bool { return n == "LOCK" })) > 0 {
					t.Errorf("fault %d: %v left %v", n, err, names)
				}
			}
			if fault.seen < n {
				break
			}
		}
		if failures < 20 {
			t.Errorf("%d operations failed, want more", failures)
		}
	}
}

// A copy that cannot be verified, because the client was interrupted or may open no more files, is not called damaged,
// nor is a store that is checked; one with a wrong byte is.
func TestUnverifiedIsNotDamaged(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MemTableBytes: 64 << 10, WindowRows: 1000})
	for k := range int64(30) {
		mustAppend(t, s, shifted(manyEntries(100), 1000*k)...)
	}
	archive := mustBackup(t, s)
	mustClose(t, s)
	damaged := func(err error) bool {
		return errors.Is(err, storage.ErrCorrupt) || err != nil && strings.Contains(err.Error(), "damaged")
	}
	receive := func(fs vfs.FS, archive []byte, progress func(cancel func())) error {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := pebblestore.ReceiveBackup(ctx, bytes.NewReader(archive), backupPath,
			backup.Options{FS: fs, Progress: func(int64, int64) { progress(cancel) }})
		return err
	}
	for n := 1; ; n++ { // interrupted at each step of the verification
		calls := 0
		err := receive(vfs.NewMem(), archive, func(cancel func()) {
			if calls++; calls == n {
				cancel()
			}
		})
		if calls < n {
			break
		}
		if !errors.Is(err, context.Canceled) || damaged(err) {
			t.Errorf("interrupted at step %d: %v, want that the context was canceled", n, err)
		}
	}
	for n := int64(1); ; n++ { // each read and each opening of a file for reading fails
		fault := &nthRead{n: n}
		err := receive(inject(vfs.NewMem(), fault), archive, func(func()) {})
		if fault.seen.Load() < n {
			break
		}
		if damaged(err) {
			t.Errorf("read %d fails: %v", n, err)
		}
	}
	wrong := slices.Clone(archive)
	at := len(wrong) / 2
	for wrong[at] == 0 { // may be padding
		at++
	}
	wrong[at] ^= 4
	if err := receive(vfs.NewMem(), wrong, func(func()) {}); !damaged(err) {
		t.Errorf("a wrong byte: %v, want that the copy is damaged", err)
	}
}

// nthRead fails one operation that reads.
type nthRead struct {
	n    int64
	seen atomic.Int64
}

func (f *nthRead) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead && f.seen.Add(1) == f.n {
		return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EMFILE}
	}
	return nil
}

func (f *nthRead) String() string { return "nth read" }

// nthWrite fails one operation that changes something.
type nthWrite struct {
	mu      sync.Mutex
	n, seen int64
}

func (f *nthWrite) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen++; f.seen == f.n {
		return errDisk
	}
	return nil
}

func (f *nthWrite) String() string { return "nth write" }

// TestRestoreSources restores stores, a missing directory, and damaged backups.
func TestRestoreSources(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, pebblestore.Options{FS: disk})
	mustAppend(t, s, manyEntries(100)...)
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	mustReceive(t, disk, mustBackup(t, s))
	mustClose(t, s)
	restore := func(fs vfs.FS, from string) error {
		_, err := pebblestore.Restore(context.Background(), from, restoredPath, backup.Options{FS: fs})
		return err
	}
	if err := restore(crashed, dataDir); !errors.Is(err, storage.ErrFormat) {
		t.Errorf("a store that was not closed: %v, want ErrFormat", err)
	}
	if err := restore(disk, "nowhere"); !errors.Is(err, storage.ErrFormat) {
		t.Errorf("a missing directory: %v, want ErrFormat", err)
	}
	if err := restore(disk, dataDir); err != nil {
		t.Errorf("a closed store: %v", err)
	}
	if err := restore(disk, backupPath); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("over a store: %v, want ErrNotEmpty", err)
	}
	for file := range files(t, disk) {
		name := backupPath + "/" + file
		if _, err := disk.Stat(name); err != nil || size(t, disk, name) == 0 {
			continue
		}
		fs := vfs.NewMem()
		_, err := vfs.Clone(disk, fs, backupPath, backupPath)
		try(t, err)
		flip(t, fs, name, size(t, fs, name)/2)
		if err := restore(fs, backupPath); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), file) {
			t.Errorf("with %s damaged: %v, want ErrCorrupt with the file", file, err)
		}
		if names, _ := fs.List("restored"); len(names) > 0 {
			t.Errorf("with %s damaged: left %v", file, names)
		}
	}
}

// TestBackupBusy begins a second backup during the first one, and closes the store during
// a backup.
func TestBackupBusy(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs})
	mustAppend(t, s, manyEntries(100)...)
	b, err := s.Backup()
	try(t, err)
	if _, err := s.Backup(); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("a second backup: %v, want ErrBusy", err)
	}
	try(t, b.Close())
	b, err = s.Backup()
	try(t, err)
	r, w := io.Pipe()
	var sender sync.WaitGroup
	sender.Go(func() {
		_, err := b.WriteTo(w)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("WriteTo during Close returns %v, want context.Canceled", err)
		}
		w.CloseWithError(err)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	_, err = io.ReadFull(r, make([]byte, 100))
	try(t, err)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	polltest.Until(t, "Close has begun", func() bool {
		_, err := s.Backup()
		return errors.Is(err, storage.ErrClosed)
	})
	_, _ = io.Copy(io.Discard, r)
	sender.Wait()
	try(t, <-closed)
	if _, err := s.Backup(); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}
