package hl7_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// good is an OBX that is stored. Tests replace one of its fields.
const good = `OBX|1|NM|147842^MDC_ECG_HEART_RATE^MDC|1.5.1.1|72|264864^MDC_DIM_BEAT_PER_MIN^MDC||N|||R|||202611220930` +
	`00+0000||||d`

// with returns a segment with another field.
func with(segment string, field int, text string) string {
	fields := strings.Split(segment, "|")
	fields[field] = text
	return strings.Join(fields, "|")
}

// An OBX that is rejected has an ERR segment with its place and the reason, and the others are stored.
func TestRejectedOBX(t *testing.T) {
	const code, kind, missing, internal = "103^Table value not found", "102^Data type error", "101^Required field missing",
		"207^Application internal error"
	for _, tt := range []struct {
		name  string
		field int
		text  string
		want  string // ERR-2, ERR-3 and ERR-8; "" means that it is not a reading
	}{
		{"no value", 5, "", ""},
		{"code of the device's structure", 3, "69965^MDC_DEV_MON_PHYSIO_MULTI_PARAM_MDS^MDC", ""},
		{"code of the message", 3, "528391^MDC_DEV_SPEC_PROFILE_BP^MDC", ""},
		{"type", 2, "ST", "2|" + kind + "|OBX-2: not NM; only numbers are stored"},
		{"no type", 2, "", "2|" + kind + "|OBX-2: not NM; only numbers are stored"},
		{"no code", 3, "", "3|" + code + "|OBX-3: not a code of a sign in MDC or LN"},
		{"code of no sign", 3, "150023^MDC_PRESS_BLD_NONINV_MEAN^MDC",
			"3|" + code + "|OBX-3: not a code of a sign in MDC or LN"},
		{"code without a system", 3, "147842", "3|" + code + "|OBX-3: not a code of a sign in MDC or LN"},
		{"code of another system", 3, "147842^HR^99MNDRY", "3|" + code + "|OBX-3: not a code of a sign in MDC or LN"},
		{"LOINC code as one of MDC", 3, "8867-4^^MDC", "3|" + code + "|OBX-3: not a code of a sign in MDC or LN"},
		{"codes of two signs", 3, "147842^^MDC^9279-1^^LN", "3|" + code + "|OBX-3: the codes are of different signs"},
		{"one code of no sign", 3, "147842^^MDC^1-8^^LN", "3|" + code + "|OBX-3: the codes are of different signs"},
		{"two values", 5, "72~73", "5|" + kind + "|OBX-5: several values"},
		{"text", 5, "high", "5|" + kind + "|OBX-5: not a number"},
		{"null", 5, `""`, "5|" + kind + "|OBX-5: not a number"},
		{"sign only", 5, "+", "5|" + kind + "|OBX-5: not a number"},
		{"point only", 5, ".", "5|" + kind + "|OBX-5: not a number"},
		{"two points", 5, "7.2.1", "5|" + kind + "|OBX-5: not a number"},
		{"exponent", 5, "72e0", "5|" + kind + "|OBX-5: not a number"},
		{"space", 5, "72 ", "5|" + kind + "|OBX-5: not a number"},
		{"components", 5, "72^73", "5|" + kind + "|OBX-5: not a number"},
		{"escape", 5, `7\X32\`, "5|" + kind + "|OBX-5: not a number"},
		{"too fine", 5, "72.001", "5|" + internal + "|OBX-5: more than two decimals"},
		{"zero", 5, "0", "5|" + internal + "|heart_rate_bpm: no signal"},
		{"out of range", 5, "-100", "5|" + internal + "|heart_rate_bpm: outside the accepted range 20 to 300 /min"},
		{"the mark of a value that is not available", 5, "8388607",
			"5|" + internal + "|heart_rate_bpm: outside the accepted range 20 to 300 /min"},
		{"huge", 5, strings.Repeat("9", 500), "5|" + internal + "|OBX-5: outside the accepted range"},
		{"no unit", 6, "", "6|" + missing + "|OBX-6: missing: /min or MDC 264864 would do"},
		{"another code of the unit", 6, "264672^MDC_DIM_PER_MIN^MDC^/min^^UCUM", ""},
		{"unit of MDC", 6, "264608^MDC_DIM_PER_SEC^MDC",
			"6|" + code + "|OBX-6: not the unit of heart_rate_bpm: /min or MDC 264864 would do"},
		{"unit of UCUM", 6, "/s^^UCUM", "6|" + code + "|OBX-6: not the unit of heart_rate_bpm: /min or MDC 264864 would do"},
		{"unit of another system", 6, "/min^^99X",
			"6|" + code + "|OBX-6: not the unit of heart_rate_bpm: /min or MDC 264864 would do"},
		{"everyday unit", 6, "bpm", ""},
		{"two units", 6, "264864^^MDC^/s^^UCUM",
			"6|" + code + "|OBX-6: not the unit of heart_rate_bpm: /min or MDC 264864 would do"},
		{"open brace", 6, "{beat/min", "6|" + code + "|OBX-6: not the unit of heart_rate_bpm: /min or MDC 264864 would do"},
		{"no status", 11, "", "11|" + missing + "|OBX-11: missing"},
		{"preliminary", 11, "P", "11|" + code + "|OBX-11: neither R nor F; other results are not stored"},
		{"correction", 11, "C", "11|" + code + "|OBX-11: neither R nor F; other results are not stored"},
		{"deletion", 11, "D", "11|" + code + "|OBX-11: neither R nor F; other results are not stored"},
		{"not obtained", 11, "X", "11|" + code + "|OBX-11: neither R nor F; other results are not stored"},
		{"no time", 14, "yesterday", "14|" + kind + "|OBX-14: not a time such as 20060102150405.000+0100"},
		{"no such day", 14, "20260230093000+0000", "14|" + kind + "|OBX-14: not a time such as 20060102150405.000+0100"},
		{"leap second", 14, "20261122093060+0000", "14|" + kind + "|OBX-14: not a time such as 20060102150405.000+0100"},
		{"offset of three digits", 14, "20261122093000+000",
			"14|" + kind + "|OBX-14: not a time such as 20060102150405.000+0100"},
		{"no such offset", 14, "20261122093000+2400", "14|" + kind + "|OBX-14: not a time such as 20060102150405.000+0100"},
		{"no digits after the point", 14, "20261122093000.+0000",
			"14|" + kind + "|OBX-14: not a time such as 20060102150405.000+0100"},
		{"milliseconds without a point", 14, "20261122093000000+0000",
			"14|" + kind + "|OBX-14: not a time such as 20060102150405.000+0100"},
		{"minutes", 14, "202611220930+0000", "14|" + kind + "|OBX-14: coarser than a second; times are not guessed"},
		{"days", 14, "20261122", "14|" + kind + "|OBX-14: coarser than a second; times are not guessed"},
		{"four digits of a second", 14, "20261122093000.0009+0000", ""},
		{"future", 14, "20261123093000+0000", "14|" + internal + "|OBX-14: more than 5m0s ahead of the server's clock"},
		{"past", 14, "19691231235959+0000", "14|" + internal + "|OBX-14: before 1970"},
		{"no device", 18, "", "18|" + missing + "|OBX-18: missing"},
		{"a device with spaces", 18, "Room 4",
			"18|" + internal + "|OBX-18: not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"},
		{"half of a blood pressure", 3, "150022^MDC_PRESS_BLD_NONINV_DIA^MDC",
			"6|" + code + "|OBX-6: not the unit of diastolic_mmhg: mm[Hg] or MDC 266016 would do"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, ingest.Config{}, hl7.Options{})
			other := with(good, 18, "other")
			want := ackHeader + "MSA|AE|MSGID1234\n"
			if tt.want == "" {
				want = ackHeader + "MSA|AA|MSGID1234\n"
			} else {
				parts := strings.Split(tt.want, "|")
				want += "ERR||OBX^2^" + parts[0] + "|" + parts[1] + "^HL70357|E||||" + parts[2] + "\n"
			}
			if got := s.send(header + strings.Join([]string{other, with(good, tt.field, tt.text)}, "\n")); got != want {
				t.Errorf("answer\n%swant\n%s", got, want)
			}
			if got := s.all(t, "other"); len(got) != 1 {
				t.Errorf("stored of the other OBX: %q", got)
			}
		})
	}
}

// A message that is rejected as a whole is answered with AR, the field and the reason.
func TestRejectedMessage(t *testing.T) {
	const reject = "MSA|AR|MSGID1234\nERR||MSH^1^"
	for _, tt := range []struct {
		name, message, want string
	}{
		{"nothing", "",
			"MSH|^~\\&|Pulsegate||||20261122100000.000+0000||ACK^^ACK||P|2.6\nMSA|AR|\nERR||MSH^1|100^Segment sequence " +
				"error^HL70357|E||||the message does not begin with MSH\n"},
		{"another segment", "FHS|^~\\&|",
			"MSH|^~\\&|Pulsegate||||20261122100000.000+0000||ACK^^ACK||P|2.6\nMSA|AR|\nERR||MSH^1|100^Segment sequence " +
				"error^HL70357|E||||the message does not begin with MSH\n"},
		{"a separator twice", "MSH|^~^&|a\n",
			"MSH|^~\\&|Pulsegate||||20261122100000.000+0000||ACK^^ACK||P|2.6\nMSA|AR|\nERR||MSH^1^2|102^Data type " +
				"error^HL70357|E||||MSH-2: not four different separators\n"},
		{"a long MSH-2", "MSH|^~\\&#+|a\n",
			"MSH|^~\\&|Pulsegate||a||20261122100000.000+0000||ACK^^ACK||P|2.6\nMSA|AR|\nERR||MSH^1^2|102^Data type " +
				"error^HL70357|E||||MSH-2: not four different separators\n"},
		{"message", strings.Replace(header, "ORU^R01^ORU_R01", "ADT^A08", 1), strings.Replace(ackHeader, "R01", "A08", 1) +
			reject + "9|200^Unsupported message type^HL70357|E||||MSH-9: not ORU with the event R01\n"},
		{"event", strings.Replace(header, "ORU^R01^ORU_R01", "ORU^R40^ORU_R40", 1), strings.Replace(ackHeader, "R01", "R40",
			1) + reject + "9|201^Unsupported event code^HL70357|E||||MSH-9: not ORU with the event R01\n"},
		{"no control ID", strings.Replace(header, "MSGID1234", "", 1), strings.Replace(ackHeader, "MSGID1234", "", 1) +
			"MSA|AR|\nERR||MSH^1^10|101^Required field missing^HL70357|E||||MSH-10: missing\n"},
		{"training", strings.Replace(header, "|P|", "|T|", 1), ackHeader + reject +
			"11|202^Unsupported processing id^HL70357|E||||MSH-11: not P; messages of trainings and tests are not stored\n"},
		{"version", strings.Replace(header, "2.6", "3.0", 1), strings.Replace(ackHeader, "2.6", "3.0", 1) + reject +
			"12|203^Unsupported version id^HL70357|E||||MSH-12: not a version of HL7 v2\n"},
		{"character set", strings.Replace(header, "AL|||||IHE", "AL||8859/16|||IHE", 1), strings.TrimSuffix(ackHeader, "\n") +
			"||||||8859/16\n" + reject +
			"18|103^Table value not found^HL70357|E||||MSH-18: neither ASCII, UNICODE UTF-8 nor 8859/1 to 8859/15; other " +
			"character sets are not read\n"},
		{"not UTF-8", strings.Replace(header, "MSGID1234", "M\xfc", 1), strings.ReplaceAll(ackHeader, "MSGID1234", "M?") +
			"MSA|AR|M?\nERR||MSH^1^10|102^Data type error^HL70357|E||||MSH-10: not UTF-8, and MSH-18 is not one of 8859/1 " +
			"to 8859/15\n"},
		{"two messages", header + good + "\n" + header,
			ackHeader + "MSA|AR|MSGID1234\nERR||MSH^2|100^Segment sequence error^HL70357|E||||a second message\n"},
		{"a segment without a name", header + good + "\nobx|2",
			ackHeader + "MSA|AR|MSGID1234\nERR|||100^Segment sequence error^HL70357|E||||segment 3 has no name\n"},
		{"too many readings", header + strings.Repeat(good+"\n", 4),
			ackHeader +
				"MSA|AR|MSGID1234\nERR|||207^Application internal error^HL70357|E||||The body is too large: A batch may have 3 " +
				"readings.\n"},
		{"the server ends", header + good, ""}, // it may be stored later
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, ingest.Config{MaxReadings: 3}, hl7.Options{})
			if tt.name == "the server ends" {
				_ = s.core.Close(t.Context())
			}
			if got := s.send(tt.message); got != tt.want {
				t.Errorf("answer\n%swant\n%s", got, tt.want)
			}
			if got := s.all(t, "d"); len(got) > 0 {
				t.Errorf("stored %q", got)
			}
		})
	}
}

// Halves of blood pressures are joined only if they are of one device, time and group.
func TestPressures(t *testing.T) {
	systolic := `OBX|1|NM|150021^^MDC|1.1.1.1|120|266016^^MDC|||||R|||20261122093000+0000||||d`
	diastolic := `OBX|2|NM|150022^^MDC|1.1.1.2|80|266016^^MDC|||||R|||20261122093000+0000||||d`
	single := func(ordinal string) string {
		lacks := map[string]string{"1": "diastolic_mmhg", "2": "systolic_mmhg"}[ordinal]
		return "ERR||OBX^" + ordinal + "|207^Application internal error^HL70357|E||||" + lacks +
			": systolic and diastolic go together\n"
	}
	for _, tt := range []struct {
		name     string
		segments []string
		want     string
	}{
		{"in order", []string{systolic, diastolic}, ""},
		{"reversed", []string{diastolic, good, systolic}, ""},
		{"without OBX-4", []string{with(systolic, 4, ""), with(diastolic, 4, "")}, ""},
		{"of a cuff, and by LOINC", []string{with(systolic, 3, "150301^^MDC"), with(diastolic, 3, "8462-4^^LN")}, ""},
		{"one", []string{systolic}, single("1")},
		{"of two groups", []string{systolic, with(diastolic, 4, "1.1.2.2")}, single("1") + single("2")},
		{"of two times", []string{systolic, with(diastolic, 14, "20261122093001+0000")}, single("1") + single("2")},
		{"of two devices", []string{systolic, with(diastolic, 18, "e")}, single("1") + single("2")},
		{"of two orders", []string{systolic, order + diastolic}, single("1") + single("2")},
		{"one rejected", []string{systolic, with(diastolic, 5, "low")},
			single("1") + "ERR||OBX^2^5|102^Data type error^HL70357|E||||OBX-5: not a number\n"},
		{"order of values", []string{with(systolic, 5, "70"), diastolic},
			"ERR||OBX^1^5|207^Application internal error^HL70357|E||||systolic_mmhg: systolic is not above diastolic\n" +
				"ERR||OBX^2|207^Application internal error^HL70357|E||||systolic_mmhg: systolic is not above diastolic\n"},
		{"one twice", []string{systolic, with(systolic, 5, "130"), diastolic},
			strings.Replace(single("1"), "OBX^1", "OBX^2", 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, ingest.Config{}, hl7.Options{})
			want := ackHeader + "MSA|AE|MSGID1234\n" + tt.want
			if tt.want == "" {
				want = ackHeader + "MSA|AA|MSGID1234\n"
			}
			if got := s.send(header + strings.Join(tt.segments, "\n")); got != want {
				t.Errorf("answer\n%swant\n%s", got, want)
			}
			if got := strings.Join(s.all(t, "d"), ""); strings.Contains(got, "systolic_mmhg:120,diastolic_mmhg:80") !=
				(tt.want == "" || tt.name == "one twice") {
				t.Errorf("stored %q", got)
			}
		})
	}
}

// A change of what was sent before is rejected although it has no value: a stored reading never changes.
func TestChanges(t *testing.T) {
	for status, stored := range map[string]bool{"C": false, "D": false, "U": false, "W": false, "X": true,
		"R": true, "": true} {
		s := serve(t, ingest.Config{}, hl7.Options{})
		want := "MSA|AA|MSGID1234\n"
		if !stored {
			want = "MSA|AE|MSGID1234\nERR||OBX^1^11|103^Table value not found^HL70357|E||||OBX-11: neither R nor F; other " +
				"results are not stored\n"
		}
		if got := s.send(header + with(with(good, 5, ""), 11, status)); got != ackHeader+want {
			t.Errorf("%q: answer\n%swant\n%s", status, got, ackHeader+want)
		}
	}
}

// A reading inherits from what contains it in the same order, the nearest first, and from nothing else.
func TestInheritance(t *testing.T) {
	structure := func(path, time, device string) string {
		return "OBX|1||70687^MDC_DEV_PRESS_BLD_NONINV_CHAN^MDC|" + path + "|||||||X|||" + time + "||||" + device
	}
	value := with(with(with(good, 4, "1.2.3.4"), 14, ""), 18, "")
	const at1, at2 = "20261122090001+0000", "20261122090002+0000"
	const noDevice, noTime = "OBX-18: missing", "OBX-14: missing"
	for _, tt := range []struct {
		name     string
		segments []string
		want     string
	}{
		{"system", []string{structure("1.0.0.0", at1, "a"), value}, "a 2026-11-22T09:00:01"},
		{"system without zeros", []string{structure("1", at1, "a"), value}, "a 2026-11-22T09:00:01"},
		{"channel before system", []string{structure("1.2.3.0", at2, ""), structure("1.0.0.0", at1, "a"), value},
			"a 2026-11-22T09:00:02"},
		{"its own first", []string{structure("1", at1, "a"), with(with(value, 14, at2), 18, "b")}, "b 2026-11-22T09:00:02"},
		{"order last", []string{"OBR|1||||||" + at2, "PRT|1|||||||||c", structure("1", at1, ""), value},
			"c 2026-11-22T09:00:01"},
		{"another channel", []string{structure("1.2.4.0", at1, "a"), value}, noTime},
		{"another system", []string{structure("11", at1, "a"), value}, noTime},
		{"a value's", []string{with(good, 4, "1.2.3.0"), value}, noTime},
		{"another order", []string{structure("1", at1, "a"), "OBR|2||||||" + at2, value}, noDevice},
		{"another patient", []string{"OBR|1||||||" + at1, structure("1", at1, "a"), patient + "PRT|1|||||||||c", value},
			noTime},
		{"a PRT of the OBX before", []string{"OBR|1||||||" + at1, good, "PRT|1|||||||||c", value}, noDevice},
		{"too deep", []string{structure("1", at1, "a"), with(value, 4, strings.Repeat("1.", 9)+"1")}, noTime},
	} {
		s := serve(t, ingest.Config{}, hl7.Options{})
		answer := s.send(header + strings.Join(tt.segments, "\n"))
		if got := answer + strings.Join(s.all(t, "a", "b", "c"), "\n"); !strings.Contains(got, tt.want) ||
			strings.Contains(answer, "MSA|AA") == strings.Contains(tt.want, "OBX") {
			t.Errorf("%s:\n%s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// The structures of an order are bounded: a message of many does not fill the memory.
func TestManyStructures(t *testing.T) {
	for n, want := range map[int]string{
		4096: ackHeader + "MSA|AA|MSGID1234\n",
		5000: ackHeader +
			"MSA|AR|MSGID1234\nERR||OBX^4097^4|207^Application internal error^HL70357|E||||OBX-4: more than 4096 structures\n",
	} {
		message := strings.Builder{}
		message.WriteString(header)
		for i := range n {
			fmt.Fprintf(&message, "OBX||||%d||||||||||1\n", i+1)
		}
		s := serve(t, ingest.Config{}, hl7.Options{})
		if got := s.send(message.String() + "OBR|2\n" + good); got != want {
			t.Errorf("%d structures: answer\n%swant\n%s", n, got, want)
		}
		if stored := len(s.all(t, "d")); (stored == 1) != (n == 4096) {
			t.Errorf("%d structures: %d readings are stored", n, stored)
		}
	}
}

// Another value than the stored one is a duplicate key.
func TestConflict(t *testing.T) {
	s := serve(t, ingest.Config{}, hl7.Options{})
	s.send(header + good)
	want := ackHeader +
		"MSA|AE|MSGID1234\nERR||OBX^2^5|205^Duplicate key identifier^HL70357|E||||heart_rate_bpm: contradicts the " +
		"stored value\n"
	if got := s.send(header + with(good, 14, "20261122093001+0000") + "\n" + with(good, 5, "73")); got != want {
		t.Errorf("answer\n%swant\n%s", got, want)
	}
}

// Codes that no sign has may be left out.
func TestIgnoreUnknown(t *testing.T) {
	s := serve(t, ingest.Config{}, hl7.Options{IgnoreUnknown: true})
	message := header + good + "\n" + with(good, 3, "150023^^MDC") + "\n" + with(with(good, 3, "150023^^MDC"), 2, "CWE")
	if got := s.send(message); got != ackHeader+"MSA|AA|MSGID1234\n" {
		t.Error(got)
	}
	if got := s.send(header + with(good, 3, "147842^^MDC^9279-1^^LN")); !strings.Contains(got, "MSA|AE") {
		t.Errorf("different signs: %s", got)
	}
}

// An OBX with the code of a sign and another code is rejected, not left out.
func TestHalfKnown(t *testing.T) {
	for _, codes := range []string{"8867-4^^LN^150023^^MDC", "150023^^MDC^8867-4^^LN", "8867-4^^LN^69965^^MDC",
		"69965^^MDC^8867-4^^LN"} {
		s := serve(t, ingest.Config{}, hl7.Options{IgnoreUnknown: true})
		want := ackHeader +
			"MSA|AE|MSGID1234\nERR||OBX^1^3|103^Table value not found^HL70357|E||||OBX-3: the codes are of different signs\n"
		if got := s.send(header + with(good, 3, codes)); got != want {
			t.Errorf("%s: answer\n%swant\n%s", codes, got, want)
		}
	}
}

// A time without an offset has that of MSH-7, or is a time of the zone if the zone has it once.
func TestZones(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	try(t, err)
	unzoned := strings.Replace(header, "+0000|", "|", 1)
	const skipped, twice = "OBX-14: the zone has no such time: its clock was put forward",
		"OBX-14: the zone has this time twice: its clock was put back"
	for _, tt := range []struct {
		name, header string
		zone         *time.Location
		text, want   string
	}{
		{"MSH-7", header, nil, "20261122093000", "2026-11-22T09:30:00.000+00:00"},
		{"MSH-7 before the zone", header, berlin, "20261122093000", "2026-11-22T09:30:00.000+00:00"},
		{"its own", header, berlin, "20261122093000-0330", "OBX-14: more than 5m0s ahead of the server's clock"},
		{"UTC without an offset", header, berlin, "20261122093000-0000", "2026-11-22T09:30:00.000Z"},
		{"zone", unzoned, berlin, "20261122093000", "2026-11-22T09:30:00.000+01:00"},
		{"zone in summer", unzoned, berlin, "20260722093000.5", "2026-07-22T09:30:00.500+02:00"},
		{"gap", unzoned, berlin, "20260329023000", skipped},
		{"fold", unzoned, berlin, "20261025023000", twice},
		{"none", unzoned, nil, "20261122093000", "OBX-14: no time zone"},
	} {
		s := serve(t, ingest.Config{}, hl7.Options{Zone: tt.zone})
		answer := s.send(tt.header + with(good, 14, tt.text))
		got := strings.Join(s.all(t, "d"), "")
		if !strings.Contains(answer+got, tt.want) {
			t.Errorf("%s: answer\n%sstored %s, want %s", tt.name, answer, got, tt.want)
		}
	}
}

// serveSigns returns a service with the signs of another.
func serveSigns(t *testing.T, s *service) *service {
	t.Helper()
	var err error
	s.core, err = ingest.New(s.Memory, problem.New(), ingest.Config{Now: func() time.Time { return receivedAt },
		Limits: s.Signs().DefaultLimits()})
	try(t, err)
	t.Cleanup(func() { _ = s.core.Close(context.Background()) })
	return s
}

// An own sign has LOINC codes. A general code is that of the first sign that has it.
func TestOwnSigns(t *testing.T) {
	s := serve(t, ingest.Config{}, hl7.Options{})
	own := vitals.Definition{Field: "fev1_l", Label: "FEV1", Unit: "L", Decimals: 2, LOINC: []string{"20150-9", "8867-4"},
		Accepted: vitals.Range{Min: 50, Max: 12_00}, Usual: vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}}
	try(t, s.Signs().Define([]vitals.Definition{own}))
	s = serveSigns(t, s)
	message := header + with(with(with(good, 3, "20150-9^^LN"), 5, "3.25"), 6, "L^^UCUM") + "\n" +
		with(with(good, 3, "8867-4^^LN"), 6, "/min")
	if got := s.send(message); got != ackHeader+"MSA|AA|MSGID1234\n" {
		t.Error(got)
	}
	if got := s.all(t, "d"); len(got) != 1 || !strings.Contains(got[0], "heart_rate_bpm:72,fev1_l:3.25") {
		t.Errorf("stored %q", got)
	}
}

// The device of the message's origin is that of OBX without one, and others are rejected.
func TestOrigin(t *testing.T) {
	s := serve(t, ingest.Config{}, hl7.Options{})
	s.origin.Device, _ = vitals.ParseName("bed-4")
	s.origin.Gateway, _ = vitals.ParseName("ward-2")
	want := ackHeader +
		"MSA|AE|MSGID1234\nERR||OBX^2^18|207^Application internal error^HL70357|E||||OBX-18: not the one of the topic or " +
		"of the credentials\n"
	if got := s.send(header + with(good, 18, "") + "\n" + good); got != want {
		t.Errorf("answer\n%swant\n%s", got, want)
	}
	if got := s.all(t, "bed-4"); len(got) != 1 || !strings.HasSuffix(got[0], "gateway ward-2") {
		t.Errorf("stored %q", got)
	}
}

// The patient of a message gets its devices, and a rejection names neither the patient nor a value.
func TestPatients(t *testing.T) {
	const (
		refused        = "ERR||PID^1^3|103^Table value not found^HL70357|E||||PID-3: "
		otherAuthority = refused + "no identifier of the assigning authority that --mllp-authority names\n"
		ambiguous      = refused + "several identifiers of the authority; --mllp-authority may name a type, too\n"
	)
	for _, tt := range []struct{ name, authority, message, assigned, want string }{
		{"one", "Imaginary Hospital", patient + good, "d 789567", ""},
		{"none", "", good, "", ""},
		{"no identifier", "", "PID|||^^^Hospital^PI\n" + good, "", ""},
		{"no authority", "", "PID|||a-1^^^^MR~^^^H~a-1\n" + good, "d a-1", ""},
		{"no authority, beside one with", "", "PID|||1^^^H~a-1~2^^^&1.2.3&ISO\n" + good, "d a-1", ""},
		{"the same number of another authority", "", "PID|||a-1^^^H^MR\n" + good, "", otherAuthority},
		{"the same number of another authority, with a setting", "H", "PID|||a-1^^^I^MR\n" + good, "", otherAuthority},
		{"no authority, with a setting", "H", "PID|||a-1\n" + good, "", otherAuthority},
		{"two without an authority", "", "PID|||a-1~2\n" + good, "", ambiguous},
		{"two types", "H", "PID|||a-1^^^H^MR~2^^^H^PI\n" + good, "", ambiguous},
		{"the type", "H^PI", "PID|||a-1^^^H^MR~2^^^H^PI~3^^^I^PI\n" + good, "d 2", ""},
		{"another type", "H^PI", "PID|||a-1^^^H^MR\n" + good, "", otherAuthority},
		{"a type without an authority", "^PI", "PID|||a-1^^^^MR~2^^^^PI~3^^^H^PI\n" + good, "d 2", ""},
		{"an authority by its universal ID", "1.2.3", "PID|||1^^^H&1.2.4&ISO~a-1^^^H&1.2.3&ISO\n" + good, "d a-1", ""},
		{"an authority by its name", "H & H", "PID|||1^^^I&1.2.3&ISO~a-1^^^H \\T\\ H&1.2.3&ISO\n" + good, "d a-1", ""},
		{"two authorities of one patient", "H", "PID|||1^^^I~a-1^^^H\nPID|||a-1^^^H~2^^^J\n" + good, "d a-1", ""},
		{"two patients of another authority", "H", "PID|||1^^^I\nPID|||2^^^I\n" + good, "",
			refused + "the message has several patients\n"},
		{"the same again", "Imaginary Hospital", patient + patient + good, "d 789567", ""},
		{"several patients", "Imaginary Hospital", patient + "PID|||2\n" + good, "",
			refused + "the message has several patients\n"},
		{"one, and then one without an identifier", "Imaginary Hospital", patient + "PID|||^^^Hospital^PI\n" + good, "",
			refused + "the message has several patients\n"},
		{"one without an identifier, and then one", "Imaginary Hospital", "PID|||\n" + patient + good, "",
			refused + "the message has several patients\n"},
		{"not an identifier of Pulsegate", "", "PID|||K.-L. Doe\n" + good, "",
			refused + "not 1 to 64 of A-Z, a-z, 0-9, hyphen and dot\n"},
		{"assigned to another one", "", "PID|||other\n" + strings.ReplaceAll(good, "||||d", "||||worn"), "",
			refused + "not the patient to whom the device was assigned at that time\n"},
		{"deleted", "", "PID|||\"\"\n" + good, "", ""},
		{"nobody wears a device that was assigned by hand", "", "PID|||\"\"^^^H\n" + strings.ReplaceAll(good, "||||d",
			"||||worn"), "", ""},
		{"a rejected reading", "Imaginary Hospital", patient + with(good, 5, "high"), "",
			"ERR||OBX^1^5|102^Data type error^HL70357|E||||OBX-5: not a number\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, ingest.Config{},
				hl7.Options{Authority: tt.authority, Patients: hl7.Patients{Assign: true, Back: 24 * time.Hour}})
			worn := storage.Assignment{Subject: "somebody", ToUnixMs: storage.OpenEnd}
			worn.Device, _ = vitals.ParseName("worn")
			try(t, s.Assign(t.Context(), worn))
			want := ackHeader + "MSA|AA|MSGID1234\n"
			if tt.want != "" {
				want = ackHeader + "MSA|AE|MSGID1234\n" + tt.want
			}
			if got := s.send(header + tt.message); got != want {
				t.Errorf("answer\n%swant\n%s", got, want)
			}
			all := make([]storage.Assignment, 9)
			n, err := s.Assignments(t.Context(), storage.AssignmentKey{}, all)
			got := ""
			for _, a := range storage.Worn(slices.Clone(all[:n])) {
				if a != worn {
					got += fmt.Sprint(a.Device, " ", a.Subject)
				}
			}
			if err != nil || got != tt.assigned || n == 0 || all[n-1] != worn {
				t.Errorf("assigned %q, %v, want %q and that of the other device: %v", got, err, tt.assigned, all[:n])
			}
		})
	}
}

// An answer lists a bounded number of OBX.
func TestManyRejected(t *testing.T) {
	s := serve(t, ingest.Config{MaxReadings: 2000}, hl7.Options{})
	got := s.send(header + strings.Repeat(with(good, 2, "ST")+"\n", 1234))
	if n := strings.Count(got, "\nERR|"); n != 1001 ||
		!strings.HasSuffix(got, "ERR|||207^Application internal error^HL70357|E||||234 further OBX were rejected\n") {
		t.Errorf("%d ERR; %s", n, got[len(got)-200:])
	}
}

// What a device disowns, and names nothing else rightly, takes no place in the answer from what is rejected.
func TestManyLeftOut(t *testing.T) {
	s := serve(t, ingest.Config{MaxReadings: 2000}, hl7.Options{})
	left := strings.Repeat(with(with(good, 8, "INV"), 14, "never")+"\n", 1234)
	if got, want := s.send(header+left+with(good, 2, "ST")), "ERR||OBX^1235^2|"; !strings.Contains(got, "MSA|AE|") ||
		!strings.Contains(got, want) || strings.Contains(got, "further") {
		t.Errorf("answer\n%swant AE with %s", got, want)
	}
	if got := s.send(header + left); !strings.Contains(got, "MSA|AA|") {
		t.Errorf("answer\n%swant AA", got)
	}
}

// What a reason has of the message's separators is escaped.
func TestEscapedAnswer(t *testing.T) {
	s := serve(t, ingest.Config{}, hl7.Options{})
	if got := s.send(strings.ReplaceAll(header+with(good, 2, "ST"), "|", ";")); !strings.HasSuffix(got,
		`;OBX-2: not NM\F\ only numbers are stored`+"\n") {
		t.Errorf("%q", got)
	}
}
