package vitals_test

import (
	"errors"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

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
	for _, text := range []string{
		"97.5", "97.55", "97.550", "9.755e1", "9755E-2", "975500e-4", "0.009755e+4", "62.8", "7", "0.01", "655.35", "6e2",
		"100", "1" + strings.Repeat("0", 500) + "e-500", "0." + strings.Repeat("0", 500) + "1e501",
		"0.1" + strings.Repeat("0", 500), "0", "-0", "0.000", "0e5", "0e-999999999999999999999", "97.555", "-97.555",
		"0.001", "1e-3", "1e-999999999", "1e-99999999999999999999999", "99999.999", "97.5500000000000000000000000001",
		"655.36", "21474836.46", "-21474836.46", "21474836.47", "-21474836.47", "-21474836.48", "99999999999",
		"1e999999999", "1e99999999999999999999999", "-1", "-97.5", "4294967296", "18446744073709551616", "", "-", "+1",
		".5", "5.", "5.e1", "1e", "1e+", "01", "-01", "1 ", " 1", "1,5", "1_0", "0x10", "NaN", "Infinity", "1e5.0",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 5000 {
			return // see modelValue
		}
		for decimals := range vitals.MaxDecimals + 1 {
			got, err := vitals.ParseValue(text, decimals)
			if same, sameErr := vitals.ParseValue([]byte(text), decimals); same != got || sameErr != err {
				t.Fatalf("ParseValue of bytes %q = %d, %v; of a string %d, %v", text, same, sameErr, got, err)
			}
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
