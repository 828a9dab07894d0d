package vitals_test

import (
	"errors"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestParseValue(t *testing.T) {
	for _, tt := range []struct {
		text string
		want vitals.Value
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

		{"655.36", 655_36, nil},
		{"21474836.46", 2147483646, nil},
		{"-21474836.46", -2147483646, nil},
		{"21474836.47", 0, vitals.ErrRange},
		{"-21474836.47", 0, vitals.ErrRange},
		{"-21474836.48", 0, vitals.ErrRange},
		{"99999999999", 0, vitals.ErrRange},
		{"1e999999999", 0, vitals.ErrRange},
		{"1e99999999999999999999999", 0, vitals.ErrRange},
		{"-1", -1_00, nil},
		{"-97.5", -97_50, nil},
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
		got, err := vitals.ParseValue(tt.text, 2)
		if got != tt.want || err != tt.err {
			t.Errorf("ParseValue(%.40q) = %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.err)
		}
		if got, err := vitals.ParseValue([]byte(tt.text), 2); got != tt.want || err != tt.err {
			t.Errorf("ParseValue of bytes %.40q = %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.err)
		}
	}
}

// TestValueRoundTrip formats and parses values, among them the first and the last ones.
func TestValueRoundTrip(t *testing.T) {
	check := func(v vitals.Value, decimals int) {
		text := string(vitals.AppendDecimal([]byte("x"), v, decimals))
		if want := "x" + strconv.FormatFloat(float64(v)/math.Pow10(decimals), 'f', -1, 64); text != want {
			t.Fatalf("AppendDecimal(%d, %d) = %q, want %q", v, decimals, text, want)
		}
		if got, err := vitals.ParseValue(text[1:], decimals); got != v || err != nil {
			t.Fatalf("ParseValue(%q, %d) = %d, %v; want %d", text[1:], decimals, got, err, v)
		}
	}
	for decimals := range vitals.MaxDecimals + 1 {
		for i := range vitals.Value(1 << 16) {
			check(i, decimals)
			check(-i, decimals)
			check(vitals.MaxValue-1-i, decimals)
			check(vitals.MinValue+2+i, decimals)
		}
		for _, end := range []vitals.Value{vitals.MinValue, vitals.MinValue + 1, vitals.MaxValue} {
			if v, err := vitals.ParseValue(vitals.AppendDecimal(nil, end, decimals), decimals); err != vitals.ErrRange {
				t.Errorf("the end %d with %d decimals is parsed as %d, %v; want ErrRange", end, decimals, v, err)
			}
		}
	}
}

var (
	jsonNumber = regexp.MustCompile(`^(-?)((?:0|[1-9][0-9]*)(?:\.[0-9]+)?)(?:[eE]([+-]?)([0-9]+))?$`)
	nonzero    = regexp.MustCompile(`[1-9]`)
)

// modelValue is ParseValue with rational numbers.
func modelValue(text string, decimals int) (vitals.Value, error) {
	m := jsonNumber.FindStringSubmatch(text)
	if m == nil {
		return 0, vitals.ErrNumber
	}
	mantissa, down, exponent := m[2], m[3] == "-", strings.TrimLeft(m[4], "0")
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
	r.Mul(r, big.NewRat(int64(math.Pow10(decimals)), 1))
	switch {
	case !r.IsInt():
		return 0, vitals.ErrPrecision
	case r.Num().CmpAbs(big.NewInt(math.MaxInt32-1)) > 0:
		return 0, vitals.ErrRange
	default:
		return vitals.Value(r.Num().Int64()), nil
	}
}

func FuzzNumber(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 5000 {
			return // see modelValue
		}
		for decimals := range vitals.MaxDecimals + 1 {
			got, err := vitals.ParseValue(text, decimals)
			want, wantErr := modelValue(text, decimals)
			if got != want || !errors.Is(err, wantErr) {
				t.Fatalf("ParseValue(%q, %d) = %d, %v; want %d, %v", text, decimals, got, err, want, wantErr)
			}
			if err == nil {
				again, err := vitals.ParseValue(vitals.AppendDecimal(nil, got, decimals), decimals)
				if again != got || err != nil {
					t.Fatalf("%d does not survive a round trip: %d, %v", got, again, err)
				}
			}
		}
	})
}
