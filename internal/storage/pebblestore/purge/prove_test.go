package purge_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
)

// TestLack removes a device, and asks whether tables have its keys at each step.
func TestLack(t *testing.T) {
	fs := vfs.NewMem()
	db, err := pebble.Open("", &pebble.Options{FS: fs, Logger: silent{}, DisableAutomaticCompactions: true})
	try(t, err)
	defer db.Close()
	device, other := mustName(t, "d"), mustName(t, "d-1")
	ranges := purge.DeviceRanges(&device)
	tables := purge.Tables{DB: db, Dir: &datadir.Dir{FS: fs}}
	flush := func(change error) {
		t.Helper()
		try(t, errors.Join(change, db.Flush()))
	}
	put := func() error { return db.Set(layout.AppendSegmentKey(nil, &device, 10), []byte{1}, nil) }
	check := func(when string, live, want bool) {
		t.Helper()
		for i := range ranges {
			ranges[i].Live = live
		}
		if err := tables.Lack(ranges, nil); errors.Is(err, purge.ErrHeld) != want || err != nil && !want {
			t.Errorf("%s, with live %t: Lack returns %v, want ErrHeld: %t", when, live, err, want)
		}
	}
	flush(db.Set(layout.AppendSegmentKey(nil, &other, 10), []byte{1}, nil))
	check("with another device", false, false)
	flush(put())
	check("with the device", false, true)
	check("with the device", true, false)
	flush(db.DeleteRange(ranges[0].Start, ranges[0].End, nil))
	check("with a deletion", false, true)
	check("with a deletion", true, true)
	try(t, db.Compact(context.Background(), []byte{0}, []byte{0xff}, false))
	check("after a compaction", false, false)
	flush(put())
	check("with the device again", true, false)

	names, err := fs.List("")
	try(t, err)
	for _, name := range names {
		if f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified); err == nil && len(name) > 4 && name[len(name)-4:] == ".sst" {
			if _, err := f.WriteAt(make([]byte, 40), 0); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
		}
	}
	if err := tables.Lack(ranges[:1], nil); err != nil {
		t.Errorf("with a damaged table in a live range, Lack returns %v", err)
	}
	ranges[0].Live = false
	if err := tables.Lack(ranges[:1], nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("with a damaged table, Lack returns %v, want ErrCorrupt", err)
	}
}
