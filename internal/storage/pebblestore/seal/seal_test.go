package seal_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A tree is a tree with a table of one device.
type tree struct {
	*pebble.DB
	name   vitals.Name
	record layout.Record
	total  int64
}

func newTree(t *testing.T) *tree {
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	name, err := vitals.ParseName("ppg-1")
	if err != nil {
		t.Fatal(err)
	}
	return &tree{DB: db, name: name, record: layout.Record{SealedUnixMs: layout.NoSegment}}
}

func (x *tree) States(dst []layout.Record, numbers []uint32) ([]layout.Record, error) {
	return append(dst, slices.Repeat([]layout.Record{x.record}, len(numbers))...), nil
}

func (x *tree) Publish(b *pebble.Batch, added int64, devices []seal.Sealed) error {
	x.total += added
	for _, d := range devices {
		x.record.SealedUnixMs, x.record.Sizes = d.SealedUnixMs, d.Sizes
	}
	return b.Commit(pebble.NoSync)
}

// sealer returns a Sealer with rows at some times, with segments of at most four.
func (x *tree) sealer(timesMs ...int64) *seal.Sealer {
	w := memory.NewWindow(1, 1)
	d := memory.Device{}
	for _, ms := range timesMs {
		r := columns.Row{TimeUnixMs: ms}
		r.Values.Set(vitals.HeartRate, 7000)
		w.Add(&d, 0, &x.name, &r)
		x.record.Update(ms, &r.Values, 0)
	}
	return &seal.Sealer{
		Tree: x.DB, Batch: x.NewBatch(), Rows: w, Table: x, SegmentRows: 4,
		OnSealed: func(int) {}, OnUnread: func(error) {}, OnFail: func(string) {},
	}
}

// times returns the times of the rows of each segment.
func (x *tree) times(t *testing.T) (all [][]int64) {
	it, err := x.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		rows, err := seal.Decode(it, &x.name, nil)
		if err != nil {
			t.Fatal(err)
		}
		var ms []int64
		for _, r := range rows {
			ms = append(ms, r.TimeUnixMs)
		}
		all = append(all, ms)
	}
	return all
}

// TestSealer seals windows one after another: new rows make segments, late ones are merged into the segment
// that has their time and split it, rows that are there already change nothing, and small segments are
// merged with what follows.
func TestSealer(t *testing.T) {
	x := newTree(t)
	for _, tt := range []struct {
		name string
		rows []int64
		want [][]int64
	}{
		{"first", []int64{10, 20, 30, 40, 50}, [][]int64{{10, 20}, {30, 40, 50}}},
		{"late", []int64{5, 12, 15, 25}, [][]int64{{5, 10}, {12, 15, 20}, {25, 30, 40, 50}}},
		{"again", []int64{5, 50}, [][]int64{{5, 10}, {12, 15, 20}, {25, 30, 40, 50}}},
		{"one", []int64{60}, [][]int64{{5, 10}, {12, 15, 20}, {25, 30, 40, 50}, {60}}},
		{"one more", []int64{70}, [][]int64{{5, 10}, {12, 15, 20}, {25, 30, 40, 50}, {60, 70}}},
	} {
		c := x.sealer(tt.rows...)
		if err := c.Run(t.Context()); err != nil || c.Unread != nil || len(c.Carried) > 0 {
			t.Fatalf("%s: Run returns %v, Unread is %v, Carried has %d rows", tt.name, err, c.Unread, len(c.Carried))
		}
		got := x.times(t)
		if !slices.EqualFunc(got, tt.want, slices.Equal) {
			t.Errorf("%s: the segments have %v, want %v", tt.name, got, tt.want)
		}
		if n := int64(len(slices.Concat(got...))); x.total != n {
			t.Errorf("%s: %d readings were counted, want %d", tt.name, x.total, n)
		}
		_ = c.Batch.Close()
	}
}

// TestSealerDamage seals late rows of a segment that is damaged: they are carried.
//
// Seen to fail when they were dropped.
func TestSealerDamage(t *testing.T) {
	x := newTree(t)
	if err := x.sealer(10, 20).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := x.Set(layout.AppendSegmentKey(nil, &x.name, 20), []byte{1, 2, 3}, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	c := x.sealer(15, 30)
	err := c.Run(t.Context())
	if err != nil || !errors.Is(c.Unread, storage.ErrCorrupt) || !strings.Contains(c.Unread.Error(), "ppg-1") {
		t.Errorf("Run returns %v, Unread is %v, want ErrCorrupt with the device", err, c.Unread)
	}
	if len(c.Carried) != 1 || c.Carried[0].Row.TimeUnixMs != 15 {
		t.Errorf("Carried has %+v, want the row at 15", c.Carried)
	}
	closing, end := context.WithCancel(t.Context())
	end()
	if err := x.sealer(40).Run(closing); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("while the store is closed, Run returns %v, want ErrClosed", err)
	}
}

// silent is a logger that logs nothing.
type silent struct{}

func (silent) Infof(string, ...any)         {}
func (silent) Errorf(string, ...any)        {}
func (silent) Fatalf(text string, _ ...any) { panic(text) }
