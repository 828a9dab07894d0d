package pebblestore_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// scrubTime is the duration of a pass in these tests. The scrub starts scrubDelay after Open.
const (
	scrubTime  = 8 * time.Minute
	scrubDelay = scrubTime / 100
)

// written are directories that writeTables has filled, by the number of tables.
var written struct {
	mu   sync.Mutex
	dirs map[int]vfs.FS
}

// scrubStore opens a store with tables of more than two chunks each. With four, a compaction
// would start. The directory may have other readings.
func scrubStore(t *testing.T, fs vfs.FS, log *slog.Logger, tables int) *pebblestore.Store {
	t.Helper()
	o := pebblestore.Options{FS: fs, MinFreeBytes: -1, Log: log}
	if _, err := fs.Stat(dataDir); err == nil {
		s := mustOpen(t, o)
		writeTables(t, fs, s, tables)
		return s
	}
	// Writing takes longer than most of the tests, so a directory is written once and copied.
	written.mu.Lock()
	defer written.mu.Unlock()
	if written.dirs[tables] == nil {
		dir := vfs.NewMem()
		s := mustOpen(t, pebblestore.Options{FS: dir, MinFreeBytes: -1})
		writeTables(t, dir, s, tables)
		mustClose(t, s)
		if written.dirs == nil {
			written.dirs = map[int]vfs.FS{}
		}
		written.dirs[tables] = dir
	}
	_, err := vfs.Clone(written.dirs[tables], fs, dataDir, dataDir, vfs.CloneSync)
	try(t, err)
	return mustOpen(t, o)
}

// writeTables writes tables of more than two chunks each.
func writeTables(t *testing.T, fs vfs.FS, s *pebblestore.Store, tables int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	for k := range tables {
		var group []*storage.Entry
		for i := range 60_000 {
			ms := int64(60_000*k + i)
			e := entry(strings.Repeat("d", 1+i%50), 1+ms, 1)
			for sign := range vitals.Sign(5) {
				e = with(e, sign, vitals.Value(rng.IntN(60_000)))
			}
			group = append(group, e)
		}
		mustAppend(t, s, group...)
		try(t, pebblestore.Seal(s), pebblestore.Flush(s))
	}
	for _, name := range pebblestore.TableFiles(s) {
		if n := size(t, fs, path.Join(dataDir, name)); n < 512<<10 && n > 64<<10 {
			t.Fatalf("table %s has %d bytes, want more than two chunks", name, n)
		}
	}
}

// scrub runs Scrub until stop is called.
func scrub(t *testing.T, s *pebblestore.Store) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { s.Scrub(ctx, scrubTime) })
	return func() {
		cancel()
		done.Wait()
	}
}

// wantBad compares the tables that failed with the expected numbers.
func wantBad(t *testing.T, s *pebblestore.Store, damaged, unreadable int64) {
	t.Helper()
	if st := pebblestore.Scrubbed(s); st.DamagedTables != damaged || st.UnreadableTables != unreadable {
		t.Errorf("%d tables are damaged and %d unreadable, want %d and %d", st.DamagedTables, st.UnreadableTables,
			damaged, unreadable)
	}
}

func totalSize(t *testing.T, fs vfs.FS, s *pebblestore.Store) (n int64) {
	t.Helper()
	for _, name := range pebblestore.TableFiles(s) {
		n += int64(size(t, fs, path.Join(dataDir, name)))
	}
	return n
}

// TestScrub flips a bit in a table of an open store that nothing reads. The next pass must
// report it, once, and the store must still accept readings. After the table is restored, the
// following pass must find nothing.
//
// Seen to fail with the mutants scrub-nothing and skip-table-check.
func TestScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		var log bytes.Buffer
		s := scrubStore(t, fs, slog.New(slog.NewTextHandler(&log, nil)), 3)
		defer mustClose(t, s)
		defer scrub(t, s)()

		time.Sleep(scrubTime)
		first := pebblestore.Scrubbed(s)
		if total := totalSize(t, fs, s); first.ScrubbedBytes < total || first.ScrubbedBytes > 3*total {
			t.Errorf("a pass read %d bytes of %d", first.ScrubbedBytes, total)
		}
		if at := time.UnixMilli(first.ScrubEndedUnixMs); time.Since(at) > scrubTime ||
			time.Since(at) < scrubTime/8-scrubDelay {
			t.Errorf("after %v, a pass ended %v ago", scrubTime, time.Since(at))
		}
		wantBad(t, s, 0, 0)
		if err := s.Degraded(); err != nil || first.Damaged != 0 {
			t.Fatalf("an undamaged store was reported as damaged %d times: %v", first.Damaged, err)
		}

		bad := pebblestore.TableFiles(s)[1]
		whole, err := readFile(fs, path.Join(dataDir, bad))
		try(t, err)
		flip(t, fs, path.Join(dataDir, bad), len(whole)/3)
		time.Sleep(scrubTime)
		wantDegraded(t, s, bad)
		wantBad(t, s, 1, 0)
		if st := pebblestore.Scrubbed(s); st.Damaged != 1 || st.ScrubEndedUnixMs == first.ScrubEndedUnixMs {
			t.Errorf("%d files are damaged, and the pass ended at %d, want one and later than at %d", st.Damaged,
				st.ScrubEndedUnixMs, first.ScrubEndedUnixMs)
		}
		if text := log.String(); !strings.Contains(text, bad) || strings.Contains(text, "ddd") {
			t.Errorf("the log contains a device, or not the file %s:\n%s", bad, text)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("Ready returns %v", err)
		}
		fresh := entry("ddd", 1<<40, 1)
		mustAppend(t, s, fresh)
		wantOutcome(t, fresh, storage.Stored)

		writeFile(t, fs, path.Join(dataDir, bad), whole)
		time.Sleep(scrubTime)
		wantBad(t, s, 0, 0)
	})
}

// TestScrubLost removes a table of an open store.
func TestScrubLost(t *testing.T) {
	long(t)
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s := scrubStore(t, fs, nil, 2)
		defer s.Close() // its error does not matter here
		lost := pebblestore.TableFiles(s)[1]
		try(t, fs.Remove(path.Join(dataDir, lost)))
		defer scrub(t, s)()
		time.Sleep(scrubTime)
		wantBad(t, s, 1, 0)
		wantDegraded(t, s, lost)
	})
}

// TestScrubOpenFiles damages files other than tables of an open store.
func TestScrubOpenFiles(t *testing.T) {
	long(t)
	for _, kind := range []string{"MANIFEST-", "OPTIONS-", "CHECKSUMS", "LISTED", "PULSEGATE"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewMem()
				s := scrubStore(t, fs, nil, 2)
				defer s.Close() // its error does not matter here
				mustAppend(t, s, entry("d", 1<<40, 1))
				names := namesWith(t, fs, kind)
				name := names[len(names)-1]
				flip(t, fs, name, size(t, fs, name)/2)
				defer scrub(t, s)()
				time.Sleep(2 * scrubDelay)
				wantDegraded(t, s, path.Base(name))
				if n := pebblestore.Scrubbed(s).Damaged; n != 1 {
					t.Errorf("%d files are damaged, want 1", n)
				}
			})
		})
	}
}

// TestScrubManifest lets the manifest grow to four chunks. It must be read at the rate of tables, and
// a backup must not wait for all of it. Damage at its end must be found.
//
// Seen to fail when the manifest was read at once.
func TestScrubManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &watchedFS{FS: vfs.NewMem()}
		s := scrubStore(t, fs, nil, 1)
		defer s.Close() // its error does not matter here
		names := namesWith(t, fs, "MANIFEST-")
		name := names[len(names)-1]
		old, err := readFile(fs, name)
		try(t, err)
		var grown bytes.Buffer
		w := record.NewWriter(&grown)
		for r := record.NewReader(strings.NewReader(old), 0); ; {
			in, err := r.Next()
			if err != nil {
				break
			}
			b, err := io.ReadAll(in)
			if err == nil {
				_, err = w.WriteRecord(b)
			}
			try(t, err)
		}
		for grown.Len() < 1<<20 {
			_, err := w.WriteRecord(make([]byte, 8<<10))
			try(t, err)
		}
		try(t, w.Close())
		writeFile(t, fs, name, grown.String())
		defer scrub(t, s)()
		time.Sleep(scrubDelay + time.Second)
		synctest.Wait()
		if n := pebblestore.Scrubbed(s).ScrubbedBytes; n == 0 || n > 1<<19 || fs.open.Load() != 0 {
			t.Errorf(
				"a second after its start the scrub has read %d bytes, and has %d tables open; want two chunks of the manifest", n,
				fs.open.Load())
		}
		flip(t, fs, name, grown.Len()-100)
		// The tree does not know what was added. The scrub begins again afterwards.
		if _, err := s.Backup(); err == nil {
			t.Error("Backup has copied a manifest that it does not know")
		}
		if n := pebblestore.Scrubbed(s).ScrubbedBytes; n > 1<<19 {
			t.Errorf("a backup waited until the scrub had read %d bytes", n)
		}
		time.Sleep(scrubTime)
		wantDegraded(t, s, path.Base(name))
		if st := pebblestore.Scrubbed(s); st.Damaged != 1 || st.ScrubEndedUnixMs == 0 {
			t.Errorf("%d files are damaged, and the pass ended at %d, want one, and an end", st.Damaged, st.ScrubEndedUnixMs)
		}
	})
}

// TestScrubFault makes all tables unreadable for a while, which is not damage.
//
// Seen to fail with the mutant fault-is-damage.
func TestScrubFault(t *testing.T) {
	long(t)
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		fs := &watchedFS{FS: vfs.NewMem(), read: func(string) error {
			if failing.Load() {
				return syscall.EIO
			}
			return nil
		}}
		s := scrubStore(t, fs, nil, 3)
		defer mustClose(t, s)
		failing.Store(true)
		defer scrub(t, s)()
		time.Sleep(scrubTime)
		wantBad(t, s, 0, 3)
		failing.Store(false)
		time.Sleep(time.Hour)
		wantBad(t, s, 0, 0)
		if err := s.Degraded(); err != nil || pebblestore.Scrubbed(s).Damaged != 0 ||
			pebblestore.Scrubbed(s).ScrubEndedUnixMs == 0 {
			t.Errorf("Degraded returns %v; %+v", err, pebblestore.Scrubbed(s))
		}
		if n := fs.open.Load(); n != 0 {
			t.Errorf("%d files of tables are left open", n)
		}
	})
}

// TestScrubRemoved removes the table that is being read by a compaction, and returns damaged
// bytes for it. The scrub must close it immediately and report nothing.
func TestScrubRemoved(t *testing.T) {
	long(t)
	synctest.Test(t, func(t *testing.T) {
		fs := &watchedFS{FS: vfs.NewMem()}
		s := scrubStore(t, fs, nil, 2)
		defer mustClose(t, s)
		var compacted atomic.Bool
		reads := 0
		fs.read = func(string) error {
			if reads++; reads == 2 {
				pebblestore.CompactAll(s)
				compacted.Store(true)
			}
			return nil
		}
		fs.spoil = func(string) byte {
			if reads == 2 {
				return 1
			}
			return 0
		}
		before := pebblestore.TableFiles(s)
		defer scrub(t, s)()
		time.Sleep(scrubTime)
		if !compacted.Load() ||
			slices.ContainsFunc(pebblestore.TableFiles(s), func(f string) bool { return slices.Contains(before, f) }) {
			t.Fatal("no table was removed")
		}
		wantBad(t, s, 0, 0)
		if err := s.Degraded(); err != nil || pebblestore.Scrubbed(s).ScrubEndedUnixMs == 0 {
			t.Errorf("Degraded returns %v; %+v", err, pebblestore.Scrubbed(s))
		}
	})
}

// TestScrubLetsGo removes a table between two reads of it. The scrub must close the file,
// which frees its space, before it reaches the end of the table.
func TestScrubLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &watchedFS{FS: vfs.NewMem()}
		s := scrubStore(t, fs, nil, 2)
		defer mustClose(t, s)
		defer scrub(t, s)()
		time.Sleep(scrubDelay + time.Millisecond)
		synctest.Wait()
		read := pebblestore.Scrubbed(s).ScrubbedBytes
		if fs.open.Load() != 1 {
			t.Fatalf("%d files are open and %d bytes were read; want one, after its first chunk", fs.open.Load(), read)
		}
		pebblestore.CompactAll(s)
		time.Sleep(2 * time.Second)
		if after := pebblestore.Scrubbed(s).ScrubbedBytes; fs.open.Load() != 0 || after != read {
			t.Errorf("%d files are open, and %d bytes were read of a removed table", fs.open.Load(), after-read)
		}
		wantBad(t, s, 0, 0)
	})
}

// TestScrubYields erases a device and makes a backup while a table is being read. Neither may
// begin before the scrub has closed the file, and the scrub must wait for its end.
//
// Seen to fail with the mutant scrub-during-erasure.
func TestScrubYields(t *testing.T) {
	for name, upkeep := range map[string]func(*testing.T, *pebblestore.Store, func()){
		"erasure": func(t *testing.T, s *pebblestore.Store, _ func()) {
			_, err := s.Erase(mustName(erasedDevice))
			try(t, err)
		},
		"backup": func(t *testing.T, s *pebblestore.Store, during func()) {
			b, err := s.Backup()
			try(t, err)
			during()
			try(t, b.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "backup" {
				long(t)
			}
			synctest.Test(t, func(t *testing.T) {
				var began, held atomic.Bool
				var readThen atomic.Int64 // by the scrub; it continues before the operation returns
				var store atomic.Pointer[pebblestore.Store]
				fs := &watchedFS{FS: vfs.NewMem()}
				fs.create = func(name string) {
					if name == "ERASING.new" || strings.HasPrefix(name, "marker.") {
						began.Store(true)
						held.CompareAndSwap(false, fs.open.Load() != 0)
						if s := store.Load(); s != nil {
							readThen.Store(pebblestore.Scrubbed(s).ScrubbedBytes)
						}
					}
				}
				s := mustOpen(t, pebblestore.Options{FS: fs, MinFreeBytes: -1})
				fill(t, s, 0, 1)
				mustClose(t, s)
				s = scrubStore(t, fs, nil, 2)
				defer mustClose(t, s)
				defer scrub(t, s)()
				// A chunk takes a second.
				time.Sleep(scrubDelay + time.Millisecond)
				synctest.Wait()
				read := pebblestore.Scrubbed(s).ScrubbedBytes
				if fs.open.Load() != 1 {
					t.Fatalf("%d files are open, want one", fs.open.Load())
				}
				began.Store(false)
				store.Store(s)
				upkeep(t, s, func() {
					time.Sleep(scrubTime)
					synctest.Wait()
					readThen.Store(pebblestore.Scrubbed(s).ScrubbedBytes)
				})
				if !began.Load() {
					t.Fatal("the operation has not begun")
				}
				if n := readThen.Load() - read; held.Load() || n != 0 {
					t.Errorf("meanwhile, the scrub read %d bytes; it had a file open: %t", n, held.Load())
				}
				if name == "erasure" {
					wantNoTraces(t, fs)
				}
				time.Sleep(2 * scrubTime)
				if st := pebblestore.Scrubbed(s); st.ScrubEndedUnixMs == 0 || st.Damaged != 0 {
					t.Errorf("the scrub did not continue: %+v", st)
				}
				wantBad(t, s, 0, 0)
			})
		})
	}
}

// TestScrubRestart restarts a store before the end of a pass, cleanly or by a loss of power.
// The scrub must continue where it was.
//
// Seen to fail with the mutant restart-scrub.
func TestScrubRestart(t *testing.T) {
	long(t)
	for _, crash := range []bool{false, true} {
		t.Run(map[bool]string{false: "close", true: "crash"}[crash], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := vfs.NewCrashableMem()
				slow := func(string) error {
					time.Sleep(40 * time.Second) // three tables take longer than three minutes, and one does not
					return nil
				}
				const tables = 3
				s := scrubStore(t, &watchedFS{FS: disk, read: slow}, nil, tables)
				for starts := 1; ; starts++ {
					stop := scrub(t, s)
					time.Sleep(3 * time.Minute)
					ended := pebblestore.Scrubbed(s).ScrubEndedUnixMs != 0
					crashed := disk.CrashClone(vfs.CrashCloneCfg{})
					stop()
					mustClose(t, s)
					if ended {
						if starts < 2 {
							t.Error("the first start has read all tables")
						}
						return
					}
					if starts > tables {
						t.Fatalf("after %d starts, no pass has ended", starts)
					}
					if crash {
						disk = crashed
					}
					s = mustOpen(t, pebblestore.Options{FS: &watchedFS{FS: disk, read: slow}, MinFreeBytes: -1})
				}
			})
		})
	}
}

// TestScrubRemembers restarts a store in which a table was found damaged. The table must be
// verified first, before the next pass is due.
//
// Seen to fail with the mutant forget-damaged-tables.
func TestScrubRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s := scrubStore(t, fs, nil, 2)
		bad := pebblestore.TableFiles(s)[1]
		name := path.Join(dataDir, bad)
		flip(t, fs, name, size(t, fs, name)/3)
		stop := scrub(t, s)
		time.Sleep(scrubTime / 2)
		stop()
		wantBad(t, s, 1, 0)
		mustClose(t, s)

		s = mustOpen(t, pebblestore.Options{FS: fs, MinFreeBytes: -1})
		if err := s.Degraded(); err != nil {
			t.Fatalf("Open has found the damage: %v", err)
		}
		stop = scrub(t, s)
		time.Sleep(scrubTime / 8)
		wantBad(t, s, 1, 0)
		wantDegraded(t, s, bad)
		// Without its file, the scrub starts a new pass.
		stop()
		mustClose(t, s)
		writeFile(t, fs, path.Join(dataDir, "SCRUB"), "nonsense")
		s = mustOpen(t, pebblestore.Options{FS: fs, MinFreeBytes: -1})
		defer mustClose(t, s)
		defer scrub(t, s)()
		time.Sleep(scrubTime)
		wantBad(t, s, 1, 0)
	})
}

// TestScrubBesideAll scrubs with a short period during writes, compactions, erasures and a
// backup.
func TestScrubBesideAll(t *testing.T) {
	fs := &watchedFS{FS: vfs.NewMem()}
	s := mustOpen(t, pebblestore.Options{FS: fs, MemTableBytes: 64 << 10, MinFreeBytes: -1})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
	}()
	all.Go(func() { s.Scrub(ctx, 100*time.Millisecond) })
	all.Go(func() {
		for k := int64(0); ctx.Err() == nil; k++ {
			mustAppend(t, s, shifted(manyEntries(50), 1000*k)...)
			time.Sleep(time.Millisecond) // leaves time for erasures
		}
	})
	for k := range int64(3) {
		fill(t, s, 10*k, 10*k+10)
		_, err := s.Erase(mustName(erasedDevice))
		try(t, err)
		wantNoTraces(t, fs)
		b, err := s.Backup()
		try(t, err)
		try(t, b.Close())
		pebblestore.CompactAll(s)
	}
	cancel()
	all.Wait()
	if err := s.Degraded(); err != nil {
		t.Errorf("an undamaged store was reported as damaged: %v", err)
	}
	wantBad(t, s, 0, 0)
	mustClose(t, s)
	if n := fs.open.Load(); n != 0 {
		t.Errorf("%d files are left open", n)
	}
}
