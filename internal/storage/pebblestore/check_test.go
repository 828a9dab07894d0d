package pebblestore_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestCheckCounts checks the report of undamaged stores with tables, closed and crashed.
func TestCheckCounts(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, pebblestore.Options{FS: disk, MemTableBytes: 64 << 10, WindowRows: 1000})
	for k := range int64(100) {
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
			Format: 1, Devices: 51, Readings: 10_002, OldestUnixMs: 0, NewestUnixMs: 7_000_000,
			Tables: r.Tables, TableBytes: r.TableBytes, LogBytes: r.LogBytes, Signs: r.Signs,
		}
		want.Values[vitals.HeartRate], want.Values[vitals.SpO2] = 10_002, 1
		if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: the report is\n%+v\nwant\n%+v", name, r, want)
		}
		if r.Tables == 0 || r.TableBytes == 0 || r.LogBytes == 0 || calls == 0 {
			t.Errorf("%s: %d tables of %d bytes, %d bytes of log, %d calls of Progress: want some of each", name, r.Tables,
				r.TableBytes, r.LogBytes, calls)
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

// TestCheckInvariants checks that Check finds violations of each invariant of the package
// comment, in a store with segments and with groups.
func TestCheckInvariants(t *testing.T) {
	const (
		a, b, c = "61", "62", "63" // devices; b has two readings, at 5 and 9
		record  = "01"
		segment = "02"
		group   = "03"
		gateway = "04"

		receivedUnixMs = 1_800_000_000_000 // all readings
	)
	varint := func(n int64) string { return hex.EncodeToString(binary.AppendVarint(nil, n)) }
	at := func(lastUnixMs int64) string {
		return fmt.Sprintf("00%016x", lastUnixMs) + varint(receivedUnixMs-lastUnixMs)
	}
	const none = -1 // no segment
	recordOf := func(newest, latest, value, sealed int, sizes ...byte) string {
		text := fmt.Sprintf("01%02x08%02x%02x00", newest, newest-latest, 2*value)
		arrived := varint(receivedUnixMs - int64(newest))
		if sealed == none {
			return text + "00" + arrived
		}
		return fmt.Sprintf("%s%02x%s%x", text, newest-sealed+1, arrived, sizes)
	}
	segmentOf := func(times ...int64) string {
		var rows []columns.Row
		for _, ms := range times {
			r := columns.Row{TimeUnixMs: ms, ReceivedUnixMs: receivedUnixMs}
			r.Values.Set(vitals.HeartRate, 1)
			rows = append(rows, r)
		}
		return hex.EncodeToString(columns.AppendSegment(nil, rows))
	}
	ofGateway := func(number uint32) string {
		r := columns.Row{TimeUnixMs: 9, ReceivedUnixMs: receivedUnixMs, Gateway: number}
		r.Values.Set(vitals.HeartRate, 1)
		return hex.EncodeToString(columns.AppendSegment(nil, []columns.Row{r}))
	}
	const (
		inGroups   = 1
		inSegments = 2
	)
	for _, tt := range []struct {
		name    string
		where   int // the readings are
		sets    map[string]string
		deletes []string
		want    string
	}{
		{"sound", inGroups + inSegments, nil, nil, ""},
		{"no record", inSegments, nil, []string{record + b}, "device b has readings but no record"},
		{"no record of the first device", inSegments, nil, []string{record + a}, "device a has readings but no record"},
		{"no record of a device in a group", inGroups, nil, []string{record + b}, "device b has readings but no record"},
		{"no reading", inSegments, nil, []string{segment + b + at(9)}, "record of device b: the device has no reading"},
		{"no reading of the last device", inSegments, nil, []string{segment + c + at(5)},
			"record of device c: the device has no reading"},
		{"no group", inGroups, nil, []string{group + "0000000000000001"}, "record of device c: the device has no reading"},
		{"record of an unknown device", inGroups, map[string]string{record + "7a": recordOf(5, 5, 1, none)}, nil,
			"record of device z: the device has no reading"},
		{"newest too late", inGroups, map[string]string{record + b: recordOf(10, 9, 1, none)}, nil,
			"record of device b: wrong newest time"},
		{"newest too early", inSegments, map[string]string{record + b: recordOf(5, 5, 1, 5, 2)}, nil,
			"record of device b: wrong newest time"},
		{"latest too early", inSegments, map[string]string{record + b: recordOf(9, 5, 1, 9, 2)}, nil,
			"record of device b: wrong latest heart_rate_bpm"},
		{"latest with another value", inGroups, map[string]string{record + b: recordOf(9, 9, 2, none)}, nil,
			"record of device b: wrong latest heart_rate_bpm"},
		{"sign that was never sent", inGroups, map[string]string{record + b: "01" + "09" + "0c" + "000200" + "000200" + "00" +
			varint(receivedUnixMs-9)}, nil, "record of device b: wrong latest spo2_pct"},
		{"wrong time of the last segment", inSegments, map[string]string{record + b: recordOf(9, 9, 1, 8, 2)}, nil,
			"record of device b: wrong time of the last segment"},
		{"earlier arrival", inSegments, map[string]string{record + b: recordOf(9, 9, 1, 9, 2)[:14] + varint(-9) + "02"}, nil,
			"record of device b: a reading has arrived later"},
		{"change at another time", inSegments, map[string]string{segment + b + "00" + "0000000000000009" +
			"00": segmentOf(5, 9)}, []string{segment + b + at(9)},
			"segment of device b up to 9: it was not changed when its key says so"},
		{"event of no kind", inGroups, map[string]string{"07" + "0000000000000009": "0100" + "0000000000000000" +
			"0000000000000000"}, nil, "event: invalid event"},
		{"key of no event", inGroups, map[string]string{"0709": "0101" + "0000000000000000" + "0000000000000000"}, nil,
			"event: invalid key"},
		{"no segment", inSegments, map[string]string{record + b: recordOf(9, 9, 1, none)}, nil,
			"record of device b: wrong time of the last segment"},
		{"wrong size of a segment", inSegments, map[string]string{record + b: recordOf(9, 9, 1, 9, 1)}, nil,
			"record of device b: invalid sizes"},
		{"one size too many", inSegments, map[string]string{record + b: recordOf(9, 9, 1, 9, 1, 2)}, nil,
			"record of device b: invalid sizes"},
		{"overlapping segments", inSegments, map[string]string{segment + b + at(8): segmentOf(5, 8)}, nil,
			"segment of device b up to 9: it overlaps"},
		{"segment with another time in its key", inSegments, map[string]string{segment + b + at(8): segmentOf(2, 3)}, nil,
			"segment of device b up to 8: the last reading"},
		{"damaged segment", inSegments, map[string]string{segment + b + at(9): "00"}, nil,
			"segment of device b up to 9: too short"},
		{"unknown gateway", inSegments, map[string]string{segment + b + at(9): ofGateway(3)}, nil,
			"reading of device b at 9: its gateway is not in the dictionary"},
		{"gateway with a number that was not given", inGroups, map[string]string{gateway + "00000003": "6161"}, nil,
			"gateway 3: number was not given"},
		{"gateway that is not a name", inGroups, map[string]string{gateway + "00000001": "20",
			"00" + hex.EncodeToString([]byte("gateways")): "00000009"}, nil, "gateway 1: gateway is not a name"},
		{"gateway stored twice", inGroups, map[string]string{gateway + "00000001": "61", gateway + "00000002": "61",
			"00" + hex.EncodeToString([]byte("gateways")): "00000009"}, nil, "gateway 2: name is stored twice"},
		{"wrong number of readings", inSegments,
			map[string]string{"00" + hex.EncodeToString([]byte("readings")): "0000000000000009"}, nil,
			"wrong number of readings"},
		{"damaged group", inGroups, map[string]string{group + "0000000000000002": "01" + b + "00" + "08" + "0001" + "0a"},
			nil, "group 2: "},
		{"foreign key", inGroups, map[string]string{"1f": "00"}, nil, "key of 1 bytes is of no known kind"},
		{"foreign state", inGroups, map[string]string{"0061": "00"}, nil, "key of 2 bytes is of no known kind"},
		{"foreign key among the segments", inGroups, map[string]string{"0262ff": "00"}, nil, "key of 3 bytes"},
		{"negative time", inGroups, map[string]string{"026200" + "8000000000000000": segmentOf(5)}, nil, "invalid time"},
	} {
		for _, where := range []int{inGroups, inSegments} {
			if tt.where&where == 0 {
				continue
			}
			t.Run(tt.name, func(t *testing.T) {
				disk := vfs.NewCrashableMem()
				s := mustOpen(t, pebblestore.Options{FS: disk})
				group := []*storage.Entry{entry("a", 5, 1), entry("b", 5, 1), entry("b", 9, 1), entry("c", 5, 1)}
				mustAppend(t, s, group...)
				if where == inSegments {
					try(t, pebblestore.Seal(s))
				}
				fs := disk.CrashClone(vfs.CrashCloneCfg{})
				mustClose(t, s)
				db := openRaw(t, fs)
				for key, value := range tt.sets {
					try(t, db.Set(unhex(key), unhex(value), pebble.Sync))
				}
				for _, key := range tt.deletes {
					try(t, db.Delete(unhex(key), pebble.Sync))
				}
				try(t, db.Close())
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
}
