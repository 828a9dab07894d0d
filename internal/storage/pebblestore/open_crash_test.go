package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// crashesOf returns copies of the disk as a crash would leave it before each operation of
// call that changes files.
func crashesOf(disk *vfs.MemFS, percents []int, call func(vfs.FS)) (found []crashPoint) {
	var mu sync.Mutex // guards found
	rng := rand.New(rand.NewPCG(9, 9))
	spy := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for _, percent := range percents {
			found = append(found, crashPoint{
				at: fmt.Sprintf("before operation %d, %v of %s, unsynced %d %%", len(found)/len(percents), op.Kind, op.Path, percent),
				fs: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}),
			})
		}
		return nil
	})
	call(inject(disk, spy))
	return found
}

// strided returns every stride-th of some crashes, from a random one on.
func strided(t *testing.T, found []crashPoint, stride int) (some []crashPoint) {
	t.Helper()
	first := rand.IntN(stride)
	t.Logf("every crash of %d from number %d on, with a stride of %d", len(found), first, stride)
	for i := first; i < len(found); i += stride {
		some = append(some, found[i])
	}
	return some
}

// TestCrashWhileOpening loses power before some operations of a start and of a clean close,
// and again during some of the next starts. No start may report damage, and everything
// acknowledged must be stored. TestCrashWhileOpeningExhaustive (make exhaustive) loses it before
// every operation.
func TestCrashWhileOpening(t *testing.T) {
	long(t)
	t.Parallel()
	crashOpening(t, 4)
}

func TestCrashWhileOpeningExhaustive(t *testing.T) {
	long(t)
	t.Parallel()
	crashOpening(t, 1)
}

// crashOpening tests every stride-th crash.
func crashOpening(t *testing.T, stride int) {
	for name, s := range damageScenes(t) {
		if s.readers {
			continue
		}
		want := s.states[len(s.states)-1]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reopen := func(fs vfs.FS) {
				o := pebblestore.Options{FS: fs, MemTableBytes: 64 << 10}
				st, err := pebblestore.Open(dataDir, o)
				if err != nil {
					t.Errorf("Open: %v", err)
					return
				}
				mustClose(t, st)
			}
			found := crashesOf(s.fs.CrashClone(vfs.CrashCloneCfg{}), []int{0, 50, 100}, reopen)
			holds := func(p crashPoint) {
				t.Helper()
				if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: p.fs}); err != nil {
					t.Errorf("%s: %v", p.at, err)
					return
				}
				st, err := pebblestore.Open(dataDir, pebblestore.Options{FS: p.fs})
				if err != nil {
					t.Errorf("%s: %v", p.at, err)
					return
				}
				defer mustClose(t, st)
				if mustDump(t, st) != want {
					t.Errorf("%s: acknowledged readings are missing", p.at)
				}
			}
			twice := 0
			for i, p := range strided(t, found, stride) {
				if i%(40/stride) == 0 {
					for j, again := range crashesOf(p.fs.CrashClone(vfs.CrashCloneCfg{}), []int{50}, reopen) {
						if j%(5*stride) == 0 {
							again.at = p.at + ", then " + again.at
							holds(again)
							twice++
						}
					}
				}
				holds(p)
			}
			t.Logf("%d crashes, %d of two starts", len(found), twice)
			if len(found) < 100 || twice < 20/stride {
				t.Errorf("%d crashes, %d of two starts, want more", len(found), twice)
			}
		})
	}
}

// earlier returns a copy of a store with 20 readings of 3 devices, written by a version of
// Pulsegate that did not list every file. testdata/earlier holds one that was closed, one
// that was killed, and a backup of it.
func earlier(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "earlier", name))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openEarlier(t *testing.T, dir string) {
	t.Helper()
	if _, err := pebblestore.Check(context.Background(), dir, pebblestore.CheckOptions{}); err != nil {
		t.Error(err)
	}
	s, err := pebblestore.Open(dir, pebblestore.Options{MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, s, "ppg-0") + count(t, s, "ppg-1") + count(t, s, "ppg-2"); got != 20 {
		t.Errorf("there are %d records, want 20", got)
	}
	mustClose(t, s)
}

// TestEarlierVersion opens stores of the earlier version. From then on they have a list.
func TestEarlierVersion(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"closed":  func(string) error { return nil },
		"crashed": func(string) error { return nil },
		// The earlier version had no list while a store was being opened.
		"crashed while it was being opened": func(dir string) error { return os.Remove(filepath.Join(dir, "CHECKSUMS")) },
		// A list of the current version, after a downgrade to the earlier one.
		"closed, LISTED is there": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "LISTED"), []byte("The files of this store are listed in CHECKSUMS. If that is missing, files were lost.\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind, _, _ := strings.Cut(strings.ReplaceAll(name, ",", ""), " ")
			dir := earlier(t, kind)
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			openEarlier(t, dir)
			openEarlier(t, dir)
			for _, list := range []string{"CHECKSUMS", "LISTED"} {
				if err := os.Rename(filepath.Join(dir, list), filepath.Join(dir, "kept")); err != nil {
					t.Fatal(err)
				}
				_, err := pebblestore.Open(dir, pebblestore.Options{MinFreeBytes: -1})
				wantDamage(t, "Open", list, err)
				if err := os.Rename(filepath.Join(dir, "kept"), filepath.Join(dir, list)); err != nil {
					t.Fatal(err)
				}
			}
			openEarlier(t, dir)
		})
	}
}

// TestEarlierBackup restores a backup of the earlier version.
func TestEarlierBackup(t *testing.T) {
	from, dir := earlier(t, "backup"), filepath.Join(t.TempDir(), "restored")
	if _, err := pebblestore.Restore(context.Background(), from, dir, pebblestore.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	openEarlier(t, dir)
	if _, err := pebblestore.Open(from, pebblestore.Options{}); !errors.Is(err, pebblestore.ErrBackup) {
		t.Errorf("Open of the backup returns %v, want ErrBackup", err)
	}
}

// TestEarlierVersionDamaged opens stores of the earlier version that have lost logs.
func TestEarlierVersionDamaged(t *testing.T) {
	for _, tt := range []struct {
		kind, file string
		change     func(file string) error
	}{
		{"closed", "000009.log", os.Remove},
		{"closed", "000009.log", func(file string) error { return os.Truncate(file, 0) }},
		{"closed", "MANIFEST-000006", func(file string) error { return os.Truncate(file, 153) }},
		{"closed", "000011.log", func(file string) error { return os.WriteFile(file, []byte("put back"), 0o600) }},
		{"crashed", ".log", func(file string) error { return os.Remove(filepath.Join(filepath.Dir(file), "000007.log")) }},
		{"crashed", "000007.log", func(file string) error { return os.Truncate(file, 0) }},
		{"crashed", "000007.log", func(file string) error { // a later log exists, so this one must have an end mark
			return os.WriteFile(filepath.Join(filepath.Dir(file), "000011.log"), nil, 0o600)
		}},
		{"backup", "000009.log", os.Remove},
		{"backup", "000009.log", func(file string) error { return os.WriteFile(file, []byte("more"), 0o600) }},
	} {
		dir := earlier(t, tt.kind)
		if err := tt.change(filepath.Join(dir, tt.file)); err != nil {
			t.Fatal(err)
		}
		_, err := pebblestore.Open(dir, pebblestore.Options{MinFreeBytes: -1})
		wantDamage(t, "Open", tt.file, err)
		_, err = pebblestore.Check(context.Background(), dir, pebblestore.CheckOptions{})
		wantDamage(t, "Check", tt.file, err)
		if !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%+v", tt)
		}
	}
}
