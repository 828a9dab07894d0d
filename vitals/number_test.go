package vitals_test

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestParseHundredths(t *testing.T) {
	for _, tt := range []struct {
		text string
		want vitals.Hundredths
		err  error
	}{
		{"97.5", 97_50, nil},
		{"97.55", 97_55, nil},
		{"97.550", 97_55, nil},
		{"9.755e1", 97_55, nil},
		{"9755E-2", 97_55, nil},
		{"975500e-4", 97_55, nil},
		{"0.009755e+4", 97_55, nil},
		{"62.8", 62_80, nil},
		{"7", 7_00, nil},
		{"0.01", 1, nil},
		{"655.35", 655_35, nil},
		{"6e2", 600_00, nil},
		{"100", 100_00, nil},
		{"1" + strings.Repeat("0", 500) + "e-500", 1_00, nil},
		{"0." + strings.Repeat("0", 500) + "1e501", 1_00, nil},
		{"0.1" + strings.Repeat("0", 500), 10, nil},
		{"0", 0, nil},
		{"-0", 0, nil},
		{"0.000", 0, nil},
		{"0e5", 0, nil},
		{"0e-999999999999999999999", 0, nil},

		{"97.555", 0, vitals.ErrPrecision},
		{"-97.555", 0, vitals.ErrPrecision},
		{"0.001", 0, vitals.ErrPrecision},
		{"1e-3", 0, vitals.ErrPrecision},
		{"1e-999999999", 0, vitals.ErrPrecision},
		{"1e-99999999999999999999999", 0, vitals.ErrPrecision},
		{"99999.999", 0, vitals.ErrPrecision},
		{"97.5500000000000000000000000001", 0, vitals.ErrPrecision},

		{"655.36", 0, vitals.ErrRange},
		{"655.36000", 0, vitals.ErrRange},
		{"1000", 0, vitals.ErrRange},
		{"2047", 0, vitals.ErrRange},
		{"1e999999999", 0, vitals.ErrRange},
		{"1e99999999999999999999999", 0, vitals.ErrRange},
		{"-1", 0, vitals.ErrRange},
		{"-97.5", 0, vitals.ErrRange},
		{"4294967296", 0, vitals.ErrRange},
		{"18446744073709551616", 0, vitals.ErrRange},

		{"", 0, vitals.ErrNumber},
		{"-", 0, vitals.ErrNumber},
		{"+1", 0, vitals.ErrNumber},
		{".5", 0, vitals.ErrNumber},
		{"5.", 0, vitals.ErrNumber},
		{"5.e1", 0, vitals.ErrNumber},
		{"1e", 0, vitals.ErrNumber},
		{"1e+", 0, vitals.ErrNumber},
		{"01", 0, vitals.ErrNumber},
		{"-01", 0, vitals.ErrNumber},
		{"1 ", 0, vitals.ErrNumber},
		{" 1", 0, vitals.ErrNumber},
		{"1,5", 0, vitals.ErrNumber},
		{"1_0", 0, vitals.ErrNumber},
		{"0x10", 0, vitals.ErrNumber},
		{"NaN", 0, vitals.ErrNumber},
		{"Infinity", 0, vitals.ErrNumber},
		{"1e5.0", 0, vitals.ErrNumber},
	} {
		got, err := vitals.ParseHundredths(tt.text)
		if got != tt.want || err != tt.err {
			t.Errorf("ParseHundredths(%.40q) = %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.err)
		}
		if got, err := vitals.ParseHundredths([]byte(tt.text)); got != tt.want || err != tt.err {
			t.Errorf("ParseHundredths of bytes %.40q = %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.err)
		}
	}
}

// TestHundredthsRoundTrip formats and parses every value.
func TestHundredthsRoundTrip(t *testing.T) {
	for i := range 1 << 16 {
		v := vitals.Hundredths(i)
		text := string(vitals.AppendHundredths([]byte("x"), v))
		if want := "x" + strconv.FormatFloat(float64(i)/100, 'f', -1, 64); text != want {
			t.Fatalf("AppendHundredths(%d) = %q, want %q", i, text, want)
		}
		if got, err := vitals.ParseHundredths(text[1:]); got != v || err != nil {
			t.Fatalf("ParseHundredths(%q) = %d, %v; want %d", text[1:], got, err, v)
		}
	}
}

var (
	jsonNumber = regexp.MustCompile(`^(-?)((?:0|[1-9][0-9]*)(?:\.[0-9]+)?)(?:[eE]([+-]?)([0-9]+))?$`)
	nonzero    = regexp.MustCompile(`[1-9]`)
)

// modelHundredths is ParseHundredths with rational numbers.
func modelHundredths(text string) (vitals.Hundredths, error) {
	m := jsonNumber.FindStringSubmatch(text)
	if m == nil {
		return 0, vitals.ErrNumber
	}
	negative, mantissa, down, exponent := m[1] == "-", m[2], m[3] == "-", strings.TrimLeft(m[4], "0")
	switch {
	case !nonzero.MatchString(mantissa):
		return 0, nil
	// Rationals of such sizes take too long. No test's text is long enough to
	// compensate for such an exponent.
	case len(exponent) > 4 && down:
		return 0, vitals.ErrPrecision
	case len(exponent) > 4:
		return 0, vitals.ErrRange
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic("big.Rat cannot parse " + text)
	}
	r.Mul(r, big.NewRat(100, 1))
	switch {
	case !r.IsInt():
		return 0, vitals.ErrPrecision
	case negative || r.Num().Cmp(big.NewInt(1<<16-1)) > 0:
		return 0, vitals.ErrRange
	default:
		return vitals.Hundredths(r.Num().Uint64()), nil
	}
}

func FuzzNumber(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 5000 {
			return // see modelHundredths
		}
		got, err := vitals.ParseHundredths(text)
		want, wantErr := modelHundredths(text)
		if got != want || err != wantErr {
			t.Fatalf("ParseHundredths(%q) = %d, %v; want %d, %v", text, got, err, want, wantErr)
		}
		if err == nil {
			again, err := vitals.ParseHundredths(vitals.AppendHundredths(nil, got))
			if again != got || err != nil {
				t.Fatalf("%d does not survive a round trip: %d, %v", got, again, err)
			}
		}
	})
}
