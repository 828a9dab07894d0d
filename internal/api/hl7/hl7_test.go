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
	s.core, err = ingest.New(s.Memory, problem.New(), cfg)
	try(t, err)
	core := s.core
	t.Cleanup(func() { _ = core.Close(context.Background()) }) // a test may have closed it
	return s
}

// send returns the answer to a message, whose lines are segments.
func (s *service) send(message string) string {
	text := []byte(strings.ReplaceAll(message, "\n", "\r"))
	m := hl7.Parse(text, &s.opt)
	var answer []byte
	s.core.Receive(context.Background(), &ingest.Delivery{Input: m, Message: text, Origin: s.origin},
		func(o *ingest.Outcome) {
			answer, _ = m.Answer(nil, o, receivedAt)
		})
	return strings.NewReplacer("\x0b", "", "\x1c\r", "", "\r", "\n").Replace(string(answer))
}

// all returns the stored readings of devices, as texts.
func (s *service) all(t testing.TB, devices ...string) (texts []string) {
	t.Helper()
	for _, device := range devices {
		name, err := vitals.ParseName(device)
		try(t, err)
		found := make([]storage.Record, 100)
		n, err := s.Scan(t.Context(), storage.Range{Device: name, ToUnixMs: storage.OpenEnd}, found)
		try(t, err)
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
	header = `MSH|^~\&|AcmeInc^ACDE48234567ABCD^EUI-64||||20261122093000+0000||ORU^R01^ORU_R01|MSGID1234|P|2.6|||NE|A` +
		`L|||||IHE PCD ORU-R01 2006^HL7^1.3.6.1.4.1.19376.1.6.1.1.1^ISO` + "\n"
	ackHeader = `MSH|^~\&|Pulsegate||AcmeInc^ACDE48234567ABCD^EUI-64||20261122100000.000+0000||ACK^R01^ACK|MSGI` +
		`D1234|P|2.6` + "\n"
	patient = `PID|||789567^^^Imaginary Hospital^PI||Doe^John^Joseph^^^^L^A|||M` + "\n"
	order   = `OBR|1|AB12345^AcmeAHDInc^ACDE48234567ABCD^EUI-64|CD12345^AcmeAHDInc^ACDE48234567ABCD^EUI-64|528391^MDC_DE` +
		`V_SPEC_PROFILE_BP^MDC|||20261122092715+0500` + "\n"
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
			[]string{
				"0123456789ABCDEF 2026-11-22T09:27:15.000+05:00,systolic_mmhg:120,diastolic_mmhg:80,gateway ACDE48234567ABCD"}},
		{"a bedside monitor: the device of each value, the time of the order", header + patient + order +
			`OBX|1||69965^MDC_DEV_MON_PHYSIO_MULTI_PARAM_MDS^MDC|1.0.0.0|||||||X
OBX|2||69798^MDC_DEV_ECG_VMD^MDC|1.5.0.0|||||||X
OBX|3|NM|147842^MDC_ECG_HEART_RATE^MDC|1.5.1.1|80|264864^MDC_DIM_BEAT_PER_MIN^MDC|||||R|||||||080019FFFE0B4020^B40_GE
OBX|4||70686^MDC_DEV_PRESS_BLD_NONINV_VMD^MDC|1.1.0.0|||||||X
OBX|5||70687^MDC_DEV_PRESS_BLD_NONINV_CHAN^MDC|1.1.1.0|||||||X|||20261122042642+0000
OBX|6|NM|150021^MDC_PRESS_BLD_NONINV_SYS^MDC|1.1.1.1|120|mm[Hg]^mm[Hg]^UCUM|||||R|||20261122042642+0000||||080019FFFE0B4020^B40_GE
OBX|7|NM|150456^MDC_PULS_OXIM_SAT_O2^MDC|1.6.1.1|+097.50|262688^MDC_DIM_PERCENT^MDC|||||R|||||||080019FFFE0B4020^B40_GE
OBX|8|NM|150022^MDC_PRESS_BLD_NONINV_DIA^MDC|1.1.1.2|80|mm[Hg]^mm[Hg]^UCUM|||||R|||||||080019FFFE0B4020^B40_GE
OBX|9|NM|149546^MDC_PULS_RATE_NON_INV^MDC|1.1.1.4|63|{beat}/min^{beat}/min^UCUM|||||R|||||||080019FFFE0B4020^B40_GE
`, "MSA|AA|MSGID1234\n", "080019FFFE0B4020", []string{
			"080019FFFE0B4020 2026-11-22T04:26:42.000+00:00,systolic_mmhg:120,diastolic_mmhg:80,pulse_rate_bpm:63,gateway " +
				"ACDE48234567ABCD",
			"080019FFFE0B4020 2026-11-22T09:27:15.000+05:00,spo2_pct:97.5,heart_rate_bpm:80,gateway ACDE48234567ABCD"}},
		{"devices of PRT segments, LOINC codes, other separators, lines of CR and LF",
			strings.NewReplacer("|", "!", "^", "#", "\\&", "?&").Replace(header+patient+order) +
				"PRT!1!UC!!EQUIP#Equipment#HL70912!!!!!!of-the-order##0123#EUI-64\n\n" +
				"OBX!1!NM!8867-4#Heart rate#LN!!72!/min#per minute#UCUM!!!!!F!!!20261122100000.1200+0000\nNTE!1!!a note\n" +
				"PRT!2!UC!!EQUIP!!!!!!of?X2D?the?X2D?value\n" +
				"OBX!2!NM!TEMP#Temperature#99LOCAL#8310-5#Body " +
				"temperature#LN!!36.6!Cel!!!!!F!!!20261122100000+0000!!!!##dev.ice#L\n" +
				"OBX!3!NM!188736#MDC_MASS_BODY_ACTUAL#MDC#29463-7##LN!!.5!263875#MDC_DIM_KILO_G#MDC#kg##UCUM!!N~ALACT!!!F!!!20261" +
				"122100000+0000",
			"MSA!AA!MSGID1234\n", "of-the-order of-the-value dev.ice", []string{
				"of-the-order 2026-11-22T10:00:00.000+00:00,body_weight_kg:0.5,gateway ACDE48234567ABCD",
				"of-the-value 2026-11-22T10:00:00.120+00:00,heart_rate_bpm:72,gateway ACDE48234567ABCD",
				"dev.ice 2026-11-22T10:00:00.000+00:00,body_temperature_c:36.6,gateway ACDE48234567ABCD"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, ingest.Config{}, hl7.Options{})
			want := ackHeader + tt.answer
			if tt.message[3] == '!' {
				want = strings.NewReplacer("|", "!", "^", "#", "\\&", "?&").Replace(ackHeader) + tt.answer
			}
			if got := s.send(tt.message); got != want {
				t.Errorf("answer\n%swant\n%s", got, want)
			}
			if got := s.all(t, strings.Fields(tt.devices)...); strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("stored\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if again := s.send(tt.message); again != want {
				t.Errorf("sent again:\n%s", again)
			}
		})
	}
}

// Of several sources of a sign, the first by the order of its codes is stored, in whatever order they come, and the
// others are no error. A source without a value leaves the place to the next.
func TestSeveralSources(t *testing.T) {
	const first, again = "20261122093000+0000", "20261122093001+0000"
	obx := func(code, value, unit, at string) string {
		return "OBX|1|NM|" + code + "^^MDC||" + value + "|" + unit + "^^UCUM|||||R|||" + at + "||||d\n"
	}
	rates := []string{
		obx("149530", "70", "/min", first), obx("149546", "74", "/min", first), obx("147842", "72", "/min", first),
		obx("151578", "17", "/min", first), obx("151594", "18", "/min", first), obx("150344", "36.5", "Cel", first),
		obx("150364", "37", "Cel", first),
		obx("150301", "121", "mm[Hg]", first) + obx("150302", "81", "mm[Hg]", first),
		obx("150021", "120", "mm[Hg]", first) + obx("150022", "80", "mm[Hg]", first),
	}
	const want = "systolic_mmhg:120,diastolic_mmhg:80,heart_rate_bpm:72,respiratory_rate_bpm:17,body_temperature_c:37,pu" +
		"lse_rate_bpm:70"
	const conflict = "ERR||OBX^2^5|205^Duplicate key identifier^HL70357|E||||"
	reversed := slices.Clone(rates)
	slices.Reverse(reversed)
	cuff, low := obx("150301", "121", "mm[Hg]", first), obx("150302", "81", "mm[Hg]", first)
	best, bestLow := obx("150021", "120", "mm[Hg]", first), obx("150022", "80", "mm[Hg]", first)
	for _, tt := range []struct {
		name      string
		asRate    bool
		obx       []string
		answer    string // the end of MSA-1, and the beginning of ERR
		want      string
		atAnother string
	}{
		{"in order", false, rates, "AA", want, ""},
		{"reversed", false, reversed, "AA", want, ""},
		{"pulse as heart rate", true, reversed, "AA", strings.TrimSuffix(want, ",pulse_rate_bpm:70"), ""},
		{"pressures, the systolic ones first", false, []string{cuff, best, low, bestLow}, "AA",
			"systolic_mmhg:120,diastolic_mmhg:80", ""},
		{"pressures, in another order", false, []string{best, cuff, low, bestLow}, "AA",
			"systolic_mmhg:120,diastolic_mmhg:80", ""},
		{"other times", false, []string{obx("149546", "74", "/min", first), obx("149530", "70", "/min", again)}, "AA",
			"pulse_rate_bpm:74", "pulse_rate_bpm:70"},
		{"no signal of the first", false, []string{obx("149530", "0", "/min", first), obx("149546", "74", "/min", first)},
			"AE", "pulse_rate_bpm:74", ""},
		{"no number of the first", false, []string{obx("149546", "74", "/min", first), obx("149530", "--", "/min", first)},
			"AE", "pulse_rate_bpm:74", ""},
		{"no signal of the second", false, []string{obx("149530", "70", "/min", first), obx("149546", "0", "/min", first)},
			"AE", "pulse_rate_bpm:70", ""},
		{"the same source twice", false, []string{obx("149530", "70", "/min", first), obx("149530", "71", "/min", first)},
			conflict, "pulse_rate_bpm:70", ""},
		{"the same value twice", false, []string{obx("149530", "70", "/min", first), obx("149530", "70", "/min", first)},
			"AA", "pulse_rate_bpm:70", ""},
		{"a ventilator", false, []string{obx("151594", "18", "/min", first), obx("151586", "12", "/min", first)},
			"OBX-3: not a code of a sign", "respiratory_rate_bpm:18", ""},
	} {
		s := serve(t, ingest.Config{}, hl7.Options{PulseAsHeartRate: tt.asRate})
		for range 2 {
			if got := s.send(header + strings.Join(tt.obx, "")); !strings.Contains(got, tt.answer) {
				t.Errorf("%s: answer\n%s", tt.name, got)
			}
		}
		if got := strings.Join(s.all(t, "d"), "\n"); !strings.Contains(got, ","+tt.want+",gateway") ||
			!strings.Contains(got, tt.atAnother) || (tt.atAnother == "") == strings.Contains(got, "\n") {
			t.Errorf("%s: stored\n%s", tt.name, got)
		}
	}
}
