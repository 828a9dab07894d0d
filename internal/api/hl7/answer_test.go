package hl7_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
)

// raw returns the answers to a message as it is, without their MSH.
func (s *service) raw(t *testing.T, text string) (answers []string) {
	t.Helper()
	m := hl7.Parse([]byte(text), &s.opt)
	s.core.Receive(t.Context(), &ingest.Delivery{Input: m, Message: []byte(text), Origin: s.origin},
		func(o *ingest.Outcome) {
			all, _ := m.Answer(nil, o, receivedAt)
			for frame := range strings.SplitSeq(string(all), "\x1c\r") {
				if _, after, found := strings.Cut(frame, "\r"); found {
					answers = append(answers, strings.TrimSuffix(after, "\r"))
				}
			}
		})
	return answers
}

// A segment ends with CR. A line feed after it is skipped, and any other one is data, unless the message has no CR: a
// line of a note is no value of another device.
func TestSegmentEnds(t *testing.T) {
	message := header + order + good +
		"\nNTE|1|L|first line<LF>OBX|9|NM|8867-4^Heart " +
		"rate^LN||200|/min|||||R|||20261122093000+0000||||note<LF><LF>PID|||P<LF>\n" +
		with(good, 18, "e")
	for _, end := range []string{"\r", "\r\n", "\r\n\r\n"} {
		s := serve(t, ingest.Config{}, hl7.Options{})
		got := s.raw(t, strings.NewReplacer("<LF>", "\n", "\n", end).Replace(message))
		if fmt.Sprint(got) != "[MSA|AA|MSGID1234]" || len(s.all(t, "d", "e")) != 2 || len(s.all(t, "note")) != 0 {
			t.Errorf("%q: %q, stored %q", end, got, s.all(t, "d", "e", "note"))
		}
	}
	s := serve(t, ingest.Config{}, hl7.Options{})
	plain := header + order + good + "\n\n" + with(good, 18, "e")
	if got := s.raw(t, plain); fmt.Sprint(got) != "[MSA|AA|MSGID1234]" || len(s.all(t, "d", "e")) != 2 {
		t.Errorf("without CR: %q", got)
	}
	const mixed = "[MSA|AR|MSGID1234\rERR||MSH^1|100^Segment sequence error^HL70357|E||||a line feed within MSH; " +
		"segments end with a carriage return]"
	if got := fmt.Sprint(serve(t, ingest.Config{}, hl7.Options{}).raw(t, plain+"\r")); got != mixed {
		t.Errorf("line feeds and a CR: %q", got)
	}
}

// MSH-15 and MSH-16 ask for answers, under conditions.
func TestConditions(t *testing.T) {
	bad := with(with(good, 2, "ST"), 18, "e")
	// of a message that is stored, one that is stored in part, and one that is rejected
	for conditions, want := range map[string]string{
		"|": "AA AE AR", `""|`: "AA AE AR", "NE|NE": "- - -", "NE|": "- - -", "|NE": "- - -",
		"AL|NE": "CA CE CR", "NE|AL": "AA AE AR", "|AL": "AA AE AR", "AL|": "CA CE CR", "AL|AL": "CA,AA CE,AE CR,AR",
		"ER|NE": "- CE CR", "SU|NE": "CA - -", "NE|ER": "- AE AR", "NE|SU": "AA - -", "ER|SU": "AA CE CR",
		"al|NE": "CA CE CR",
	} {
		var got []string
		for _, message := range []string{header + good, header + good + "\n" + bad,
			strings.Replace(header, "|P|", "|T|", 1) + good} {
			s := serve(t, ingest.Config{}, hl7.Options{})
			codes := ""
			for _, answer := range s.raw(t, strings.ReplaceAll(strings.Replace(message, "NE|AL", conditions, 1), "\n", "\r")) {
				codes = strings.TrimPrefix(codes+","+answer[4:6], ",")
			}
			if codes == "" {
				codes = "-"
			}
			got = append(got, codes)
			if stored := len(s.all(t, "d")); (stored == 1) != strings.Contains(message, "|P|") {
				t.Errorf("%s: %d readings are stored", conditions, stored)
			}
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %s, want %s", conditions, got, want)
		}
	}
}

// An answer has only what the client's version of HL7 has: a message structure from 2.3.1, a character set from 2.3,
// and the place and the reason of errors in ERR from 2.5. Earlier versions have one ERR, and the reason in MSA-3.
func TestVersions(t *testing.T) {
	const (
		at     = "20261122100000.000+0000||"
		set    = "||||||8859/1\n"
		modern = "MSA|AE|MSGID1234\nERR||OBX^1^2|102^Data type error^HL70357|E||||OBX-2: not NM; only numbers are stored\n" +
			"ERR||OBX^2^6|103^Table value not found^HL70357|E||||OBX-6: not the unit of heart_rate_bpm: /min or MDC " +
			"264864 would do\n"
		old   = "MSA|AE|MSGID1234|OBX-2: not NM; only numbers are stored\nERR|OBX^1^2^102"
		texts = "&Data type error&HL70357~OBX^2^6^103&Table value not found&HL70357\n"
	)
	for version, want := range map[string]string{
		"2.1":   "20261122100000+0000||ACK|MSGID1234|P|2.1\n" + old + "~OBX^2^6^103\n",
		"2.2":   at + "ACK^R01|MSGID1234|P|2.2\n" + old + "~OBX^2^6^103\n",
		"2.3":   at + "ACK^R01|MSGID1234|P|2.3" + set + old + strings.ReplaceAll(texts, "&HL70357", ""),
		"2.3.1": at + "ACK^R01^ACK|MSGID1234|P|2.3.1" + set + old + texts,
		"2.4":   at + "ACK^R01^ACK|MSGID1234|P|2.4" + set + old + texts,
		"2.5":   at + "ACK^R01^ACK|MSGID1234|P|2.5" + set + modern,
		"2.5.1": at + "ACK^R01^ACK|MSGID1234|P|2.5.1" + set + modern,
		"2.8.2": at + "ACK^R01^ACK|MSGID1234|P|2.8.2" + set + modern,
	} {
		s := serve(t, ingest.Config{}, hl7.Options{})
		head := strings.Replace(strings.Replace(header, "AL|||||IHE", "AL||8859/1|||IHE", 1), "2.6", version, 1)
		_, got, _ := strings.Cut(s.send(head+with(good, 2, "ST")+"\n"+with(good, 6, "/h")), "EUI-64||")
		if got != want {
			t.Errorf("%s:\n%swant\n%s", version, got, want)
		}
	}
	s := serve(t, ingest.Config{}, hl7.Options{})
	const rejected = "\nMSA|AR|MSGID1234|MSH-11: not P; messages of trainings and tests are not stored\n" +
		"ERR|MSH^1^11^202&Unsupported processing id&HL70357\n"
	if got := s.send(strings.Replace(strings.Replace(header, "2.6", "2.4", 1), "|P|", "|T|", 1)); !strings.HasSuffix(got,
		rejected) {
		t.Errorf("a rejected message: %s", got)
	}
	const long = "\nMSA|AR|MSGID1234|MSH-18: neither ASCII, UNICODE UTF-8 nor 8859/1 to 8859/15; other character sets\n"
	if got := s.send(strings.Replace(strings.Replace(header, "AL|||||IHE", "AL||GBK|||IHE", 1), "2.6", "2.4",
		1)); !strings.Contains(got, long) {
		t.Errorf("a long reason: %s", got)
	}
}

// A byte that is no character of the message's set rejects what it may have changed, because it may be of a set whose
// characters have separators, and nothing else. Answers are valid in the message's set.
func TestCharacterSets(t *testing.T) {
	other := with(good, 18, "e")
	const all = "MSA|AA|MSGID1234\n"
	bad := func(places ...string) string {
		text := "MSA|AE|MSGID1234\n"
		for _, place := range places {
			text += "ERR||" + place + "|102^Data type error^HL70357|E||||not UTF-8, and MSH-18 is not one of 8859/1 to 8859/15\n"
		}
		return text
	}
	const unread = "MSA|AR|MSGID1234\nERR||MSH^1^18|103^Table value not found^HL70357|E||||MSH-18: neither ASCII, " +
		"UNICODE UTF-8 nor 8859/1 to 8859/15; other character sets are not read\n"
	inherits := with(with(good, 18, ""), 4, "1.1.1.1")
	latin := with(good, 3, "147842^Schl\xe4ge^MDC") + "\n" + other
	structure := "OBX|1||69965^M\xfcller^MDC|1.0.0.0|||||||X|||||||d\n"
	for _, tt := range []struct{ name, set, segments, answer, stored string }{
		{"in a name", "", "PID|1||||M\xfcLLER\n" + order + good, all, "d"},
		{"in a note", "", good + "\nNTE|1||\xfc\n" + other, all, "d e"},
		{"ASCII", "ASCII", "PID|1||||Müller\n" + order + good, all, "d"},
		{"in an OBX", "", latin, bad("OBX^1"), "e"},
		{"in an OBX, UTF-8", "UNICODE UTF-8", latin, bad("OBX^1"), "e"},
		{"in an OBX, 8859", "8859/1", latin, all, "d e"},
		{"in an OBX, 8859/15", "8859/15", latin, all, "d e"},
		{"8859 without a byte", "8859/1", good, all, "d"},
		{"8859/16", "8859/16", good, unread, ""},
		{"8859/01", "8859/01", good, unread, ""},
		{"8859 and another set", "8859/1~GBK", good, unread, ""},
		{"a separator in a character of GBK", "", with(good, 3, "147842^\x81|200|/min|||||R|||20261122093000+0000||||f") +
			"\n" + other, bad("OBX^1"), "e"},
		{"in an order", "", "OBR|1|||\xfc|||20261122092715+0000\n" + good + "\nOBR|2\n" + other, bad("OBR^1"), "e"},
		{"in a structure", "", structure + inherits + "\n" + other, bad("OBX^1", "OBX^1"), "e"},
		{"in a structure, and another order", "", structure + "OBR|2\n" + other, bad("OBX^1"), "e"},
		{"in PRT after a value", "", good + "\nPRT|1||||\xfc|||||f\n" + other, bad("PRT^1"), "e"},
		{"in PRT of the order", "", "OBR|1\nPRT|1||||\xfc|||||f\n" + with(good, 18, "") + "\n" + other, bad("PRT^1"), "e"},
	} {
		s := serve(t, ingest.Config{}, hl7.Options{})
		_, got, _ := strings.Cut(s.send(strings.Replace(header, "AL|||||IHE", "AL||"+tt.set+"|||IHE", 1)+tt.segments), "\n")
		var stored []string
		for _, device := range []string{"d", "e", "f"} {
			if len(s.all(t, device)) > 0 {
				stored = append(stored, device)
			}
		}
		if got != tt.answer || strings.Join(stored, " ") != tt.stored {
			t.Errorf("%s: stored %q, answer\n%swant\n%s", tt.name, stored, got, tt.answer)
		}
	}
	for set, want := range map[string]string{"": "M?ü", "UNICODE UTF-8": "M?ü", "ASCII": "M??", "8859/1": "M\xfcü"} {
		s := serve(t, ingest.Config{}, hl7.Options{})
		head := strings.Replace(strings.Replace(header, "AL|||||IHE", "AL||"+set+"|||IHE", 1),
			"AcmeInc^ACDE48234567ABCD^EUI-64|", "AcmeInc|M\xfcü", 1)
		if got := s.send(head + good); !strings.Contains(got, "|AcmeInc|"+want+"|") || !strings.Contains(got, "MSA|AA") {
			t.Errorf("%s: %q", set, got)
		}
	}
	// A patient's identifier after such a byte may be another field.
	s := serve(t, ingest.Config{}, hl7.Options{Patients: hl7.Patients{Assign: true}})
	if got := s.send(header + "PID||\x81|4711\n" + good); !strings.Contains(got, "PID-3: not UTF-8") {
		t.Error(got)
	}
}

// Another spelling of a unit is the same unit; another unit is not.
func TestUnitSpellings(t *testing.T) {
	for code, units := range map[string]string{
		"8867-4": "/min bpm BPM Bpm Beats/Min {beats}/min {Beats}/min beats/min 1/min min-1 /min^^ISO+ 264864^^MDC^bpm",
		"9279-1": "/min rpm {breaths}/min breaths/min 264928^^MDC",
		"2708-6": "% percent Percent 262688^^MDC",
		"8310-5": "Cel °C degC DegC cel^^ISO+ C",
	} {
		for unit := range strings.FieldsSeq(units) {
			s := serve(t, ingest.Config{}, hl7.Options{})
			if got := s.send(header + with(with(with(good, 3, code+"^^LN"), 5, "38"), 6, unit)); strings.Contains(got, "OBX-6") {
				t.Errorf("%s: %s", unit, got)
			}
		}
		latin1 := strings.Replace(header, "|NE|AL|||||", "|NE|AL||8859/1|||", 1)
		if got := serve(t, ingest.Config{}, hl7.Options{}).send(latin1 + with(with(with(good, 3, "8310-5^^LN"), 5, "38"), 6,
			"\xb0C")); strings.Contains(got, "OBX-6") {
			t.Errorf("°C in ISO 8859-1: %s", got)
		}
		for unit := range strings.FieldsSeq("/s Hz K F degF mmol kPa bpm^^99X bpm^^MDC {bpm} 264864^^MDC^/s BPM/s") {
			s := serve(t, ingest.Config{}, hl7.Options{})
			if got := s.send(header + with(with(with(good, 3, code+"^^LN"), 5, "38"), 6, unit)); !strings.Contains(got,
				"would do") {
				t.Errorf("%s %s: %s", code, unit, got)
			}
		}
	}
}

// A message takes up little memory beside its own, whatever it has, and is read no further than to the first segment
// that is none.
func TestHostileMemory(t *testing.T) {
	const size = 4 << 20
	obx := func(field int, text string) string { return with(good, field, text) + "\n" }
	fill := func(format string) string {
		text := strings.Builder{}
		for i := 0; text.Len() < size; i++ {
			text.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return text.String()
	}
	for name, text := range map[string]string{
		"backslashes in OBX-3":  obx(3, strings.Repeat(`\`, size)),
		"backslashes in OBX-5":  obx(5, strings.Repeat(`\`, size)),
		"backslashes in OBX-18": obx(18, strings.Repeat(`\`, size)),
		"digits":                obx(5, strings.Repeat("9", size/2)+"."+strings.Repeat("9", size/2)),
		"escapes in OBX-3":      obx(3, strings.Repeat(`\F\`, size/3)+"^^LN"),
		"hex in OBX-3":          obx(3, `\X`+strings.Repeat(`41`, size/2)+`\^^LN`),
		"a long code":           obx(3, strings.Repeat("1", size)+"^^LN"),
		"a long unit":           obx(6, strings.Repeat("x", size)+"{}"),
		"repeated flags":        obx(8, strings.Repeat("~", size)),
		"escaped flags":         obx(8, strings.Repeat(`\F\~`, size/4)),
		"components in OBX-3":   obx(3, strings.Repeat("^", size)),
		"components in OBX-18":  obx(18, strings.Repeat("^", size)),
		"a long path":           obx(4, strings.Repeat("1", size)),
		"repeated identifiers":  "PID|||" + strings.Repeat("1~", size/2) + "\n" + good,
		"escaped identifiers":   "PID|||" + strings.Repeat(`\F\~`, size/4) + "\n" + good,
		"patients":              fill("PID|||#\n"),
		"segments":              fill("ZZZ\n"),
		"values":                fill("OBX\n"),
		"orders":                fill("OBR\n"),
		"structures":            fill("OBX||||#||||||||||1\n"),
		"structures of orders":  fill("OBX||||#||||||||||1\nOBR\n"),
		"broken segments":       fill("obx|#\n"),
		"one broken segment":    strings.Repeat("x", size),
	} {
		s := serve(t, ingest.Config{}, hl7.Options{Patients: hl7.Patients{Assign: true}})
		if n, _ := s.allocated(t, header+text); n > 2*size {
			t.Errorf("%s: %d bytes for a message of %d", name, n, len(header+text))
		}
	}
}

// allocated returns the bytes that the server allocates for a message, and whether it is accepted.
func (s *service) allocated(t *testing.T, text string) (n uint64, ok bool) {
	s.send(header + good) // for what is made once
	message := []byte(strings.ReplaceAll(text, "\n", "\r"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := hl7.Parse(message, &s.opt)
	s.core.Receive(t.Context(), &ingest.Delivery{Input: m, Message: message}, func(o *ingest.Outcome) {
		_, code := m.Answer(nil, o, receivedAt)
		ok = code == "AA"
	})
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, ok
}

// Readings take up memory by their number, of which a message has a maximum. A message beyond it takes up as little as
// any other that is rejected.
func TestReadingsMemory(t *testing.T) {
	const maximum, perReading = 20_000, 3200 // bytes, of which most are those of growing slices and of the store
	for name, format := range map[string]string{
		"heart rates": "OBX||NM|8867-4^^LN||72|/min|||||R\n",
		"pressures":   "OBX||NM|8480-6^^LN||120|mm[Hg]|||||R\nOBX||NM|8462-4^^LN||80|mm[Hg]|||||R\n",
		"systolic":    "OBX||NM|8480-6^^LN|#.1|120|mm[Hg]|||||R\n",
		"disowned":    "OBX||NM|8867-4^^LN||72|/min||INV|||R\n",
		"high":        "OBX||NM|8867-4^^LN||700|/min|||||R\n",
	} {
		text := strings.Builder{}
		text.WriteString(header + "OBR|||||||20261122092900+0000\nPRT||||||||||d\n")
		for i := range maximum {
			text.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		s := serve(t, ingest.Config{MaxReadings: maximum}, hl7.Options{})
		if n, _ := s.allocated(t, text.String()); n > perReading*maximum {
			t.Errorf("%s: %d bytes for %d readings", name, n, maximum)
		}
		text.WriteString(good)
		if n, ok := s.allocated(t, text.String()); n > 2*uint64(text.Len()) || ok {
			t.Errorf("%s beyond the maximum: %d bytes for a message of %d, accepted %v", name, n, text.Len(), ok)
		}
	}
}

// A time is cut to the millisecond, towards the past.
func TestFineTimes(t *testing.T) {
	for text, want := range map[string]string{
		"20261122093000.0000+0000": "30:00.000", "20261122093000.9999+0100": "30:00.999",
		"20261122093000.1239+0000": "30:00.123", "20261122093000.123999999+0000": "30:00.123",
	} {
		s := serve(t, ingest.Config{}, hl7.Options{})
		answer := s.send(header + with(good, 14, text))
		if got := strings.Join(s.all(t, "d"), ""); !strings.Contains(got, want) || !strings.Contains(answer, "MSA|AA") {
			t.Errorf("%s: stored %q: %s", text, got, answer)
		}
	}
}
