package pebblestore_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

var (
	flipsPerFile = flag.Int("flips", 15, "how many bytes of each file TestEveryByte damages; 0: all")
	flipsSeed    = flag.Uint64("flips.seed", 0, "seed of TestEveryByte; 0: a new one")
)

// everyKind returns a store with a file of every kind, closed or after a loss of power.
func everyKind(t *testing.T, closed bool) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	for k := range int64(2) { // the second start writes the first one's log to a table
		s := mustOpen(t, pebblestore.Options{FS: disk})
		for i := range int64(3) {
			mustAppend(t, s, shifted(manyEntries(4), 100*k+10*i)...)
		}
		if k == 1 && !closed {
			disk = disk.CrashClone(vfs.CrashCloneCfg{})
		}
		mustClose(t, s)
	}
	writeFile(t, disk, path.Join(dataDir, "ERASING"),
		pebblestore.WithSum("pulsegate erasure 1 purge\ndevice dev-1\nreadings 7\n"))
	if closed {
		try(t, pebblestore.List(disk, dataDir, "closed"))
	}
	return disk
}

// TestEveryByte changes bytes of a store, one at a time, in one bit or several, and requires
// that Check finds each and names the file. With -flips 0 it changes every byte.
func TestEveryByte(t *testing.T) {
	long(t)
	for name, closed := range map[string]bool{"closed": true, "crashed": false} {
		t.Run(name, func(t *testing.T) { changeBytes(t, closed, func(string) int { return *flipsPerFile }) })
	}
}

// changeBytes changes as many bytes of each file of a store as some returns; 0 means all.
func changeBytes(t *testing.T, closed bool, some func(file string) int) {
	seed := cmp.Or(*flipsSeed, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := everyKind(t, closed)
	kinds := map[string]int{}
	for _, file := range slices.Sorted(maps.Keys(files(t, fs))) {
		text := files(t, fs)[file]
		full := path.Join(dataDir, file)
		offsets := rng.Perm(len(text))
		if n := some(file); n > 0 {
			offsets = offsets[:min(len(offsets), n)]
		}
		for _, offset := range offsets {
			mask := byte(1) << rng.IntN(8)
			if closed && rng.IntN(2) == 0 {
				mask = byte(1 + rng.IntN(255))
			}
			damage(t, fs, full, offset, string([]byte{mask}))
			_, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
			damage(t, fs, full, offset, string([]byte{mask}))
			if !closed && err == nil && meaningless(file, text, offset, mask) {
				kinds["meaningless"]++
				continue
			}
			kinds[kindOf(file)]++
			if err == nil || !strings.Contains(err.Error(), file) ||
				!errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrFormat) {
				t.Errorf("seed %d: byte %d of %d of %s changed by %#x: Check returns %v, want damage of that file",
					seed, offset, len(text), file, mask, err)
			}
		}
	}
	t.Logf("seed %d: bytes changed by kind of file: %v", seed, kinds)
	for _, kind := range []string{"sst", "log", "MANIFEST", "OPTIONS", "PULSEGATE", "CHECKSUMS", "ERASING"} {
		if kinds[kind] == 0 {
			t.Errorf("no file of kind %s was changed", kind)
		}
	}
	if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); err != nil {
		t.Errorf("the store has changed: %v", err)
	}
}

// meaningless reports whether a byte of a store that was not closed may have any value: one
// of a file that the next start removes, or one after the last record of a log. The version may be
// the next one, as after a crash in the midst of an upgrade.
func meaningless(file, text string, offset int, mask byte) bool {
	switch kindOf(file) {
	case "PULSEGATE":
		return text[offset] == '2' && text[offset]^mask == '3'
	case "OPTIONS", "MANIFEST": // of the previous start
		return file == "OPTIONS-000003" || file == "MANIFEST-000001"
	case "log":
		ends := pebblestore.RecordEnds(file, []byte(text))
		return offset >= slices.Max(append(ends, 0))
	}
	return false
}

func kindOf(file string) string {
	if _, suffix, ok := strings.Cut(file, "."); ok && !strings.HasPrefix(file, "marker") {
		return suffix
	}
	kind, _, _ := strings.Cut(file, "-")
	return kind
}
