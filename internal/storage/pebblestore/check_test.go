package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestCheckCounts checks the report of undamaged stores with tables, closed and crashed.
func TestCheckCounts(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, pebblestore.Options{FS: disk, MemTableBytes: 64 << 10})
	for k := range int64(30) {
		mustAppend(t, s, shifted(manyEntries(100), 1000*k)...)
	}
	mustAppend(t, s, with(entry("dev-1", 7_000_000, 1), vitals.SpO2, 2), entry("a", 0, 0))
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	for name, fs := range map[string]*vfs.MemFS{"crashed": crashed, "closed": disk} {
		before := files(t, fs)
		calls := 0
		r, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{
			FS: fs, Progress: func(tableBytes, of, readings int64) { calls++ },
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := pebblestore.Report{
			Format: 1, PebbleFormat: 24, Devices: 51, Readings: 3002, OldestUnixMs: 0, NewestUnixMs: 7_000_000,
			Tables: r.Tables, TableBytes: r.TableBytes, LogBytes: r.LogBytes,
		}
		want.Values[vitals.HeartRate], want.Values[vitals.SpO2] = 3002, 1
		if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: the report is\n%+v\nwant\n%+v", name, r, want)
		}
		if r.Tables == 0 || r.TableBytes == 0 || r.LogBytes == 0 || calls == 0 {
			t.Errorf("%s: %d tables of %d bytes, %d bytes of log, %d calls of Progress: want some of each", name, r.Tables, r.TableBytes, r.LogBytes, calls)
		}
		if !maps.Equal(before, files(t, fs)) {
			t.Errorf("%s: Check has changed the directory", name)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := pebblestore.Check(ctx, dataDir, pebblestore.CheckOptions{FS: fs}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: with a canceled context, Check returns %v", name, err)
		}
	}
}

// TestCheckEmpty checks a store without readings, a missing directory and an empty one.
func TestCheckEmpty(t *testing.T) {
	fs := vfs.NewMem()
	mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
	r, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
	if err != nil || r.Devices != 0 || r.Readings != 0 || r.NewestUnixMs != 0 {
		t.Errorf("Check returns %+v, %v", r, err)
	}
	if err := fs.MkdirAll("empty", 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"missing": "the directory does not exist", "empty": "the directory is empty"} {
		_, err = pebblestore.Check(context.Background(), dir, pebblestore.CheckOptions{FS: fs})
		if !errors.Is(err, storage.ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("Check of a directory that is %s returns %v, want ErrFormat and %q", dir, err, want)
		}
	}
}

// TestCheckInvariants checks that Check finds violations of each invariant of the package
// comment.
func TestCheckInvariants(t *testing.T) {
	const (
		a, b, c = "61", "62", "63" // devices; b has two readings, at 5 and 9
		record  = "01"
		at5     = "00" + "0000000000000005"
		at9     = "00" + "0000000000000009"
		reading = "01" + "08" + "0001" + "0000000000000007"
	)
	recordOf := func(newest, latest int, value string) string {
		return fmt.Sprintf("01%016x08%016x%s", newest, latest, value)
	}
	manySets := func(n int) map[string]string {
		sets := map[string]string{}
		for i := range n {
			sets[fmt.Sprintf("%s00%016x", b, 10+i)] = reading
		}
		return sets
	}
	for _, tt := range []struct {
		name    string
		sets    map[string]string
		deletes []string
		want    string
	}{
		{"sound", nil, nil, ""},
		{"shortest tail that is too long", manySets(64), nil, "64 readings are newer"},
		{"longest tail", manySets(63), nil, ""},
		{"no record", nil, []string{record + b}, "device b has readings but no record"},
		{"no record of the first device", nil, []string{record + a}, "device a has readings but no record"},
		{"no reading", nil, []string{b + at5, b + at9}, "record of device b: the device has no reading"},
		{"no reading of the last device", nil, []string{c + at5}, "record of device c: the device has no reading"},
		{"record of an unknown device", map[string]string{record + "7a": recordOf(5, 5, "0001")}, nil, "record of device z: the device has no reading"},
		{"no anchor", map[string]string{record + b: recordOf(8, 5, "0001")}, nil, "record of device b: no reading has its newest time"},
		{"newest too late", map[string]string{record + b: recordOf(10, 9, "0001")}, nil, "record of device b: wrong newest time"},
		{"latest too early", map[string]string{record + b: recordOf(9, 5, "0001")}, nil, "record of device b: wrong latest heart_rate_bpm"},
		{"latest with another value", map[string]string{record + b: recordOf(9, 9, "0002")}, nil, "record of device b: wrong latest heart_rate_bpm"},
		{"sign that was never sent", map[string]string{record + b: "01" + "0000000000000009" + "0c" + "0000000000000009" + "0001" + "0000000000000009" + "0001"}, nil, "record of device b: wrong latest spo2_pct"},
		{"tail of a closed store", map[string]string{"00" + "636c6f736564": "01", record + b: recordOf(5, 5, "0001")}, nil, "although the store was closed"},
		{"tail of an open store", map[string]string{record + b: recordOf(5, 5, "0001")}, nil, ""},
		{"foreign key", map[string]string{"1f": "00"}, nil, "neither a reading's nor a record's"},
		{"foreign key among the readings", map[string]string{"62ff": "00"}, nil, "key of 2 bytes"},
		{"negative time", map[string]string{"6200" + "8000000000000000": reading}, nil, "time is negative"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			s := mustOpen(t, pebblestore.Options{FS: disk})
			mustAppend(t, s, entry("a", 5, 1), entry("b", 5, 1), entry("b", 9, 1), entry("c", 5, 1))
			fs := disk.CrashClone(vfs.CrashCloneCfg{}) // without the closed key
			mustClose(t, s)
			db := openRaw(t, fs)
			for key, value := range tt.sets {
				if err := db.Set(unhex(key), unhex(value), pebble.Sync); err != nil {
					t.Fatal(err)
				}
			}
			for _, key := range tt.deletes {
				if err := db.Delete(unhex(key), pebble.Sync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
			if tt.want == "" {
				if err != nil {
					t.Errorf("Check returns %v", err)
				}
				return
			}
			if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), tt.want) || len(r.Problems) == 0 {
				t.Errorf("Check returns %v, want ErrCorrupt with %q", err, tt.want)
			}
		})
	}
}

// TestCheckManyProblems checks the bound on the problems in a report.
func TestCheckManyProblems(t *testing.T) {
	fs := vfs.NewMem()
	mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
	db := openRaw(t, fs)
	for i := range 250 {
		if err := db.Set(fmt.Appendf(nil, "\x10%d", i), nil, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
	if !errors.Is(err, storage.ErrCorrupt) || len(r.Problems) != 100 || r.More != 150 {
		t.Errorf("Check returns %d problems and %d more, %v", len(r.Problems), r.More, err)
	}
}
