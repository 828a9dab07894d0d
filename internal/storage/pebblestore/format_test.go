package pebblestore_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
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
		},
		ReceivedUnixMs: 1_795_255_201_000,
	}
	for sign, v := range map[vitals.Sign]vitals.Hundredths{
		vitals.Systolic: 12100, vitals.Diastolic: 7900, vitals.SpO2: 9750, vitals.HeartRate: 7200, vitals.RestingHeartRate: 5800,
	} {
		full.Reading.Values.Set(sign, v)
	}
	least := entry("a", 0, 1)
	least.ReceivedUnixMs = -2
	longest := entry(strings.Repeat("z", vitals.MaxNameBytes), 256, 65535)
	mustAppend(t, s, full, least, longest, with(entry("a", 255, 2), vitals.SpO2, 3))
	mustAppend(t, s, entry("a", 256, 4)) // does not change the device record
	completing := with(entry("b", 7, 1), vitals.SpO2, 2)
	completing.Reading.Gateway = mustName("gw:8")
	mustAppend(t, s, entry("b", 7, 1), completing)
	crashed := rawContent(t, fs)
	mustClose(t, s)

	hexOf := func(s string) string { return hex.EncodeToString([]byte(s)) }
	z64 := hexOf(strings.Repeat("z", 64))
	readings := "" +
		hexOf("a") + "00" + "0000000000000000" + " = 01 08 0001 fffffffffffffffe\n" +
		hexOf("a") + "00" + "00000000000000ff" + " = 01 0c 0003 0002 000001a3185c5000\n" +
		hexOf("a") + "00" + "0000000000000100" + " = 01 08 0004 000001a3185c5000\n" +
		hexOf("b") + "00" + "0000000000000007" + " = 02 0c 0002 0001 000001a3185c5000 " + hexOf("gw:8") + "\n" +
		hexOf("ppg-000123") + "00" + "000001a1fd8c697b" + " = 01 1f 2f44 1edc 2616 1c20 16a8 000001a1fd8c6ce8 " + hexOf("gw:7") + "\n" +
		z64 + "00" + "0000000000000100" + " = 01 08 ffff 000001a3185c5000\n"
	others := "" +
		"01" + hexOf("b") + " = 01 0000000000000007 0c 0000000000000007 0002 0000000000000007 0001\n" +
		"01" + hexOf("ppg-000123") + " = 01 000001a1fd8c697b 1f " +
		"000001a1fd8c697b 2f44 000001a1fd8c697b 1edc 000001a1fd8c697b 2616 000001a1fd8c697b 1c20 000001a1fd8c697b 16a8\n" +
		"01" + z64 + " = 01 0000000000000100 08 0000000000000100 ffff\n"
	wantText(t, "while open", crashed,
		"01"+hexOf("a")+" = 01 00000000000000ff 0c 00000000000000ff 0003 00000000000000ff 0002\n"+others+readings)
	wantText(t, "when closed", rawContent(t, fs),
		"00"+hexOf("closed")+" = 01\n"+
			"01"+hexOf("a")+" = 01 0000000000000100 0c 00000000000000ff 0003 0000000000000100 0004\n"+others+readings)

	text, err := readFile(fs, dataDir+"/PULSEGATE")
	if want := "pulsegate store, format 1\n"; err != nil || !strings.HasPrefix(text, want) {
		t.Errorf("PULSEGATE begins %q, %v, want %q", text, err, want)
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
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	var b strings.Builder
	for ok := it.First(); ok; ok = it.Next() {
		fmt.Fprintf(&b, "%x=%x\n", it.Key(), it.Value())
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

// TestPebbleFormat checks the version of Pebble's files.
func TestPebbleFormat(t *testing.T) {
	fs := vfs.NewMem()
	mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
	desc, err := pebble.Peek(dataDir, fs)
	if err != nil || desc.FormatMajorVersion != 24 {
		t.Errorf("a new store has Pebble's format %v, %v, want 24", desc.FormatMajorVersion, err)
	}
}

// TestRefusedValues puts invalid bytes into the tree. Every way to read them must return an
// error that names the place and contains no value.
func TestRefusedValues(t *testing.T) {
	const (
		readingKey = "64" + "00" + "0000000000000005" // device "d" at 5
		recordKey  = "01" + "64"
		okReading  = "01" + "08" + "1c20" + "0000000000000007"
		okRecord   = "01" + "0000000000000005" + "08" + "0000000000000005" + "1c20"
	)
	for _, tt := range []struct {
		name, key, value, want string
	}{
		{"reading of a later version", readingKey, "03" + okReading[2:], "reading of device d at 5: unknown version"},
		{"empty reading", readingKey, "", "wrong length"},
		{"version alone", readingKey, "01", "wrong length"},
		{"no sign", readingKey, "0100" + "0000000000000007", "presence bits"},
		{"unknown sign", readingKey, "0128" + "1c20" + "0000000000000007", "presence bits"},
		{"cut value", readingKey, "01081c", "wrong length"},
		{"cut time of receipt", readingKey, okReading[:len(okReading)-2], "wrong length"},
		{"trailing bytes that are not a name", readingKey, okReading + "20", "gateway is not a name"},
		{"gateway too long", readingKey, okReading + strings.Repeat("61", 65), "gateway is not a name"},
		{"record of a later version", recordKey, "02" + okRecord[2:], "record of device d: unknown version"},
		{"empty record", recordKey, "", "wrong length"},
		{"record without signs", recordKey, "01" + "0000000000000005" + "00", "presence bits"},
		{"cut record", recordKey, okRecord[:len(okRecord)-2], "wrong length"},
		{"record with trailing bytes", recordKey, okRecord + "00", "wrong length"},
		{"record with a negative time", recordKey, "01" + "8000000000000005" + okRecord[18:], "time is negative"},
		{"record with a later latest", recordKey, okRecord[:20] + "0000000000000006" + "1c20", "newer than the record"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem()
			mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
			db := openRaw(t, fs)
			for key, value := range map[string]string{readingKey: okReading, recordKey: okRecord, tt.key: tt.value} {
				if err := db.Set(unhex(key), unhex(value), pebble.Sync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
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
			if tt.key == recordKey {
				wantCorrupt("Open", err)
				s = mustOpen(t, pebblestore.Options{FS: fs, ReadOnly: true})
				defer mustClose(t, s)
				_, err = s.Latest(context.Background(), mustName("d"))
				wantCorrupt("Latest", err)
				_, err = s.Devices(context.Background(), vitals.Name{}, make([]storage.Device, 1))
				wantCorrupt("Devices", err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, err = s.Scan(context.Background(), storage.Range{Device: mustName("d"), ToUnixMs: 10}, make([]storage.Record, 1))
			wantCorrupt("Scan", err)
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

// FuzzDecodeReading tests the decoder of stored readings. Bytes that it accepts must be
// equal to their encoding.
func FuzzDecodeReading(f *testing.F) {
	f.Add(unhex("01081c200000000000000007"))
	f.Add(unhex("011f2f441edc26161c2016a8000001a1fd8c6ce867773a37"))
	f.Add(unhex("02081c20000000000000000767773a37"))
	f.Add(unhex("0100"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		again, err := pebblestore.ReencodeReading(b)
		if err == nil && !bytes.Equal(again, b) {
			t.Errorf("%x was accepted but is encoded as %x", b, again)
		}
	})
}

// FuzzDecodeRecord does the same for device records.
func FuzzDecodeRecord(f *testing.F) {
	f.Add(unhex("0100000000000000050800000000000000051c20"))
	f.Add(unhex("010000000000000005"))
	f.Fuzz(func(t *testing.T, b []byte) {
		again, err := pebblestore.ReencodeRecord(b)
		if err == nil && !bytes.Equal(again, b) {
			t.Errorf("%x was accepted but is encoded as %x", b, again)
		}
	})
}
