package layout_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

func mustName(text string) *vitals.Name {
	name, err := vitals.ParseName([]byte(text))
	if err != nil {
		panic(err)
	}
	return &name
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// TestGolden compares every kind of key, and the values, with the bytes of the package comment, and decodes
// them again. A change here changes the format: existing stores must stay readable.
func TestGolden(t *testing.T) {
	ab := mustName("a-b")
	full := layout.Record{NewestUnixMs: 5, SealedUnixMs: 4, Known: 1 << vitals.HeartRate, Sizes: layout.Sizes{Smalls: 2, Small: [layout.MaxSmall]uint16{3, 258}}}
	full.LatestUnixMs[vitals.HeartRate], full.Latest[vitals.HeartRate] = 3, 7200
	shifted := full
	shifted.Offsets[vitals.HeartRate] = vitals.MakeUTCOffset(60)
	every := layout.Record{NewestUnixMs: 31, SealedUnixMs: layout.NoSegment, Known: 1<<32 - 1}
	everyText := "04" + "000000000000001f" + "ffffffff"
	for s := range vitals.MaxSigns {
		every.LatestUnixMs[s], every.Latest[s], every.Offsets[s] = int64(s), vitals.Value(-s), vitals.MakeUTCOffset(s)
		everyText += fmt.Sprintf("%016x%08x%04x", s, uint32(-s), uint16(every.Offsets[s]))
	}
	const from = "00000000000000ff"
	worn := layout.Assignment{By: 1, NamedUnixMs: 7, ToUnixMs: 255, Subject: "P-1"}
	for _, tt := range []struct {
		name string
		got  []byte
		want string
	}{
		{"key of a record", layout.AppendRecordKey(nil, ab), "01612d62"},
		{"key of a segment", layout.AppendSegmentKey(nil, ab, 255), "02612d6200" + from},
		{"end of segments", layout.AppendSegmentsEnd(nil, ab), "02612d6201"},
		{"key of a group", layout.AppendGroupKey(nil, 255), "03" + from},
		{"key of a gateway", layout.AppendGatewayKey(nil, 255), "04000000ff"},
		{"key of an assignment", layout.AppendAssignKey(nil, ab, 255), "05612d6200" + from},
		{"key of the index", layout.AppendSubjectKey(nil, "P-1", ab, 255), "06502d3100612d6200" + from},
		{"assignment", layout.AppendAssignment(nil, worn), "0201" + "0000000000000007" + from + "502d31"},
		{"record", layout.AppendRecord(nil, &full), "02" + "0000000000000005" + "08" + "0000000000000003" + "1c20" + "0000000000000004" + "0003" + "0102"},
		{"record with an offset", layout.AppendRecord(nil, &shifted), "03" + "0000000000000005" + "08" + "0000000000000003" + "1c20" + "05dc" + "0000000000000004" + "0003" + "0102"},
		{"record of 32 signs", layout.AppendRecord(nil, &every), everyText + "ffffffffffffffff"},
	} {
		if got := hex.EncodeToString(tt.got); got != tt.want {
			t.Errorf("%s is %s, want %s", tt.name, got, tt.want)
		}
	}
	if name, err := layout.DecodeRecordKey(unhex("01612d62")); err != nil || name != *ab {
		t.Errorf("DecodeRecordKey returns %v, %v", name, err)
	}
	if name, ms, err := layout.DecodeSegmentKey(unhex("02612d6200" + from)); err != nil || name != *ab || ms != 255 {
		t.Errorf("DecodeSegmentKey returns %v, %d, %v", name, ms, err)
	}
	if number, err := layout.DecodeGroupKey(unhex("03" + from)); err != nil || number != 255 {
		t.Errorf("DecodeGroupKey returns %d, %v", number, err)
	}
	if number, err := layout.DecodeGatewayKey(unhex("04000000ff")); err != nil || number != 255 {
		t.Errorf("DecodeGatewayKey returns %d, %v", number, err)
	}
	if name, ms, err := layout.DecodeAssignKey(unhex("05612d6200" + from)); err != nil || name != *ab || ms != 255 {
		t.Errorf("DecodeAssignKey returns %v, %d, %v", name, ms, err)
	}
	if subject, name, ms, err := layout.DecodeSubjectKey(unhex("06502d3100612d6200" + from)); err != nil || subject != "P-1" || name != *ab || ms != 255 {
		t.Errorf("DecodeSubjectKey returns %q, %v, %d, %v", subject, name, ms, err)
	}
	if a, err := layout.DecodeAssignment(unhex("0201" + "0000000000000007" + from + "502d31")); err != nil || a != worn {
		t.Errorf("DecodeAssignment returns %+v, %v", a, err)
	}
	for _, want := range []layout.Record{full, shifted, every} {
		var got layout.Record
		if err := layout.DecodeRecord(layout.AppendRecord(nil, &want), &got); err != nil || got != want {
			t.Errorf("DecodeRecord returns %+v, %v, want %+v", got, err, want)
		}
	}
	if n, err := layout.DecodeNumber(unhex("0102"), 2); err != nil || n != 258 {
		t.Errorf("DecodeNumber returns %d, %v, want 258", n, err)
	}
}

// TestRejected decodes keys and values that the encoders do not write.
func TestRejected(t *testing.T) {
	var r layout.Record
	for name, err := range map[string]error{
		"empty record":              layout.DecodeRecord(nil, &r),
		"record of version 1":       layout.DecodeRecord(unhex("010000000000000005080000000000000003"+"1c20"+"ffffffffffffffff"), &r),
		"record newer than newest":  layout.DecodeRecord(unhex("02"+"0000000000000005"+"08"+"0000000000000006"+"1c20"+"ffffffffffffffff"), &r),
		"sizes without a segment":   layout.DecodeRecord(unhex("02"+"0000000000000005"+"08"+"0000000000000005"+"1c20"+"ffffffffffffffff"+"0001"), &r),
		"offsets that are all zero": layout.DecodeRecord(unhex("03"+"0000000000000005"+"08"+"0000000000000005"+"1c20"+"0000"+"ffffffffffffffff"), &r),
		"key of another kind":       second(layout.DecodeRecordKey(unhex("02612d62"))),
		"key of a short group":      second(layout.DecodeGroupKey(unhex("0300"))),
		"long gateway":              second(layout.DecodeGatewayKey(unhex("040000000000"))),
		"gateway without a name":    second(layout.DecodeGateway(unhex("20"))),
		"long number":               second(layout.DecodeNumber(unhex("0102"), 1)),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// FuzzDecodeRecord tests the decoder of device records. Bytes that it accepts must be equal to
// their encoding.
func FuzzDecodeRecord(f *testing.F) {
	f.Add(unhex("0200000000000000050800000000000000051c20ffffffffffffffff"))
	f.Add(unhex("0200000000000000050800000000000000051c2000000000000000050001"))
	f.Add(unhex("0300000000000000050800000000000000051c20069400000000000000050001"))
	f.Add(unhex("020000000000000005"))
	f.Add(unhex("040000000000000005800000010000000000000005fffffffe05dc0000000000000004000100000000ffffffffffffffff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r layout.Record
		if layout.DecodeRecord(b, &r) != nil {
			return
		}
		again := layout.AppendRecord(nil, &r)
		if layout.RecordBytes(&r) != len(again) {
			t.Errorf("RecordBytes returns %d for %d bytes", layout.RecordBytes(&r), len(again))
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x was accepted but is encoded as %x", b, again)
		}
	})
}
