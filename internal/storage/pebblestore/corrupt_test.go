package pebblestore_test

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// closedWithTables returns a store that was closed, with readings in tables.
func closedWithTables(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: disk, MemTableBytes: 256 << 10})
	for k := range int64(200) {
		mustAppend(t, s, shifted(manyEntries(100), 1000*k)...)
	}
	try(t, pebblestore.Seal(s))
	pebblestore.CompactAll(s)
	mustClose(t, s)
	return disk
}

// flip changes one bit of a file.
func flip(t *testing.T, fs vfs.FS, name string, offset int) { damage(t, fs, name, offset, "\x10") }

// damage flips the bits of a file that are set in mask.
func damage(t *testing.T, fs vfs.FS, name string, offset int, mask string) {
	t.Helper()
	text, err := readFile(fs, name)
	try(t, err)
	b := []byte(text)
	for i := range min(len(mask), len(b)-offset) {
		b[offset+i] ^= mask[i]
	}
	writeFile(t, fs, name, string(b))
}

// namesWith returns the files of a store whose names begin or end with part.
func namesWith(t *testing.T, fs vfs.FS, part string) []string {
	var names []string
	for name := range files(t, fs) {
		if strings.HasSuffix(name, part) || strings.HasPrefix(name, part) {
			names = append(names, path.Join(dataDir, name))
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		t.Fatalf("the store has no file %q", part)
	}
	return names
}

func wantDamage(t *testing.T, what, name string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), path.Base(name)) {
		t.Errorf("%s of a damaged %s returns %v, want ErrCorrupt with the file", what, name, err)
	}
}

func size(t *testing.T, fs vfs.FS, name string) int {
	t.Helper()
	info, err := fs.Stat(name)
	try(t, err)
	return int(info.Size())
}

// TestDamagedLookup settles late readings with damaged tables. Readings that must be compared
// with damaged data are Unreadable, the others of their groups are settled, and stored
// readings do not change.
func TestDamagedLookup(t *testing.T) {
	long(t)
	disk := closedWithTables(t)
	s := mustOpen(t, pebblestore.Options{FS: disk, ReadOnly: true})
	before := mustDump(t, s)
	mustClose(t, s)
	whole := copyFS(t, disk)
	for _, name := range namesWith(t, disk, ".sst") {
		flip(t, disk, name, size(t, disk, name)*2/3)
	}
	s = mustOpen(t, pebblestore.Options{FS: disk, OnFatal: func(m string) { t.Errorf("Fatal was called: %s", m) }})
	if err := s.Degraded(); err != nil {
		t.Fatalf("Open has found the damage, so there are no look-ups to test: %v", err)
	}
	outcomes := map[storage.Outcome]int{}
	for k := range int64(40) {
		late := shifted(manyEntries(100), 1000*k) // each of them is stored
		fresh := entry("new", k, 1)
		mustAppend(t, s, append(slices.Clone(late), fresh)...)
		wantOutcome(t, fresh, storage.Stored)
		for _, e := range late {
			if outcomes[e.Outcome]++; e.Outcome != storage.Duplicate && e.Outcome != storage.Unreadable {
				wantOutcome(t, e, storage.Unreadable)
			}
		}
	}
	t.Logf("%d duplicates, %d unreadable", outcomes[storage.Duplicate], outcomes[storage.Unreadable])
	if outcomes[storage.Unreadable] == 0 || outcomes[storage.Duplicate] == 0 {
		t.Errorf("the outcomes are %v, want duplicates and unreadable ones", outcomes)
	}
	if err := s.Ready(); err != nil {
		t.Errorf("Ready returns %v", err)
	}
	wantDegraded(t, s, ".sst")
	mustClose(t, s)

	// After the tables are restored, nothing has changed.
	for _, name := range namesWith(t, whole, ".sst") {
		text, err := readFile(whole, name)
		try(t, err)
		writeFile(t, disk, name, text)
	}
	s = mustOpen(t, pebblestore.Options{FS: disk})
	defer mustClose(t, s)
	if withoutDevice(mustDump(t, s), "new") != before {
		t.Error("the readings stored before have changed")
	}
	if got := count(t, s, "new"); got != 40 {
		t.Errorf("%d new readings are stored, want 40", got)
	}
}
