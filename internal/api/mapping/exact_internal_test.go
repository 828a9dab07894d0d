package mapping

import (
	"errors"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// ratOf is the model of numbers: mantissa × 10^exponent of two's complements of a number of bits.
func ratOf(bits uint64, mantissaBits, exponentBits int) *big.Rat {
	signed := func(n uint64, width int) int64 {
		if n>>(width-1)&1 == 1 {
			return int64(n) - 1<<width
		}
		return int64(n)
	}
	mantissa := signed(bits&(1<<mantissaBits-1), mantissaBits)
	exponent := signed(bits>>mantissaBits, exponentBits)
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(max(exponent, -exponent)), nil)
	r := new(big.Rat).SetInt64(mantissa)
	if exponent < 0 {
		return r.Quo(r, new(big.Rat).SetInt(power))
	}
	return r.Mul(r, new(big.Rat).SetInt(power))
}

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

func ruleFor(decimals int) *shape.Sign {
	return &shape.Sign{Definition: &vitals.Definition{Decimals: decimals}}
}

// TestSFLOAT compares all SFLOATs with the model.
func TestSFLOAT(t *testing.T) {
	specials := 0
	for bits := range 1 << 16 {
		mantissa, exponent, ok := parseSFLOAT(uint16(bits))
		if !ok {
			specials++
			if m := bits & 0xFFF; bits>>12 != 0 || m < 0x7FE || m > 0x802 {
				t.Errorf("%04x is a number", bits)
			}
			continue
		}
		for decimals := range vitals.MaxDecimals + 1 {
			s := ruleFor(decimals)
			got, _, _, err := s.Part(mantissa, exponent, "")
			checkValue(t, s.Definition, ratOf(uint64(bits), 12, 4), got, err)
		}
	}
	if specials != 5 {
		t.Errorf("%d special values, want 5", specials)
	}
}

// TestFLOAT compares FLOATs with the model: all exponents with mantissas near powers of two and of ten, and random
// ones.
func TestFLOAT(t *testing.T) {
	check := func(t tester, bits uint32) {
		mantissa, exponent, ok := parseFLOAT(bits)
		m := bits & 0xFFFFFF
		if special := bits>>24 == 0 && m >= 0x7FFFFE && m <= 0x800002; ok == special {
			t.Errorf("%08x: a number %v", bits, ok)
		} else if ok {
			s := ruleFor(2)
			got, _, _, err := s.Part(mantissa, exponent, "")
			checkValue(t, s.Definition, ratOf(uint64(bits), 24, 8), got, err)
		}
	}
	for exponent := range 256 {
		for shift := range 24 {
			for off := -2; off <= 2; off++ {
				check(t, uint32(exponent)<<24|uint32(1<<shift+off)&0xFFFFFF)
			}
		}
		for n := 1; n < 1<<24; n *= 10 {
			check(t, uint32(exponent)<<24|uint32(n))
			check(t, uint32(exponent)<<24|uint32(-n)&0xFFFFFF)
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.Uint32().Draw(t, "bits")) })
}
