package hl7_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

var receivedAt = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// A service receives messages for a store in memory.
type service struct {
	*storetest.Memory
	core   *ingest.Core
	opt    hl7.Options
	origin vitals.Origin
}

func serve(t testing.TB, cfg ingest.Config, opt hl7.Options) *service {
	t.Helper()
	s := &service{Memory: storetest.NewMemory(), opt: opt}
	s.opt.Signs = s.Signs()
	cfg.Now = func() time.Time { return receivedAt }
	cfg.Limits = s.Signs().DefaultLimits()
	var err error
	if s.core, err = ingest.New(s.Memory, problem.New(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.core.Close(context.Background()) }) // a test may have closed it
	return s
}

// send returns the answer to a message, whose lines are segments.
func (s *service) send(message string) string {
	text := []byte(strings.ReplaceAll(message, "\n", "\r"))
	m := hl7.Parse(text, &s.opt)
	var answer []byte
	s.core.Receive(context.Background(), &ingest.Delivery{Input: m, Message: text, Origin: s.origin}, func(o *ingest.Outcome) {
		answer = m.Answer(nil, o, receivedAt)
	})
	return strings.ReplaceAll(string(answer), "\r", "\n")
}

// all returns the stored readings of devices, as texts.
func (s *service) all(t testing.TB, devices ...string) (texts []string) {
	t.Helper()
	for _, device := range devices {
		name, err := vitals.ParseName(device)
		if err != nil {
			t.Fatal(err)
		}
		found := make([]storage.Record, 100)
		n, err := s.Scan(t.Context(), storage.Range{Device: name, ToUnixMs: storage.OpenEnd}, found)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found[:n] {
			text := vitals.AppendLocalTime(append([]byte(device), ' '), r.TimeUnixMs, r.UTCOffset)
			text = s.Signs().AppendMembers(text, &r.Values)
			if r.Gateway != nil {
				text = fmt.Appendf(text, ",gateway %s", r.Gateway)
			}
			texts = append(texts, strings.ReplaceAll(string(text), `"`, ""))
		}
	}
	return texts
}

const (
	header    = `MSH|^~\&|AcmeInc^ACDE48234567ABCD^EUI-64||||20261122093000+0000||ORU^R01^ORU_R01|MSGID1234|P|2.6|||NE|AL|||||IHE PCD ORU-R01 2006^HL7^1.3.6.1.4.1.19376.1.6.1.1.1^ISO` + "\n"
	ackHeader = `MSH|^~\&|Pulsegate||AcmeInc^ACDE48234567ABCD^EUI-64||20261122100000.000+0000||ACK^R01^ACK|MSGID1234|P|2.6||||||UNICODE UTF-8` + "\n"
	patient   = `PID|||789567^^^Imaginary Hospital^PI||Doe^John^Joseph^^^^L^A|||M` + "\n"
	order     = `OBR|1|AB12345^AcmeAHDInc^ACDE48234567ABCD^EUI-64|CD12345^AcmeAHDInc^ACDE48234567ABCD^EUI-64|528391^MDC_DEV_SPEC_PROFILE_BP^MDC|||20261122092715+0500` + "\n"
)

// Messages of IHE's technical framework, of the Continua guidelines and of monitors are stored as they are, but for
// what no sign has.
func TestMessages(t *testing.T) {
	for _, tt := range []struct {
		name, message, answer, devices string
		want                           []string
	}{
		{"blood pressure, as in the technical framework", header + patient + order +
			`OBX|1|CWE|68220^MDC_TIME_SYNC_PROTOCOL^MDC|0.0.0.1|532224^MDC_TIME_SYNC_NONE^MDC|||||R
OBX|2||528391^MDC_DEV_SPEC_PROFILE_BP^MDC|1|||||||X|||||||0123456789ABCDEF^EUI-64
OBX|3||150020^MDC_PRESS_BLD_NONINV^MDC|1.0.1|||||||X|||20261122092715+0500
OBX|4|NM|150021^MDC_PRESS_BLD_NONINV_SYS^MDC|1.0.1.1|120|266016^MDC_DIM_MMHG^MDC|||||R
OBX|5|NM|150022^MDC_PRESS_BLD_NONINV_DIA^MDC|1.0.1.2|80|266016^MDC_DIM_MMHG^MDC|||||R
OBX|6|NM|150023^MDC_PRESS_BLD_NONINV_MEAN^MDC|1.0.1.3|100|266016^MDC_DIM_MMHG^MDC|||||R
OBX|7|DTM|67975^MDC_ATTR_TIME_ABS^MDC|1.0.0.1|20261122082715||||||R|||20261122092715+0500`,
			"MSA|AE|MSGID1234\nERR||OBX^6^3|103^Table value not found^HL70357|E||||OBX-3: not a code of a sign in MDC or LN\n",
			"0123456789ABCDEF",
			[]string{"0123456789ABCDEF 2026-11-22T09:27:15.000+05:00,systolic_mmhg:120,diastolic_mmhg:80,gateway ACDE48234567ABCD"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, ingest.Config{}, hl7.Options{})
			if got := s.send(tt.message); got != ackHeader+tt.answer {
				t.Errorf("answer\n%swant\n%s", got, ackHeader+tt.answer)
			}
			if got := s.all(t, strings.Fields(tt.devices)...); strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("stored\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}
