package shape

import (
	"errors"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/vitals"
)

// A tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
}

// checkValue checks that a sign takes a number if, and only if, the number is a Value with the decimals of the sign.
func checkValue(t tester, d *vitals.Definition, want *big.Rat, got vitals.Value, err error) {
	t.Helper()
	scale := int64(1)
	for range d.Decimals {
		scale *= 10
	}
	scaled := new(big.Rat).Mul(want, new(big.Rat).SetInt64(scale))
	limit := new(big.Rat).SetInt64(int64(vitals.MaxValue))
	switch fits := new(big.Rat).Abs(scaled).Cmp(limit) < 0; {
	case !scaled.IsInt():
		if !errors.Is(err, vitals.ErrPrecision) {
			t.Errorf("%v: got %d, %v, want ErrPrecision", want, got, err)
		}
	case !fits:
		if !errors.Is(err, vitals.ErrRange) {
			t.Errorf("%v: got %d, %v, want ErrRange", want, got, err)
		}
	case err != nil || scaled.Num().Int64() != int64(got):
		t.Errorf("%v: got %d, %v, want %v", want, got, err, scaled)
	}
}

// TestFactors compares values times factors with math/big.
func TestFactors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,11})(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "value")
		factor := rapid.StringMatching(`(0|[1-9][0-9]{0,5})(\.[0-9]{1,6})?(e-?[0-9])?`).Draw(t, "factor")
		f, err := parseDecimal([]byte(factor))
		if err != nil {
			t.Fatal(err)
		}
		s := Sign{Definition: &vitals.Definition{Decimals: rapid.IntRange(0, vitals.MaxDecimals).Draw(t, "decimals")},
			factor: &f}
		a, _ := new(big.Rat).SetString(digits)
		b, _ := new(big.Rat).SetString(factor)
		got, _, err := s.value([]byte(digits))
		checkValue(t, s.Definition, a.Mul(a, b), got, err)
	})
	for units, f := range exactUnits {
		if f.digits.Sign() <= 0 {
			t.Errorf("%v: %v", units, f)
		}
	}
}

// TestUnix compares times with math/big.
func TestUnix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "time")
		want, _ := new(big.Rat).SetString(digits)
		want.Mul(want, big.NewRat(1000, 1))
		ms := new(big.Int).Div(want.Num(), want.Denom()) // the floor
		got, err := parseUnix([]byte(digits), 3)
		switch {
		case !ms.IsInt64():
			if !errors.Is(err, vitals.ErrFuture) && !errors.Is(err, vitals.ErrPast) {
				t.Errorf("%s: %d, %v", digits, got, err)
			}
		case err != nil || got != ms.Int64():
			t.Errorf("%s: %d, %v, want %v", digits, got, err, ms)
		}
	})
}
