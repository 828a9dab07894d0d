package layout_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
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
	full := layout.Record{NewestUnixMs: 5, SealedUnixMs: 4, ArrivedUnixMs: 8, Known: 1 << vitals.HeartRate,
		Sizes: layout.Sizes{Smalls: 2, Small: [layout.MaxSmall]uint16{3, 258}}}
	full.LatestUnixMs[vitals.HeartRate], full.Latest[vitals.HeartRate] = 3, 7200
	shifted := full
	shifted.Offsets[vitals.HeartRate] = vitals.MakeUTCOffset(60)
	every := layout.Record{NewestUnixMs: 31, SealedUnixMs: layout.NoSegment, ArrivedUnixMs: 30, Known: 1<<32 - 1}
	everyText := "01" + "1f" + "ffffffff0f"
	for s := range vitals.MaxSigns {
		every.LatestUnixMs[s], every.Latest[s], every.Offsets[s] = int64(s), vitals.Value(-s), vitals.MakeUTCOffset(s)
		everyText += fmt.Sprintf("%02x%02x%02x%02x", 31-s, max(2*s-1, 0), every.Offsets[s]&0x7f|0x80, every.Offsets[s]>>7)
	}
	const from = "00000000000000ff"
	worn := layout.Assignment{By: 1, NamedUnixMs: 7, OtherUnixMs: 255, ChangedUnixMs: 9, Subject: "P-1"}
	start := layout.Event{Kind: layout.EventStart, AtUnixMs: 255, Mark: 0x0102030405060708, Group: 9}
	erased := layout.Event{Kind: layout.EventErased, AtUnixMs: 255, Mark: 1, FromUnixMs: 2, ToUnixMs: 3,
		Signs: 1 << vitals.HeartRate, Device: *ab,
		Spans: []layout.Span{{FromUnixMs: 4, ToUnixMs: 5, Subject: "P-1"}, {FromUnixMs: 5, ToUnixMs: 255, Subject: "Q"}}}
	expired := layout.Event{Kind: layout.EventExpired, AtUnixMs: 255, Mark: 1, ToUnixMs: 3}
	for _, tt := range []struct {
		name string
		got  []byte
		want string
	}{
		{"key of a record", layout.AppendRecordKey(nil, ab), "01612d62"},
		{"bound of segments", layout.AppendSegmentBound(nil, ab, 255), "02612d6200" + from},
		{"key of a segment", layout.AppendSegmentKey(nil, ab, 255, 557), "02612d6200" + from + "dc04"},
		{"key of a segment that came before its time", layout.AppendSegmentKey(nil, ab, 255, 254),
			"02612d6200" + from + "01"},
		{"end of segments", layout.AppendSegmentsEnd(nil, ab), "02612d6201"},
		{"key of a group", layout.AppendGroupKey(nil, 255), "03" + from},
		{"key of a gateway", layout.AppendGatewayKey(nil, 255), "04000000ff"},
		{"key of an assignment", layout.AppendAssignKey(nil, ab, 255), "05612d6200" + from},
		{"key of the index", layout.AppendSubjectKey(nil, "P-1", ab, 255), "06502d3100612d6200" + from},
		{"assignment", layout.AppendAssignment(nil, worn), "0101" + "0000000000000007" + from +
			"0000000000000009" + "502d31"},
		{"record", layout.AppendRecord(nil, &full), "01" + "05" + "08" + "02" + "c070" + "00" + "02" + "06" + "03" + "8202"},
		{"record with an offset", layout.AppendRecord(nil, &shifted), "01" + "05" + "08" + "02" + "c070" + "dc0b" + "02" +
			"06" + "03" + "8202"},
		{"record of 32 signs", layout.AppendRecord(nil, &every), everyText + "00" + "01"},
		{"key of an event", layout.AppendEventKey(nil, 255), "07" + from},
		{"start", layout.AppendEvent(nil, &start), "0101" + from + "0102030405060708" + "0000000000000009"},
		{"erased", layout.AppendEvent(nil, &erased), "0104" + from + "0000000000000001" + "0000000000000002" +
			"0000000000000003" + "00000008" + "03612d62" +
			"0000000000000004" + "0000000000000005" + "03502d31" + "0000000000000005" + from + "0151"},
		{"expired", layout.AppendEvent(nil, &expired), "0105" + from + "0000000000000001" + "0000000000000000" +
			"0000000000000003" + "00000000" + "00"},
	} {
		if got := hex.EncodeToString(tt.got); got != tt.want {
			t.Errorf("%s is %s, want %s", tt.name, got, tt.want)
		}
	}
	if name, err := layout.DecodeRecordKey(unhex("01612d62")); err != nil || name != *ab {
		t.Errorf("DecodeRecordKey returns %v, %v", name, err)
	}
	key := unhex("02612d6200" + from + "dc04")
	if name, last, changed, err := layout.DecodeSegmentKey(key); err != nil || name != *ab || last != 255 ||
		changed != 557 {
		t.Errorf("DecodeSegmentKey returns %v, %d, %d, %v", name, last, changed, err)
	}
	if last, changed := layout.SegmentKeyTime(key), layout.SegmentKeyChanged(key); last != 255 || changed != 557 {
		t.Errorf("the key has the times %d, %d", last, changed)
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
	if subject, name, ms, err := layout.DecodeSubjectKey(unhex("06502d3100612d6200" + from)); err != nil ||
		subject != "P-1" || name != *ab || ms != 255 {
		t.Errorf("DecodeSubjectKey returns %q, %v, %d, %v", subject, name, ms, err)
	}
	if a, err := layout.DecodeAssignment(unhex("0101" + "0000000000000007" + from + "0000000000000009" + "502d31")); err !=
		nil || a != worn {
		t.Errorf("DecodeAssignment returns %+v, %v", a, err)
	}
	if number, err := layout.DecodeEventKey(unhex("07" + from)); err != nil || number != 255 {
		t.Errorf("DecodeEventKey returns %d, %v", number, err)
	}
	for _, want := range []layout.Event{start, erased, expired} {
		got, err := layout.DecodeEvent(layout.AppendEvent(nil, &want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("DecodeEvent returns %+v, %v, want %+v", got, err, want)
		}
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
		"record of a later version": layout.DecodeRecord(unhex("02"+"05"+"08"+"02"+"c070"+"00"+"00"), &r),
		"record without signs":      layout.DecodeRecord(unhex("01"+"05"+"00"+"00"), &r),
		"record with 33 signs":      layout.DecodeRecord(unhex("01"+"05"+"8080808010"+"02"+"c070"+"00"+"00"), &r),
		"record with a long varint": layout.DecodeRecord(unhex("01"+"8500"+"08"+"02"+"c070"+"00"+"00"), &r),
		"latest value before 1970":  layout.DecodeRecord(unhex("01"+"05"+"08"+"06"+"c070"+"00"+"00"), &r),
		"value of 33 bits":          layout.DecodeRecord(unhex("01"+"05"+"08"+"02"+"8080808010"+"00"+"00"), &r),
		"too large an offset":       layout.DecodeRecord(unhex("01"+"05"+"08"+"02"+"c070"+"c016"+"00"), &r),
		"segments before 1970":      layout.DecodeRecord(unhex("01"+"05"+"08"+"02"+"c070"+"00"+"07"), &r),
		"sizes without a segment": layout.DecodeRecord(unhex("01"+"05"+"08"+"02"+"c070"+"00"+"00"+"06"+"01"),
			&r),
		"empty segment": layout.DecodeRecord(unhex("01"+"05"+"08"+"02"+"c070"+"00"+"02"+"06"+"00"),
			&r),
		"size of 17 bits": layout.DecodeRecord(
			unhex("01"+"05"+"08"+"02"+"c070"+"00"+"02"+"06"+"808004"), &r),
		"17 sizes": layout.DecodeRecord(
			unhex("01"+"05"+"08"+"02"+"c070"+"00"+"02"+"06"+strings.Repeat("01", 17)), &r),
		"record without an arrival":             layout.DecodeRecord(unhex("01"+"05"+"08"+"02"+"c070"+"00"+"02"), &r),
		"key of another kind":                   second(layout.DecodeRecordKey(unhex("02612d62"))),
		"key of a segment that was not changed": segmentKey("02612d6200" + "00000000000000ff"),
		"key of a segment with more":            segmentKey("02612d6200" + "00000000000000ff" + "dc0400"),
		"key of a segment with a long varint":   segmentKey("02612d6200" + "00000000000000ff" + "dc8400"),
		"key of a segment before 1970":          segmentKey("02612d6200" + "ffffffffffffffff" + "00"),
		"key of a segment of no device":         segmentKey("0200" + "00000000000000ff" + "00"),
		"key of a short segment":                segmentKey("02612d6200" + "000000000000ff"),
		"key of a short group":                  second(layout.DecodeGroupKey(unhex("0300"))),
		"long gateway":                          second(layout.DecodeGatewayKey(unhex("040000000000"))),
		"gateway without a name":                second(layout.DecodeGateway(unhex("20"))),
		"key of a short event":                  second(layout.DecodeEventKey(unhex("0700"))),
		"short event": second(
			layout.DecodeEvent(unhex("0101" + "0000000000000000" + "00000000000000"))),
		"event of a later version": second(layout.DecodeEvent(unhex("0201" + "0000000000000000" + "0000000000000000"))),
		"event of no kind":         second(layout.DecodeEvent(unhex("0100" + "0000000000000000" + "0000000000000000"))),
		"event of a later kind":    second(layout.DecodeEvent(unhex("0108" + "0000000000000000" + "0000000000000000"))),
		"start with more": second(
			layout.DecodeEvent(unhex("0101" + strings.Repeat("00", 16) + strings.Repeat("00", 9)))),
		"start without a group": second(layout.DecodeEvent(unhex("0101" + strings.Repeat("00", 16)))),
		"erased without a span": second(
			layout.DecodeEvent(unhex("0104" + strings.Repeat("00", 16) + strings.Repeat("00", 20)))),
		"erased with a long name": second(
			layout.DecodeEvent(unhex("0104" + strings.Repeat("00", 16) + strings.Repeat("00", 20) + "0261"))),
		"erased with no name": second(
			layout.DecodeEvent(unhex("0104" + strings.Repeat("00", 16) + strings.Repeat("00", 20) + "0120"))),
		"span without a subject": second(
			layout.DecodeEvent(unhex("0104" + strings.Repeat("00", 16) + strings.Repeat("00", 20) + "00" +
				strings.Repeat("00", 17)))),
		"span with a long subject": second(
			layout.DecodeEvent(unhex("0104" + strings.Repeat("00", 16) + strings.Repeat("00", 20) + "00" +
				strings.Repeat("00", 16) + "0251"))),
		"short span": second(layout.DecodeEvent(unhex("0104" + strings.Repeat("00", 16) + strings.Repeat("00", 20) + "00" +
			strings.Repeat("00", 16)))),
		"long number": second(layout.DecodeNumber(unhex("0102"), 1)),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func segmentKey(text string) error {
	_, _, _, err := layout.DecodeSegmentKey(unhex(text))
	return err
}

func second[T any](_ T, err error) error { return err }

// FuzzDecodeEvent does with events what FuzzDecodeRecord does with records.
func FuzzDecodeEvent(f *testing.F) {
	f.Add(unhex("0101" + "00000000000000ff" + "0102030405060708" + "0000000000000009"))
	f.Add(unhex("0104" + strings.Repeat("00", 16) + strings.Repeat("00", 20) + "03612d62" +
		strings.Repeat("00", 16) + "0151"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := layout.DecodeEvent(b); err == nil && !bytes.Equal(layout.AppendEvent(nil, &e), b) {
			t.Errorf("%x was accepted but is encoded as %x", b, layout.AppendEvent(nil, &e))
		}
	})
}

// FuzzDecodeRecord tests the decoder of device records. Bytes that it accepts must be equal to
// their encoding.
func FuzzDecodeRecord(f *testing.F) {
	f.Add(unhex("01050802c07000020603"))
	f.Add(unhex("01050802c070dc0b02068202"))
	f.Add(unhex("010500"))
	f.Add(unhex("01058980808008" + "000100" + "050000" + "058080808010dc0b" + "0101"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r layout.Record
		if layout.DecodeRecord(b, &r) != nil {
			return
		}
		again := layout.AppendRecord(nil, &r)
		if !bytes.Equal(again, b) {
			t.Errorf("%x was accepted but is encoded as %x", b, again)
		}
	})
}
