package shape

import (
	"bytes"
	"errors"
	"math/big"
	"strconv"

	"github.com/pulsegate/pulsegate/vitals"
)

// A decimal is the number digits × 10^exponent.
type decimal struct {
	digits   *big.Int
	exponent int
}

// Bounds of the numbers that are computed with.
const (
	maxNumberBytes = 64
	maxExponent    = 99
)

var (
	errNotNumber = errors.New("neither a number nor a string with one")
	errLong      = errors.New("a number of more than 64 bytes, or with an exponent beyond 99")
)

// parseDecimal parses a JSON number.
func parseDecimal(text []byte) (d decimal, err error) {
	if _, err := vitals.ParseValue(text, vitals.MaxDecimals); errors.Is(err, vitals.ErrNumber) {
		return d, errNotNumber
	}
	if len(text) > maxNumberBytes {
		return d, errLong
	}
	mantissa := text
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		mantissa = text[:i]
		if d.exponent, err = strconv.Atoi(string(text[i+1:])); err != nil || d.exponent < -maxExponent ||
			d.exponent > maxExponent {
			return d, errLong
		}
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	d.exponent -= len(fraction)
	d.digits, _ = new(big.Int).SetString(string(whole)+string(fraction), 10) // checked above
	return d, nil
}

// times returns the text of d times a factor.
func (d decimal) times(factor decimal) string {
	return new(big.Int).Mul(d.digits, factor.digits).String() + "e" + strconv.Itoa(d.exponent+factor.exponent)
}

// parseUnix parses a number of units of 10^exponent ms since 1970, and returns it in ms, cut towards the past.
func parseUnix(text []byte, exponent int) (unixMs int64, err error) {
	d, err := parseDecimal(text)
	if err != nil {
		return 0, err
	}
	n, power := d.digits, new(big.Int)
	switch e := d.exponent + exponent; {
	case e >= 0:
		n = new(big.Int).Mul(n, power.Exp(big.NewInt(10), big.NewInt(int64(e)), nil))
	default:
		n = new(big.Int).Div(n, power.Exp(big.NewInt(10), big.NewInt(int64(-e)), nil)) // Div rounds towards the past
	}
	switch {
	case n.IsInt64():
		return n.Int64(), nil
	case n.Sign() < 0:
		return 0, vitals.ErrPast
	}
	return 0, vitals.ErrFuture
}

// rat returns d as a fraction.
func (d decimal) rat() *big.Rat {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(d.exponent, -d.exponent))), nil)
	r := new(big.Rat).SetInt(d.digits)
	if d.exponent < 0 {
		return r.Quo(r, new(big.Rat).SetInt(power))
	}
	return r.Mul(r, new(big.Rat).SetInt(power))
}

// A conversion is (x - minus) × factor.
type conversion struct{ minus, factor *big.Rat }

func (c conversion) of(x *big.Rat) *big.Rat {
	if c.minus != nil {
		x = new(big.Rat).Sub(x, c.minus)
	}
	if c.factor != nil {
		x = new(big.Rat).Mul(x, c.factor)
	}
	return x
}

// round returns x with a number of decimals, rounded half to even, and whether that differs from x.
func round(x *big.Rat, decimals int) (v vitals.Value, rounded bool, err error) {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil)
	scaled := new(big.Rat).Mul(x, new(big.Rat).SetInt(scale))
	n, rest := new(big.Int).DivMod(scaled.Num(), scaled.Denom(), new(big.Int)) // the floor
	switch half := rest.Lsh(rest, 1).Cmp(scaled.Denom()); {
	case half > 0, half == 0 && n.Bit(0) == 1:
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() || n.Int64() <= int64(vitals.MinValue) || n.Int64() >= int64(vitals.MaxValue) {
		return 0, false, vitals.ErrRange
	}
	return vitals.Value(n.Int64()), !scaled.IsInt(), nil
}

// exactUnits has the factors from one unit (UCUM) to another that are exact and have few digits.
var exactUnits = map[[2]string]decimal{
	{"g", "kg"}: {big.NewInt(1), -3}, {"kg", "g"}: {big.NewInt(1), 3},
	{"ms", "s"}: {big.NewInt(1), -3}, {"s", "ms"}: {big.NewInt(1), 3},
	{"cm", "m"}: {big.NewInt(1), -2}, {"m", "cm"}: {big.NewInt(1), 2},
	{"Pa", "kPa"}: {big.NewInt(1), -3}, {"hPa", "kPa"}: {big.NewInt(1), -1},
	{"1", "%"}: {big.NewInt(1), 2}, {"/s", "/min"}: {big.NewInt(60), 0}, {"Hz", "/min"}: {big.NewInt(60), 0},
	{"mg/L", "mg/dL"}: {big.NewInt(1), -1}, {"g/L", "mg/dL"}: {big.NewInt(1), 2},
	{"umol/L", "mmol/L"}: {big.NewInt(1), -3},
}

// roundedUnits has the conversions from one unit (UCUM) to another whose results need to be rounded. A pound has
// exactly
// 0.45359237 kg, an inch 0.0254 m, and a conventional millimetre of mercury 133.322387415 Pa (NIST SP 811, appendix B).
var roundedUnits = map[[2]string]conversion{
	{"[degF]", "Cel"}:    {big.NewRat(32, 1), big.NewRat(5, 9)},
	{"K", "Cel"}:         {big.NewRat(27315, 100), nil},
	{"[lb_av]", "kg"}:    {nil, big.NewRat(45359237, 100_000_000)},
	{"[oz_av]", "kg"}:    {nil, big.NewRat(45359237, 1_600_000_000)},
	{"[stone_av]", "kg"}: {nil, big.NewRat(14*45359237, 100_000_000)},
	{"[in_i]", "m"}:      {nil, big.NewRat(254, 10_000)},
	{"kPa", "mm[Hg]"}:    {nil, big.NewRat(1_000_000_000_000, 133_322_387_415)},
}
