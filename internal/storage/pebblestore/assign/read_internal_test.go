package assign

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// openMemory opens a database in memory, which the test closes.
func openMemory(t *testing.T) *pebble.DB {
	t.Helper()
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// readCounted reads all assignments of a device, and returns the number of steps that the database made.
func readCounted(t *testing.T, db *pebble.DB, device vitals.Name) (all []storage.Assignment, steps int) {
	t.Helper()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: layout.AppendAssignPrefix(nil, &device),
		UpperBound: []byte{layout.SubjectPrefix}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = it.Close() }()
	if all, err = read(it, storage.MaxStoredAssignments); err != nil {
		t.Fatal(err)
	}
	stats := it.Stats()
	return all, stats.ForwardStepCount[pebble.InternalIterCall]
}

// Messages without a patient in descending time, as of a gateway that sends its newest readings first, cost no more
// than others. Seen to fail when the key of a span of nobody has its beginning.
func TestWriteEarlierNobody(t *testing.T) {
	db := openMemory(t)
	device, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	const n, newest = 5000, 1_000_000
	r := &vitals.Reading{Device: device}
	r.Values.Set(vitals.HeartRate, 60)
	e := &storage.Entry{Reading: r, Claim: &storage.Claim{Assign: true}}
	all := []storage.Assignment{{Device: device, Subject: "P", FromUnixMs: newest + 1, ToUnixMs: storage.OpenEnd}}
	for i := range int64(n) {
		r.TimeUnixMs = newest - i
		w := storage.NewWearers(all)
		w.Settle(e, true)
		b := db.NewBatch()
		if err := Write(b, w); err != nil {
			t.Fatal(err)
		}
		if b.Count() > 1 {
			t.Fatalf("message %d: %d operations, want 1", i, b.Count())
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		all = storetest.Changed(w)
	}
	got, steps := readCounted(t, db, device)
	want := storage.Assignment{Device: device, FromUnixMs: newest - n + 1, ToUnixMs: newest + 1, By: storage.ByHL7,
		NamedUnixMs: newest}
	if key := layout.AppendAssignKey(nil, &device, newest); !bytes.Equal(Key(&want), key) {
		t.Errorf("the key is %x, want %x", Key(&want), key)
	}
	if len(got) != 1 || !got[0].Same(want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if steps > 10 {
		t.Errorf("read made %d steps", steps)
	}
}

// Reading an assignment that thousands of messages have named costs no more than reading another. Seen to fail when
// read calls Next.
func TestReadNamedAgain(t *testing.T) {
	db := openMemory(t)
	device, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	all := []storage.Assignment{
		{Device: device, Subject: "P", FromUnixMs: 1, ToUnixMs: 100_000, By: storage.ByHL7},
		{Device: device, FromUnixMs: 100_000, ToUnixMs: storage.OpenEnd, By: storage.ByHL7, NamedUnixMs: 100_000},
	}
	for n := range int64(5000) {
		b := db.NewBatch()
		for i := range all {
			all[i].NamedUnixMs = all[i].FromUnixMs + n
			if err := set(b, &all[i], n == 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	got, steps := readCounted(t, db, device)
	if !slices.Equal(got, all) {
		t.Errorf("read %v, want %v", got, all)
	}
	if steps > 10 {
		t.Errorf("read made %d steps", steps)
	}
}
