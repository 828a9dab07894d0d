package pebblestore_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestGolden compares every byte that a store writes with the formats of the package
// comment. A change here changes the format: existing stores must stay readable.
func TestGolden(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs})
	full := &storage.Entry{
		Reading: &vitals.Reading{
			Device:     mustName("ppg-000123"),
			Gateway:    mustName("gw:7"),
			TimeUnixMs: 1_795_255_200_123,
			UTCOffset:  vitals.MakeUTCOffset(4*60 + 4),
		},
		ReceivedUnixMs: 1_795_255_201_000,
	}
	for sign, v := range map[vitals.Sign]vitals.Value{
		vitals.Systolic: 12100, vitals.Diastolic: 7900, vitals.SpO2: 9750, vitals.HeartRate: 7200,
		vitals.RestingHeartRate: 5800,
	} {
		full.Reading.Values.Set(sign, v)
	}
	least := entry("a", 0, 1)
	least.ReceivedUnixMs = -2
	longest := entry(strings.Repeat("z", vitals.MaxNameBytes), 256, 65535)
	const receivedUnixMs = 1_800_000_000_000 // of all, because it is the latest of the group
	mustAppend(t, s, full, least, longest, with(entry("a", 255, 2), vitals.SpO2, 3))
	mustAppend(t, s, entry("a", 256, 4)) // does not change the device record
	completing := with(entry("b", 7, 1), vitals.SpO2, 2)
	completing.Reading.Gateway = mustName("gw:8")
	mustAppend(t, s, entry("b", 7, 1), completing)
	mustAppend(t, s, received(receivedUnixMs+5000, with(entry("b", 7, 1), vitals.RestingHeartRate, 3)))
	try(t, s.Assign(context.Background(), storage.Assignment{Device: mustName("b"), Subject: "P", FromUnixMs: 5,
		ToUnixMs: 9, ChangedUnixMs: receivedUnixMs + 6000}))
	hexOf := func(s string) string { return hex.EncodeToString([]byte(s)) }
	z64 := hexOf(strings.Repeat("z", 64))
	a, b, ppg := hexOf("a"), hexOf("b"), hexOf("ppg-000123")
	gateways := "" +
		"04" + "00000001" + " = " + hexOf("gw:7") + "\n" +
		"04" + "00000002" + " = " + hexOf("gw:8") + "\n"
	arrived := func(newestUnixMs, unixMs int64) string {
		return hex.EncodeToString(binary.AppendVarint(nil, unixMs-newestUnixMs))
	}
	recordsOf := func(a1, sealedOfA, b1, sealedOfB, sealedOfPPG, sealedOfZ string) string {
		return "" +
			"01" + a + " = 01 " + a1 + sealedOfA + "\n" +
			"01" + b + " = 01 07 " + b1 + sealedOfB + "\n" +
			"01" + ppg + " = 01 fbd2b1ec9f34 1f " +
			"00 88bd01 940d 00 b87b 940d 00 ac9801 940d 00 c070 940d 00 d05a 940d " +
			fmt.Sprintf(sealedOfPPG, arrived(full.Reading.TimeUnixMs, receivedUnixMs)) + "\n" +
			"01" + z64 + " = 01 8002 08 00 feff07 00 " + fmt.Sprintf(sealedOfZ, arrived(256, receivedUnixMs)) + "\n"
	}
	row := func(e *storage.Entry, gateway uint32, shared bool) columns.Row {
		return columns.Row{TimeUnixMs: e.Reading.TimeUnixMs, ReceivedUnixMs: e.ReceivedUnixMs, Values: e.Reading.Values,
			Gateway: gateway, UTCOffset: e.Reading.UTCOffset, Shared: shared}
	}
	groupOf := func(number string, runs []columns.Run, rows ...columns.Row) string {
		return "03" + number + " = " + hex.EncodeToString(columns.AppendGroup(nil, runs, rows)) + "\n"
	}
	runOf := func(name string, rows int) columns.Run { return columns.Run{Device: mustName(name), Rows: rows} }
	completed := row(with(with(entry("b", 7, 1), vitals.SpO2, 2), vitals.RestingHeartRate, 3), 2, true)
	completed.CompletedMs = 5000
	groups := "" +
		groupOf("0000000000000001", []columns.Run{runOf("a", 2), runOf("ppg-000123", 1), runOf(strings.Repeat("z", 64), 1)},
			row(least, 0, false), row(with(entry("a", 255, 2), vitals.SpO2, 3), 0, false), row(full, 1, false),
			row(longest, 0, false)) +
		groupOf("0000000000000002", []columns.Run{runOf("a", 1)}, row(entry("a", 256, 4), 0, false)) +
		groupOf("0000000000000003", []columns.Run{runOf("b", 1)}, row(completing, 2, true)) +
		groupOf("0000000000000004", []columns.Run{runOf("b", 1)}, completed)
	states := "00" + hexOf("clock") + " = 000001a3185c6770\n00" + hexOf("cursors") + " = <32 random bytes>\n00" +
		hexOf("gateways") + " = 00000003\n"
	others := gateways +
		"05" + b + "00" + "0000000000000005" + " = 01 00 0000000000000000 0000000000000009 000001a3185c6770" +
		hexOf("P") + "\n" +
		"06" + hexOf("P") + "00" + b + "00" + "0000000000000005" + " = \n" +
		"07" + "0000000000000001" + " = 01 01 000001a3185c5000 <mark> 0000000000000001\n"
	wantText(t, "in groups", rawContent(t, fs), states+
		recordsOf("ff01 0c 00 06 00 00 04 00", "00"+arrived(255, receivedUnixMs), "0c 00 04 00 00 02 00",
			"00"+arrived(7, receivedUnixMs), "00%s", "00%s")+groups+others)

	try(t, pebblestore.Seal(s))
	sealed := rawContent(t, fs)
	mustClose(t, s)
	segmentOf := func(rows ...columns.Row) string { return hex.EncodeToString(columns.AppendSegment(nil, rows)) }
	segments := "" +
		"02" + a + "00" + "0000000000000100" + arrived(256, receivedUnixMs) + " = " +
		segmentOf(row(least, 0, false), row(with(entry("a", 255, 2), vitals.SpO2, 3), 0, false),
			row(entry("a", 256, 4), 0, false)) + "\n" +
		"02" + b + "00" + "0000000000000007" + arrived(7, receivedUnixMs+5000) + " = " + segmentOf(completed) + "\n" +
		"02" + ppg + "00" + "000001a1fd8c697b" + arrived(full.Reading.TimeUnixMs, receivedUnixMs) + " = " +
		segmentOf(row(full, 1, false)) + "\n" +
		"02" + z64 + "00" + "0000000000000100" + arrived(256, receivedUnixMs) + " = " +
		segmentOf(row(longest, 0, false)) + "\n"
	wantText(t, "in segments", sealed,
		states+"00"+hexOf("groups")+" = 0000000000000005\n00"+hexOf("readings")+" = 0000000000000006\n"+
			recordsOf("8002 0c 01 06 00 00 08 00", "01"+arrived(256, receivedUnixMs)+"03", "1c 00 04 00 00 02 00 00 06 00",
				"01"+arrived(7, receivedUnixMs+5000)+"01", "01%s01", "01%s01")+segments+others)

	text, err := readFile(fs, dataDir+"/PULSEGATE")
	if want := "pulsegate store, version 1\n"; err != nil || !strings.HasPrefix(text, want) {
		t.Errorf("PULSEGATE begins %q, %v, want %q", text, err, want)
	}
	if desc, err := pebble.Peek(dataDir, fs); err != nil || desc.FormatMajorVersion != 24 {
		t.Errorf("a new store has Pebble's format %v, %v, want 24", desc.FormatMajorVersion, err)
	}
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(strings.ReplaceAll(want, " ", ""), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		var g, w string
		if i < len(gotLines) {
			g = gotLines[i]
		}
		if i < len(wantLines) {
			w = wantLines[i]
		}
		if g != w {
			t.Errorf("%s, line %d is\n%s\nwant\n%s", what, i, g, w)
		}
	}
}

// rawContent returns all keys and values in a copy of fs, read with Pebble.
func rawContent(t *testing.T, fs vfs.FS) string {
	t.Helper()
	db := openRaw(t, copyFS(t, fs))
	defer db.Close()
	it, err := db.NewIter(nil)
	try(t, err)
	defer it.Close()
	var b strings.Builder
	for ok := it.First(); ok; ok = it.Next() {
		value := hex.EncodeToString(it.Value())
		if it.Key()[0] == 0x07 { // an event, with a random mark
			value = value[:20] + "<mark>" + value[36:]
		}
		if string(it.Key()) == "\x00cursors" && len(it.Value()) == 32 {
			value = "<32randombytes>"
		}
		fmt.Fprintf(&b, "%x=%s\n", it.Key(), value)
	}
	return b.String()
}

func openRaw(t testing.TB, fs vfs.FS) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(dataDir, &pebble.Options{FS: fs, Logger: silent{}, FormatMajorVersion: 24})
	if err != nil {
		t.Fatalf("open with Pebble: %v", err)
	}
	unlist(t, fs) // the list would not match the following changes
	return db
}

// silent is a Pebble logger that logs nothing.
type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// TestRefusedValues puts invalid bytes into the tree. Every way to read them must return an
// error that names the place and contains no value.
func TestRefusedValues(t *testing.T) {
	const (
		segmentKey = "02" + "64" + "00" + "0000000000000005" + "04" // device "d" up to 5, changed at 7
		recordKey  = "01" + "64"
		groupKey   = "03" + "0000000000000009"
		okRecord   = "01" + "05" + "08" + "00" + "c070" + "00" + "01" + "04" + "01"
	)
	row := columns.Row{TimeUnixMs: 5, ReceivedUnixMs: 7}
	row.Values.Set(vitals.HeartRate, 7200)
	okSegment := hex.EncodeToString(columns.AppendSegment(nil, []columns.Row{row}))
	groupOf := func(name string) string {
		return hex.EncodeToString(columns.AppendGroup(nil, []columns.Run{{Device: mustName(name), Rows: 1}},
			[]columns.Row{row}))
	}
	okGroup, foreignGroup := groupOf("d"), groupOf("e")
	row.Gateway = 7
	foreign := hex.EncodeToString(columns.AppendSegment(nil, []columns.Row{row}))
	row.Gateway, row.TimeUnixMs = 0, 4
	elsewhere := hex.EncodeToString(columns.AppendSegment(nil, []columns.Row{row}))
	for _, tt := range []struct {
		name, key, value, want string
	}{
		{"cut segment", segmentKey, okSegment[:len(okSegment)-2], "segment of device d up to 5: "},
		{"segment of another time", segmentKey, elsewhere, "segment of device d up to 5: the last reading"},
		{"segment with a gateway that is not known", segmentKey, foreign, "its gateway is not in the dictionary"},
		{"record of a later version", recordKey, "02" + okRecord[2:], "record of device d: unknown version"},
		{"record with too large an offset", recordKey, "01" + "05" + "08" + "00" + "c070" + "c016" + "01" + "04" + "01",
			"record of device d: invalid offset"},
		{"record without signs", recordKey, "01" + "05" + "00" + "01" + "04" + "01", "presence bits"},
		{"cut record", recordKey, okRecord[:len(okRecord)-8], "wrong length"},
		{"record with too many sizes", recordKey, okRecord + strings.Repeat("01", 16), "invalid sizes"},
		{"record with an empty segment", recordKey, okRecord + "00", "invalid sizes"},
		{"record with a negative time", recordKey, "01" + "85808080808080808001" + okRecord[4:], "invalid time"},
		{"cut group", groupKey, okGroup[:len(okGroup)-2], "group 9: "},
		{"group with a device without a record", groupKey, foreignGroup, "record"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem()
			mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
			db := openRaw(t, fs)
			for key, value := range map[string]string{
				segmentKey: okSegment, recordKey: okRecord, "00" + hex.EncodeToString([]byte("readings")): "0000000000000001",
				tt.key: tt.value,
			} {
				try(t, db.Set(unhex(key), unhex(value), pebble.Sync))
			}
			try(t, db.Close())
			wantCorrupt := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s returns %v, want ErrCorrupt with %q", what, err, tt.want)
				}
				for _, value := range []string{"7200", "72.00", "1c20", "1C20"} {
					if err != nil && strings.Contains(err.Error(), value) {
						t.Errorf("%s: the error %q contains a value", what, err)
					}
				}
			}
			_, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
			wantCorrupt("Check", err)

			s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs})
			switch tt.key {
			case groupKey:
				wantCorrupt("Open", err)
				return
			case recordKey:
				wantCorrupt("Open", err)
				s = mustOpen(t, pebblestore.Options{FS: fs, ReadOnly: true})
				defer mustClose(t, s)
				_, err = s.Latest(context.Background(), mustName("d"))
				wantCorrupt("Latest", err)
				_, err = s.Devices(context.Background(), vitals.Name{}, make([]storage.Device, 1))
				wantCorrupt("Devices", err)
				return
			}
			try(t, err)
			defer s.Close()
			_, err = s.Scan(context.Background(), storage.Range{Device: mustName("d"), ToUnixMs: 10}, make([]storage.Record, 1))
			wantCorrupt("Scan", err)
			if tt.value == foreign {
				return // the reading can be compared
			}
			late := entry("d", 5, 7200)
			mustAppend(t, s, entry("e", 1, 1), late)
			wantOutcome(t, late, storage.Unreadable)
			wantCorrupt("Degraded", s.Degraded())
			if err := s.Ready(); err != nil {
				t.Errorf("afterwards Ready returns %v", err)
			}
			if got := count(t, s, "e"); got != 1 {
				t.Errorf("the other reading of the group has %d records, want 1", got)
			}
		})
	}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}
