package pebblestore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestRoom stops a load at several points and measures how many more bytes the store writes
// until it is idle. These must not exceed what neededBytes returned. It continues until a
// tenth of that was needed once. TestRoomExhaustive (make exhaustive) has more rounds.
func TestRoom(t *testing.T) {
	long(t)
	fillRoom(t, 3)
}

func TestRoomExhaustive(t *testing.T) {
	long(t)
	fillRoom(t, 20)
}

func fillRoom(t *testing.T, rounds int) {
	fs := &sizedFS{FS: vfs.NewMem(), sizes: map[string]int64{}}
	s := mustOpen(t, pebblestore.Options{FS: fs, MemTableBytes: 64 << 10})
	defer mustClose(t, s)
	rng := rand.New(rand.NewPCG(6, 2))
	const enough = 0.1
	closest := 0.0
	for round := 0; round < rounds || closest < enough; round++ {
		if round == 1000 {
			t.Fatalf("at most %.0f %% of the reserve was used, want at least 10 %%", 100*closest)
		}
		for range 1 + rng.IntN(80) {
			var group []*storage.Entry
			for i := range 40 {
				group = append(group, entry(fmt.Sprintf("dev-%d", rng.IntN(500)), rng.Int64N(1<<40), vitals.Value(i)))
			}
			mustAppend(t, s, group...)
		}
		reserve, err := pebblestore.TableReserve(s)
		try(t, err)
		before := fs.rest()
		polltest.Until(t, "the store rests", func() bool { return pebblestore.Resting(s) })
		more := fs.peak() - before
		if more > reserve {
			t.Errorf("the store reserved %d bytes, and used %d", reserve, more)
		}
		closest = max(closest, float64(more)/float64(reserve))
	}
	t.Logf("%d bytes were written; at most %.0f %% of the reserve was used", fs.total(), 100*closest)
}

// A sizedFS adds up the sizes of all files.
type sizedFS struct {
	vfs.FS
	mu        sync.Mutex
	sizes     map[string]int64
	now, most int64
	written   int64
}

// rest returns the size of all files, and resets the peak.
func (fs *sizedFS) rest() int64 {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.most = fs.now
	return fs.now
}

// total returns the number of bytes written so far.
func (fs *sizedFS) total() int64 {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.written
}

func (fs *sizedFS) peak() int64 {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.most
}

func (fs *sizedFS) add(name string, n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.sizes[name] += n
	fs.now += n
	fs.written += max(n, 0)
	fs.most = max(fs.most, fs.now)
}

func (fs *sizedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return f, err
	}
	return &sizedFile{f, fs, name}, nil
}

func (fs *sizedFS) Remove(name string) error {
	err := fs.FS.Remove(name)
	if err == nil {
		fs.mu.Lock()
		fs.now -= fs.sizes[name]
		delete(fs.sizes, name)
		fs.mu.Unlock()
	}
	return err
}

type sizedFile struct {
	vfs.File
	fs   *sizedFS
	name string
}

func (f *sizedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.fs.add(f.name, int64(n))
	return n, err
}
