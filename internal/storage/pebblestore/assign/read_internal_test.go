package assign

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Reading an assignment that thousands of messages have named costs no more than reading another. Seen to fail when
// read calls Next.
func TestReadNamedAgain(t *testing.T) {
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
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
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = it.Close() }()
	it.SetBounds(Key(all[0].Key()), append(Key(all[1].Key()), 0))
	got, err := read(it, 3)
	if err != nil || len(got) != 2 || got[0] != all[0] || got[1] != all[1] {
		t.Errorf("read %v, %v, want %v", got, err, all)
	}
	stats := it.Stats()
	if n := stats.ForwardStepCount[pebble.InternalIterCall]; n > 10 {
		t.Errorf("read made %d steps", n)
	}
}
