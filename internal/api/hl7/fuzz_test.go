package hl7_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
)

// FuzzMessage sends any bytes: the answer is MSH and MSA, with an ERR if and only if something is rejected; it is the
// same again, because what is stored is then a duplicate; and it has neither the value nor the patient of the message.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{
		strings.Replace(header, "2.6", "2.3.1", 1) + patient + with(good, 5, "secret-value"),
		strings.Replace(header, "NE|AL", "AL|ER", 1) + good,
		header + "NTE|\xfc\x0aOBX\nOBR|\xfc\n" + good, header + patient + order + good,
		header + with(good, 5, "secret-value") + "\n" + good, "MSH|^~\\&|", "MSH", "",
		header + order +
			"OBX|1||69965^^MDC|1.0.0.0|||||||X|||20261122093000||||d\nOBX|2|NM|150021^^MDC|1.1.1.1|120|266016^^MDC|||||R\n" +
			"OBX|3|NM|150022^^MDC|1.1.1.2|80|mm[Hg]|||||F\nPRT|1|||||||||e\n",
		strings.ReplaceAll(header+good, "|", "+"), header +
			"OBX|1|NM|\\X38\\867-4^^LN||72|{b}/min|||||R|||20261122093000.0||||\\F\\\\T\\\\",
		strings.Replace(header, "R01", "", 1),
		strings.ReplaceAll("MSH|^~\\&|||||||ORU^R01|", "|", "+") + strings.Repeat("1", 4060),
	} {
		f.Add([]byte(strings.ReplaceAll(text, "\n", "\r")))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 || bytes.ContainsAny(text, "\x0b\x1c") { // which delimit a message, so none has them
			return
		}
		s := serve(t, ingest.Config{}, hl7.Options{Patients: hl7.Patients{Assign: true, Back: 24 * time.Hour}})
		answer := s.send(string(text))
		if answer == "" {
			return // the message asks for none
		}
		lines := strings.SplitAfter(answer, "\n")
		if len(lines) < 3 || lines[len(lines)-1] != "" || len(answer) < 8 || answer[:3] != "MSH" {
			t.Fatalf("%q", answer)
		}
		separator := string(answer[3])
		if strings.Count(answer, "\nMSA"+separator) != 1 {
			return // the message asks for two
		}
		acknowledgement := strings.Split(lines[1], separator)
		if acknowledgement[0] != "MSA" || len(acknowledgement[1]) != 2 {
			t.Fatalf("%q", answer)
		}
		errors := lines[2 : len(lines)-1]
		if stored := acknowledgement[1][1] == 'A'; stored != (len(errors) == 0) {
			t.Fatalf("%q", answer)
		}
		for _, line := range errors {
			if parts := strings.Split(strings.TrimSuffix(line, "\n"), separator); parts[0] != "ERR" ||
				len(parts) != 2 && (len(parts) != 9 || parts[8] == "" || parts[4] != "E") {
				t.Fatalf("%q", line)
			}
			if strings.Contains(line, "secret") {
				t.Fatalf("%q has a value or a patient", line)
			}
		}
		if again := s.send(string(text)); again != answer {
			t.Fatalf("sent again: %q, want %q", again, answer)
		}
		// The answer is a message itself, which is not an ORU. With texts of a long header it may be longer than those
		// accepted.
		if len(lines[0]) > 4<<10 {
			return
		}
		if _, code, _ := strings.Cut(s.send(answer), "\nMSA"+separator); len(code) < 2 || code[1] != 'R' {
			t.Fatalf("answer to an answer: %q", code)
		}
	})
}
