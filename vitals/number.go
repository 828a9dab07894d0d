package vitals

// maxExponent bounds the exponent in computations. It exceeds the length of any text,
// so that no number of digits can compensate for it.
const maxExponent = 1 << 40

// ParseValue parses text exactly, without rounding, as a value with a number of decimals, 0 to
// MaxDecimals. The text is a JSON number (RFC 8259), possibly with an exponent: 97.5, 97.550 or
// 9.755e1.
//
// It returns [ErrNumber] if text is not a number, a variant of [ErrPrecision] if the value has more
// decimals, and [ErrRange] if it is outside the range of [Value], whose ends are not
// values. Zero is valid; the caller decides whether it means "no signal". The running time
// depends only on the length of text, not on the exponent.
func ParseValue[T ~string | ~[]byte](text T, decimals int) (Value, error) {
	var (
		i        int
		negative bool
	)
	if i < len(text) && text[i] == '-' {
		negative = true
		i++
	}

	// The digits before and after the point are one number, digits, without
	// leading and trailing zeros. value = digits × 10^scale.
	var (
		digits      uint64 // the first maxDigits significant digits
		significant int64  // number of significant digits
		zeros       int64  // zeros after the last significant digit
		scale       int64
	)
	const maxDigits = 10 // of MaxValue
	digit := func(c byte) {
		if c == '0' {
			if significant > 0 {
				zeros++
			}
			return
		}
		// The zeros before this digit are significant.
		for ; zeros > 0; zeros-- {
			if significant++; significant <= maxDigits {
				digits *= 10
			}
		}
		if significant++; significant <= maxDigits {
			digits = digits*10 + uint64(c-'0')
		}
	}

	switch {
	case i == len(text) || !isDigit(text[i]):
		return 0, ErrNumber
	case text[i] == '0':
		i++
	default:
		for ; i < len(text) && isDigit(text[i]); i++ {
			digit(text[i])
		}
	}
	if i < len(text) && text[i] == '.' {
		i++
		start := i
		for ; i < len(text) && isDigit(text[i]); i++ {
			digit(text[i])
		}
		if i == start {
			return 0, ErrNumber
		}
		scale = -int64(i - start)
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		i++
		down := false
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			down = text[i] == '-'
			i++
		}
		start := i
		var exponent int64
		for ; i < len(text) && isDigit(text[i]); i++ {
			exponent = min(exponent*10+int64(text[i]-'0'), maxExponent)
		}
		if i == start {
			return 0, ErrNumber
		}
		if down {
			exponent = -exponent
		}
		scale += exponent
	}
	if i != len(text) {
		return 0, ErrNumber
	}

	if significant == 0 {
		return 0, nil
	}
	// The value is digits × 10^places.
	places := scale + zeros + int64(decimals)
	switch {
	case places < 0:
		return 0, precisionRules[decimals]
	case significant+places > maxDigits:
		return 0, ErrRange
	}
	for ; places > 0; places-- {
		digits *= 10
	}
	if digits >= uint64(MaxValue) {
		return 0, ErrRange
	}
	if negative {
		return -Value(digits), nil
	}
	return Value(digits), nil
}

func isDigit(c byte) bool { return c-'0' <= 9 }
