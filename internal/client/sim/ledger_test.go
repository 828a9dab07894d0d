package sim_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/vitals"
)

func valuesOf(t testing.TB, pairs ...int) (values vitals.Values) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		values.Set(vitals.Sign(pairs[i]), vitals.Value(pairs[i+1]))
	}
	return values
}

// writeLedger writes a ledger with a script and returns its path.
func writeLedger(t testing.TB, run string, write func(s *sim.LedgerScript) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := sim.CreateLedger(path, run, 7, sim.AllSigns())
	try(t, err)
	try(t, errors.Join(write(sim.ScriptLedger(l, run, sim.AllSigns())), l.Close()))
	return path
}

// sampleLedger writes one line of each kind.
func sampleLedger(t testing.TB) func(s *sim.LedgerScript) error {
	return func(s *sim.LedgerScript) error {
		all := valuesOf(t, 0, 12100, 1, 7900, 2, 9750, 3, 7280, 4, 5800)
		more := valuesOf(t, 3, 7280, 6, 3670, 7, 650000, 31, -1250)
		return errors.Join(
			s.Sent(1, 3, 1000, all),
			s.Sent(2, 4, 2000, valuesOf(t, 3, 6000)), s.Sent(2, 4, 3000, valuesOf(t, 3, 6100)),
			s.Sent(2, 5, 3000, valuesOf(t, 2, 9700)),
			s.Answered(1),
			s.Sent(3, 3, 4000, all),
			s.Answered(2, 0, 2),
			s.Sent(4, 3, 5000, all), s.Sent(5, 3, 6000, all),
			s.Refused(3),
			s.GivenUp(4),
			s.SentAt(6, 1, 7000, vitals.MakeUTCOffset(120), all), s.SentAt(6, 9, 7000, vitals.MakeUTCOffset(-210), all),
			s.SentAt(6, 25, 7000, vitals.MakeUTCOffset(0), all),
			s.Answered(6),
			s.Sent(7, 3, 8000, more), s.Answered(7),
		)
	}
}

func TestLedgerRoundTrip(t *testing.T) {
	path := writeLedger(t, "abc", sampleLedger(t))
	text, err := os.ReadFile(path)
	try(t, err)
	run, got, err := sim.ReadLedger(bytes.NewReader(text))
	try(t, err)
	if run != "abc" {
		t.Errorf("run is %q, want abc", run)
	}
	all := valuesOf(t, 0, 12100, 1, 7900, 2, 9750, 3, 7280, 4, 5800)
	want := []sim.LedgerLine{
		{Device: "sim-abc-000003", TimeMs: 1000, Values: all, Fate: "acknowledged"},
		{Device: "sim-abc-000004", TimeMs: 2000, Values: valuesOf(t, 3, 6000), Fate: "refused"},
		{Device: "sim-abc-000004", TimeMs: 3000, Values: valuesOf(t, 3, 6100), Fate: "acknowledged"},
		{Device: "sim-abc-000005", TimeMs: 3000, Values: valuesOf(t, 2, 9700), Fate: "refused"},
		{Device: "sim-abc-000003", TimeMs: 4000, Values: all, Fate: "refused"},
		{Device: "sim-abc-000003", TimeMs: 5000, Values: all, Fate: "unsettled"},
		{Device: "sim-abc-000001", TimeMs: 7000, Values: all, Fate: "acknowledged", Offset: vitals.MakeUTCOffset(120)},
		{Device: "sim-abc-000009", TimeMs: 7000, Values: all, Fate: "acknowledged", Offset: vitals.MakeUTCOffset(-210)},
		{Device: "sim-abc-000025", TimeMs: 7000, Values: all, Fate: "acknowledged", Offset: vitals.MakeUTCOffset(0)},
		{Device: "sim-abc-000003", TimeMs: 8000, Values: valuesOf(t, 3, 7280, 6, 3670, 7, 650000, 31, -1250),
			Fate: "acknowledged"},
		{Device: "sim-abc-000003", TimeMs: 6000, Values: all, Fate: "unsettled"}, // never answered
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	// The format is fixed: ledgers are read by later versions.
	lines := strings.Split(string(text), "\n")
	for i, want := range []string{
		"pulsegate-ledger 2 run=abc seed=7 signs=systolic_mmhg:2,diastolic_mmhg:2,spo2_pct:2,heart_rate_bpm:2,",
		"S 1 sim-abc-000003 1000 12100,7900,9750,7280,5800 ", "S 2 sim-abc-000004 2000 ,,,6000 "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i+1, lines[i], want)
		}
	}
	for _, want := range []string{"\nS 6 sim-abc-000001 7000+120 12100,", "\nS 6 sim-abc-000009 7000-210 12100,",
		"\nS 6 sim-abc-000025 7000+0 12100,", ",interstitial_glucose_mmol_l:2,core_difference_c:3 ",
		" 8000 ,,,7280,,,3670,650000,,,,,,-1250 "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
}

// The ledger that docs/sim.md shows is one.
func TestLedgerShown(t *testing.T) {
	page, err := os.ReadFile("../../../docs/sim.md")
	try(t, err)
	_, rest, _ := strings.Cut(string(page), "\npulsegate-ledger 2 ")
	text, _, _ := strings.Cut(rest, "```")
	run, got, err := sim.ReadLedger(strings.NewReader("pulsegate-ledger 2 " + text))
	if err != nil || run != "4f2a81" || len(got) != 1 || got[0].Fate != "acknowledged" {
		t.Errorf("got %s, %v, %v", run, got, err)
	}
}

// A ledger that is cut off at any byte is reported with the line, and the lines before
// are read.
func TestLedgerCutOff(t *testing.T) {
	text, err := os.ReadFile(writeLedger(t, "abc", sampleLedger(t)))
	try(t, err)
	_, whole, err := sim.ReadLedger(bytes.NewReader(text))
	try(t, err)
	for n := range text {
		_, got, err := sim.ReadLedger(bytes.NewReader(text[:n]))
		var where *sim.LedgerError
		if !errors.As(err, &where) || !where.CutOff {
			t.Fatalf("cut off at byte %d of %d: got %v, want a cut off ledger", n, len(text), err)
		}
		if want := bytes.Count(text[:n], []byte("\n")) + 1; where.Line != want {
			t.Errorf("cut off at byte %d: line %d, want %d", n, where.Line, want)
		}
		if len(got) > len(whole) {
			t.Errorf("cut off at byte %d: read %d readings of %d", n, len(got), len(whole))
		}
	}
}

// A changed byte, a missing line and an additional line are reported with the line.
func TestLedgerCorrupt(t *testing.T) {
	text, err := os.ReadFile(writeLedger(t, "abc", sampleLedger(t)))
	try(t, err)
	wantCorrupt := func(what string, text []byte, line int) {
		t.Helper()
		_, _, err := sim.ReadLedger(bytes.NewReader(text))
		var where *sim.LedgerError
		if !errors.As(err, &where) {
			t.Fatalf("%s: got %v, want a corrupt ledger", what, err)
		}
		if where.Line != line {
			t.Errorf("%s: line %d, want %d", what, where.Line, line)
		}
	}
	for i := range text {
		changed := bytes.Clone(text)
		changed[i] ^= 1
		line := bytes.Count(text[:i], []byte("\n")) + 1
		wantCorrupt("a changed byte", changed, line)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i := 1; i < len(lines)-2; i++ {
		wantCorrupt("a missing line", bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil), i+1)
		wantCorrupt("a line twice", bytes.Join(slices.Insert(slices.Clone(lines), i, lines[i]), nil), i+2)
	}
	wantCorrupt("lines after the end", append(bytes.Clone(text), 'x'), len(lines))
	wantCorrupt("another file", []byte("hello\nworld\n"), 1)
	wantCorrupt("an empty file", nil, 1)
}

// Invalid records are reported even if their checksums match.
func TestLedgerNonsense(t *testing.T) {
	for name, write := range map[string]func(s *sim.LedgerScript) error{
		"an answer to nothing": func(s *sim.LedgerScript) error { return s.Answered(1) },
		"answered twice": func(s *sim.LedgerScript) error {
			return errors.Join(s.Sent(1, 0, 1, valuesOf(t, 3, 6000)), s.Answered(1), s.Answered(1))
		},
		"a position beyond the batch": func(s *sim.LedgerScript) error {
			return errors.Join(s.Sent(1, 0, 1, valuesOf(t, 3, 6000)), s.Answered(1, 1))
		},
	} {
		text, err := os.ReadFile(writeLedger(t, "abc", write))
		try(t, err)
		_, _, err = sim.ReadLedger(bytes.NewReader(text))
		var where *sim.LedgerError
		if !errors.As(err, &where) || where.CutOff {
			t.Errorf("%s: got %v, want a corrupt ledger", name, err)
		}
	}
}

func TestLedgerIsNotOverwritten(t *testing.T) {
	path := writeLedger(t, "abc", func(*sim.LedgerScript) error { return nil })
	if _, err := sim.CreateLedger(path, "abc", 7, vitals.NewSigns()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want ErrExist", err)
	}
}

func FuzzLedger(f *testing.F) {
	text, err := os.ReadFile(writeLedger(f, "abc", sampleLedger(f)))
	try(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, in []byte) {
		_, _, err := sim.ReadLedger(bytes.NewReader(in))
		var where *sim.LedgerError
		if err != nil && !errors.As(err, &where) {
			t.Errorf("got %v, want a LedgerError or nil", err)
		}
		if err == nil && !bytes.HasSuffix(in, []byte("\n")) {
			t.Error("a ledger without an end line was accepted")
		}
	})
}
