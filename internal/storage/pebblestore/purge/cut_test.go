package purge_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

func mustName(t *testing.T, text string) vitals.Name {
	t.Helper()
	name, err := vitals.ParseName(text)
	try(t, err)
	return name
}

// row returns a row with one of two signs.
func row(ms int64) (r columns.Row) {
	r.TimeUnixMs, r.ReceivedUnixMs, r.CompletedMs = ms, 100+ms*5%9, ms%2
	sign := vitals.HeartRate
	if ms%3 == 0 {
		sign = vitals.SpO2
	}
	r.Values.Set(sign, vitals.Value(5000+ms))
	return r
}

// A tree has the segments of one device, and one segment of the device before it and of that after it.
type tree struct {
	*pebble.DB
	device, before, after vitals.Name
}

func newTree(t *testing.T) *tree {
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: silent{}})
	try(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return &tree{db, mustName(t, "b"), mustName(t, "a"), mustName(t, "b-")}
}

// fill replaces everything by segments with readings at times, and returns the record of the device.
func (x *tree) fill(t *testing.T, small int, segments ...[]int64) (d layout.Record) {
	t.Helper()
	try(t, x.DeleteRange([]byte{0}, []byte{0xff}, nil))
	put := func(name *vitals.Name, times []int64) {
		t.Helper()
		var rows []columns.Row
		for _, ms := range times {
			rows = append(rows, row(ms))
		}
		value, err := seal.Encode(name, rows)
		if err == nil {
			err = x.Set(layout.AppendSegmentKey(nil, name, times[len(times)-1], columns.ChangedUnixMs(rows)), value, nil)
		}
		try(t, err)
	}
	for _, times := range segments {
		put(&x.device, times)
	}
	put(&x.before, []int64{1, 5})
	put(&x.after, []int64{1, 5})
	return record(small, segments...)
}

// record returns the record of a device with segments.
func record(small int, segments ...[]int64) layout.Record {
	d := layout.Record{NewestUnixMs: -1, SealedUnixMs: layout.NoSegment}
	for _, times := range segments {
		for _, ms := range times {
			r := row(ms)
			d.Update(ms, r.ChangedUnixMs(), &r.Values, 0)
		}
		d.SealedUnixMs = times[len(times)-1]
		if len(times) >= small {
			d.Small, d.Smalls = [layout.MaxSmall]uint16{}, 0
			continue
		}
		d.Small[d.Smalls] = uint16(len(times))
		d.Smalls++
	}
	return d
}

// times returns the times of a device's readings, by segment.
func (x *tree) times(t *testing.T, name *vitals.Name) (segments [][]int64) {
	t.Helper()
	it, err := x.NewIter(&pebble.IterOptions{LowerBound: layout.AppendSegmentPrefix(nil, name),
		UpperBound: layout.AppendSegmentsEnd(nil, name)})
	try(t, err)
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		rows, err := seal.Decode(it, name, nil)
		try(t, err)
		var times []int64
		for i := range rows {
			times = append(times, rows[i].TimeUnixMs)
		}
		segments = append(segments, times)
	}
	return segments
}

// TestCut makes all cuts of devices with few readings, and compares what is left with the readings that are
// not in the range.
func TestCut(t *testing.T) {
	const small = 3
	x := newTree(t)
	for _, segments := range [][][]int64{
		{{4}},
		{{1, 2, 3, 4, 5, 6, 7, 8}},
		{{1, 2}, {4}, {6, 7}},
		{{1, 2, 3}, {4}, {6, 8}},
		{{1}, {3, 4, 5, 6}, {8}},
		{{2}, {3}, {4}, {5}, {6}},
	} {
		for from := range int64(9) {
			for to := from; to < 10; to++ {
				for _, most := range []int64{0, 1, 2} {
					c := purge.Cut{Device: x.device, FromMs: from, ToMs: to, Most: most, Small: small}
					if most == 0 || from == 0 {
						verifyCut(t, x, c, segments)
					}
				}
			}
		}
	}
}

func verifyCut(t *testing.T, x *tree, c purge.Cut, segments [][]int64) {
	t.Helper()
	name := fmt.Sprintf("%v from %d to %d, at most %d", segments, c.FromMs, c.ToMs, c.Most)
	d := x.fill(t, c.Small, segments...)
	var left []int64
	removed := int64(0)
	for _, ms := range slices.Concat(segments...) {
		if ms < c.FromMs || ms >= c.ToMs || c.Most > 0 && removed == c.Most {
			left = append(left, ms)
		} else {
			removed++
		}
	}
	b := x.NewBatch()
	readings, gone, unread, err := c.Do(x.DB, b, &d)
	if err = errors.Join(err, unread); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	try(t, b.Commit(nil))
	got := x.times(t, &x.device)
	if readings != removed || gone != (len(left) == 0) || !slices.Equal(slices.Concat(got...), left) {
		t.Errorf("%s: it removes %d readings, gone is %t, and %v are left; want %d, and %v", name, readings, gone, got,
			removed, left)
	}
	want := record(c.Small, got...)
	if c.FromMs == 0 { // expiry
		want.ArrivedUnixMs = record(c.Small, segments...).ArrivedUnixMs
	}
	if !gone && d != want {
		t.Errorf("%s: the record is %+v, want %+v", name, d, want)
	}
	for _, other := range []*vitals.Name{&x.before, &x.after} {
		if got := x.times(t, other); len(got) != 1 || len(got[0]) != 2 {
			t.Errorf("%s: device %s has %v, want [[1 5]]", name, other, got)
		}
	}
}

// TestCutDamaged cuts a device of which a segment cannot be read.
func TestCutDamaged(t *testing.T) {
	x := newTree(t)
	for _, tt := range []struct {
		name     string
		c        purge.Cut
		left     int   // segments
		readings int64 // that are counted
		unread   bool
		fails    bool
	}{
		{"before 1970", purge.Cut{ToMs: -7}, 3, 0, false, false},
		{"before the end", purge.Cut{ToMs: 7}, 1, 2, true, false},
		{"across the end", purge.Cut{ToMs: 4}, 2, 2, true, false},
		{"after the end", purge.Cut{ToMs: 2}, 3, 1, false, false},
		{"of all", purge.Cut{ToMs: 8}, 0, 2, true, false},
		{"within an assignment", purge.Cut{FromMs: 2, ToMs: 7}, 3, 0, false, true},
		{"after an assignment", purge.Cut{FromMs: 1, ToMs: 2}, 3, 1, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := x.fill(t, 1, []int64{1, 2}, []int64{4, 5}, []int64{6, 7})
			try(t, x.Set(layout.AppendSegmentKey(nil, &x.device, 5, columns.ChangedUnixMs([]columns.Row{row(4), row(5)})),
				[]byte{1, 2, 3}, nil))
			b := x.NewBatch()
			tt.c.Device, tt.c.Small = x.device, 1
			readings, gone, unread, err := tt.c.Do(x.DB, b, &d)
			if tt.fails {
				if !errors.Is(err, storage.ErrCorrupt) || !b.Empty() {
					t.Errorf("it returns %v, want ErrCorrupt, and adds to the batch: %t", err, !b.Empty())
				}
				return
			}
			if err != nil || gone != (tt.left == 0) || readings != tt.readings ||
				errors.Is(unread, storage.ErrCorrupt) != tt.unread {
				t.Errorf("it counts %d readings, gone: %t, unread: %v, %v", readings, gone, unread, err)
			}
			try(t, b.Commit(nil))
			it, err := x.NewIter(&pebble.IterOptions{LowerBound: layout.AppendSegmentPrefix(nil, &x.device),
				UpperBound: layout.AppendSegmentsEnd(nil, &x.device)})
			try(t, err)
			defer it.Close()
			left := 0
			for ok := it.First(); ok; ok = it.Next() {
				left++
			}
			if left != tt.left {
				t.Errorf("%d segments are left, want %d", left, tt.left)
			}
		})
	}
}

// TestIntent parses what is written, and no text with a changed byte.
func TestIntent(t *testing.T) {
	for _, good := range []string{
		"pulsegate erasure 1 purge\ndevice d\nreadings 7\nend e27908f9\n",
		"pulsegate erasure 2 remove\ndevice d\nsubject P-17\nfrom 10\nto 20\nreadings 0\nend 96859356\n",
	} {
		if text, err := purge.Parse([]byte(good)); err != nil || string(text) != good {
			t.Errorf("of %q, Parse returns %q, %v", good, text, err)
		}
		for i := range good {
			b := []byte(good)
			b[i] ^= 1
			if text, err := purge.Parse(b); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("with another byte %d, Parse returns %q, %v, want ErrCorrupt", i, text, err)
			}
		}
	}
}

// silent is a logger that logs nothing.
type silent struct{}

func (silent) Infof(string, ...any)         {}
func (silent) Errorf(string, ...any)        {}
func (silent) Fatalf(text string, _ ...any) { panic(text) }

var try = polltest.Try
