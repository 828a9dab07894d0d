package assign_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestRead stores assignments of two devices, and reads them in each way before and after one is removed.
func TestRead(t *testing.T) {
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	name := func(s string) vitals.Name {
		n, err := vitals.ParseName(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a, ab := name("a"), name("a-b")
	all := []storage.Assignment{
		{Device: a, Subject: "P", FromUnixMs: 10, ToUnixMs: 20},
		{Device: a, Subject: "Q", FromUnixMs: 20, ToUnixMs: storage.OpenEnd},
		{Device: ab, Subject: "P", FromUnixMs: 5, ToUnixMs: 6},
	}
	change := func(f func(*pebble.Batch, *storage.Assignment) error, x *storage.Assignment) {
		t.Helper()
		b := db.NewBatch()
		if err := errors.Join(f(b, x), b.Commit(pebble.Sync)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		change(assign.Set, &all[i])
	}
	check := func(when string, want ...storage.Assignment) {
		t.Helper()
		with := func(keep func(*storage.Assignment) bool) (some []storage.Assignment) {
			for i := range want {
				if keep(&want[i]) {
					some = append(some, want[i])
				}
			}
			return some
		}
		for _, tt := range []struct {
			name string
			got  func() ([]storage.Assignment, error)
			want []storage.Assignment
		}{
			{"Of", func() ([]storage.Assignment, error) { return assign.Of(db, &a) }, with(func(x *storage.Assignment) bool { return x.Device == a })},
			{"OfSubject", func() ([]storage.Assignment, error) { return assign.OfSubject(context.Background(), db, "P") }, with(func(x *storage.Assignment) bool { return x.Subject == "P" })},
			{"After nothing", func() ([]storage.Assignment, error) { return assign.After(db, storage.AssignmentKey{}, 9) }, want},
			{"After the first", func() ([]storage.Assignment, error) { return assign.After(db, all[0].Key(), 9) }, with(func(x *storage.Assignment) bool { return *x != all[0] })},
		} {
			if got, err := tt.got(); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%s, %s returns %v, %v, want %v", when, tt.name, got, err, tt.want)
			}
		}
		n, err := assign.Verify(db, func(err error) { t.Errorf("%s, Verify finds %v", when, err) })
		if err != nil || n != int64(len(want)) {
			t.Errorf("%s, Verify returns %d, %v, want %d", when, n, err, len(want))
		}
	}
	check("at first", all...)
	change(assign.Remove, &all[0])
	check("after the removal", all[1:]...)
	change(assign.Set, &all[0])
	change(func(b *pebble.Batch, x *storage.Assignment) error { return assign.RemoveAll(b, db, &x.Device) }, &all[0])
	check("after the removal of a device", all[2])
}
