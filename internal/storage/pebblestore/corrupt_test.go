package pebblestore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// damaged returns a store with tables and a log, either closed or after a loss of power.
// texts are its dumps after each of the last groups.
func damaged(t *testing.T, closed bool) (fs *vfs.MemFS, texts []string) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, pebblestore.Options{FS: disk, MemTableBytes: 256 << 10})
	for k := range int64(200) {
		mustAppend(t, s, shifted(manyEntries(100), 1000*k)...)
	}
	try(t, pebblestore.Seal(s))
	pebblestore.CompactAll(s)
	mustClose(t, s)
	s = mustOpen(t, pebblestore.Options{FS: disk, MemTableBytes: 4 << 20})
	// Groups smaller and larger than a block of the log.
	rng := rand.New(rand.NewPCG(1, 1))
	for k, size := range []int{100, 100, 1500, 100, 2000, 10, 10, 300} {
		mustAppend(t, s, noisy(rng, shifted(manyEntries(size), int64(100_000*(k+1))))...)
		texts = append(texts, mustDump(t, s))
	}
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	if closed {
		return disk, texts
	}
	return crashed, texts
}

// noisy gives readings random values and times of receipt, which take much space in a group.
func noisy(rng *rand.Rand, group []*storage.Entry) []*storage.Entry {
	for _, e := range group {
		e.ReceivedUnixMs = rng.Int64N(1 << 50)
		for sign := range vitals.Sign(vitals.NumBuiltIn) {
			e.Reading.Values.Set(sign, vitals.Value(rng.Uint32N(1<<16)))
		}
	}
	return group
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

// TestDamagedTable flips bits at many offsets of the tables. Check must find each and name
// the file. Reads must return the right result or ErrCorrupt, and other devices must stay
// usable.
func TestDamagedTable(t *testing.T) {
	long(t)
	t.Parallel()
	disk, texts := damaged(t, true)
	want := texts[len(texts)-1]
	rng := rand.New(rand.NewPCG(5, 5))
	refused, right := 0, 0
	for _, name := range namesWith(t, disk, ".sst") {
		size := size(t, disk, name)
		offsets := []int{0, size - 1, size - 20, size - 60}
		for range 12 {
			offsets = append(offsets, rng.IntN(size))
		}
		for _, offset := range offsets {
			fs := copyFS(t, disk)
			flip(t, fs, name, offset)

			report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
			if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), path.Base(name)) {
				t.Errorf("%s, byte %d of %d: Check returns %v, want ErrCorrupt with the file; %+v", name, offset, size, err, report)
			}
			s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs})
			if err != nil {
				wantDamage(t, "Open", name, err)
				refused++
				continue
			}
			text, err := dump(s)
			switch {
			case err != nil:
				wantDamage(t, "reading", name, err)
				refused++
			case text != want:
				t.Errorf("%s, byte %d: damage of a table was not noticed", name, offset)
			default:
				right++
			}
			mustAppend(t, s, entry("new", 1, 1))
			if got := count(t, s, "new"); got != 1 {
				t.Errorf("%s, byte %d: a new device has %d records, want 1", name, offset, got)
			}
			_ = s.Close()
		}
	}
	t.Logf("%d were found, %d did not affect reads", refused, right)
	if refused == 0 {
		t.Error("no read found damage")
	}
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

// TestDamagedLog damages the log at many offsets, by one bit and by several bytes. Open
// must return an error with the log's name. Pebble alone does not: without verifyJournals,
// nearly all damage here loses acknowledged readings. Only damage of several bytes in the
// last record of a store that was not closed may be taken for a torn end.
func TestDamagedLog(t *testing.T) {
	long(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		closed bool
		mask   string
		torn   bool // may be taken for a torn end
	}{
		{"a bit, crashed", false, "\x10", false},
		{"a bit, closed", true, "\x10", false},
		{"some bytes, crashed", false, "\x80 broken \x01", true},
		{"some bytes, closed", true, "\x80 broken \x01", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk, texts := damaged(t, tt.closed)
			last := len(texts) - 1
			log := slices.MaxFunc(namesWith(t, disk, ".log"), strings.Compare)
			end := size(t, disk, log)
			refused, torn := 0, 0
			for offset := 0; offset < end; offset += 797 {
				fs := copyFS(t, disk)
				damage(t, fs, log, offset, tt.mask)
				s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs, ReadOnly: true})
				if err != nil {
					wantDamage(t, "Open", log, err)
					refused++
					continue
				}
				switch text := mustDump(t, s); {
				case tt.torn && text == texts[last-1]:
					torn++
				default:
					t.Errorf("byte %d of %d: the opened store lacks acknowledged readings", offset, end)
				}
				mustClose(t, s)
			}
			t.Logf("%d bytes: %d times rejected, %d times taken for a torn end", end, refused, torn)
			if refused < 70 || tt.torn && torn == 0 {
				t.Error("there were too few cases of damage")
			}
		})
	}
}

// TestDamagedManifest flips every bit of the manifest. Pebble alone would open with
// fewer tables, and delete the others.
func TestDamagedManifest(t *testing.T) {
	long(t)
	disk, texts := damaged(t, false)
	desc, err := pebble.Peek(dataDir, disk)
	try(t, err)
	refused, right := 0, 0
	for offset := range size(t, disk, desc.ManifestFilename) {
		fs := copyFS(t, disk)
		flip(t, fs, desc.ManifestFilename, offset)
		s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs, ReadOnly: true})
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("byte %d: Open returns %v, want ErrCorrupt", offset, err)
			}
			refused++
			continue
		}
		if mustDump(t, s) != texts[len(texts)-1] {
			t.Errorf("byte %d: the opened store lacks acknowledged readings", offset)
		}
		right++
		mustClose(t, s)
	}
	t.Logf("%d times rejected, %d without effect", refused, right)
}

// TestTornLog truncates the log at many lengths, as a crash may do to unsynced bytes. The
// opened store must hold complete groups only.
func TestTornLog(t *testing.T) {
	long(t)
	t.Parallel()
	disk, texts := damaged(t, false)
	log := slices.MaxFunc(namesWith(t, disk, ".log"), strings.Compare)
	whole, err := readFile(disk, log)
	try(t, err)
	found := map[int]bool{}
	for n := len(whole); n > 4096; n -= 2503 {
		fs := copyFS(t, disk)
		writeFile(t, fs, log, whole[:n])
		s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs})
		if err != nil {
			t.Errorf("cut at %d of %d: %v", n, len(whole), err)
			continue
		}
		i := slices.Index(texts, mustDump(t, s))
		if i < 0 && n > 10_000 { // below that, even the first group may be lost
			t.Errorf("cut at %d of %d: the store holds an incomplete group", n, len(whole))
		}
		found[i] = true
		mustClose(t, s)
	}
	if len(found) < 5 {
		t.Errorf("there were %d states after truncation, want at least 5 of %d", len(found), len(texts))
	}
}

// TestDamagedLookup settles late readings with damaged tables. Readings that must be compared
// with damaged data are Unreadable, the others of their groups are settled, and stored
// readings do not change.
func TestDamagedLookup(t *testing.T) {
	long(t)
	disk, texts := damaged(t, true)
	whole := copyFS(t, disk)
	for _, name := range namesWith(t, disk, ".sst") {
		flip(t, disk, name, size(t, disk, name)*2/3)
	}
	s := mustOpen(t, pebblestore.Options{FS: disk, OnFatal: func(m string) { t.Errorf("Fatal was called: %s", m) }})
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
	if err := s.Degraded(); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), ".sst") {
		t.Errorf("Degraded returns %v, want ErrCorrupt with the table", err)
	}
	mustClose(t, s)

	// After the tables are restored, nothing has changed.
	for _, name := range namesWith(t, whole, ".sst") {
		text, err := readFile(whole, name)
		try(t, err)
		writeFile(t, disk, name, text)
	}
	s = mustOpen(t, pebblestore.Options{FS: disk})
	defer mustClose(t, s)
	if withoutDevice(mustDump(t, s), "new") != texts[len(texts)-1] {
		t.Error("the readings stored before have changed")
	}
	if got := count(t, s, "new"); got != 40 {
		t.Errorf("%d new readings are stored, want 40", got)
	}
}
