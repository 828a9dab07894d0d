package vitals

import "bytes"

// decodePlain reads the reading that starts at body[i] into r, which is zero,
// and returns the index behind it; or it gives up, and r is whatever it is.
//
// It is the short way for what gateways send all day: an object of known fields,
// each once, strings without escapes, and numbers without exponents. It gives up
// on everything else, mistakes and broken rules included, and decodeStrict then
// says what is to be said.
//
// Invariant: it may give up too often, but what it accepts is valid JSON and a
// reading to which decodeStrict would say the same. TestPlainAgreesWithStrict
// and FuzzDecode check it. It holds because each step below accepts a subset of
// the JSON grammar: a field's name by comparison, a string as one of the texts
// of ParseName or ParseRFC3339, which need no escapes, and a number as one of
// the texts of plainHundredths or ParseUnixMs, with a comma or brace behind it.
func (d *Decoder) decodePlain(body []byte, i int, times timeSpan, r *Reading) (end int, ok bool) {
	if byteAt(body, i) != '{' {
		return 0, false
	}
	hasTime := false
	for {
		i = skipSpace(body, i+1)
		m, next := d.memberAt(body, i)
		i = skipSpace(body, next)
		if m == memberUnknown || byteAt(body, i) != ':' {
			return 0, false
		}
		i = skipSpace(body, i+1)

		switch m {
		case memberDevice, memberGateway:
			name := &r.Device
			if m == memberGateway {
				name = &r.Gateway
			}
			if !name.IsZero() {
				return 0, false
			}
			if i, ok = plainName(body, i, name); !ok {
				return 0, false
			}
		case memberTime:
			if hasTime {
				return 0, false
			}
			hasTime = true
			if r.TimeUnixMs, i, ok = plainTime(body, i, times.leastInteger); !ok || d.rules.checkTime(r.TimeUnixMs, times) != nil {
				return 0, false
			}
		default:
			s := Sign(m)
			v, next, ok := plainHundredths(body, i)
			if !ok || r.Values.Has(s) || d.rules.checkValue(s, v) != nil {
				return 0, false
			}
			r.Values.Set(s, v)
			i = next
		}

		i = skipSpace(body, i)
		switch byteAt(body, i) {
		case ',':
		case '}':
			_, err := checkTogether(&r.Values)
			return i + 1, err == nil && hasTime && !r.Device.IsZero()
		default:
			return 0, false
		}
	}
}

// memberAt returns the member whose quoted name stands at body[i], and the index
// behind the closing quote.
func (d *Decoder) memberAt(body []byte, i int) (m member, end int) {
	if byteAt(body, i) != '"' {
		return memberUnknown, i
	}
	i++
	length := bytes.IndexByte(body[i:min(i+maxMemberBytes+1, len(body))], '"')
	if length < 0 {
		return memberUnknown, i
	}
	return memberNamed(body[i : i+length]), i + length + 1
}

// plainName reads the string at body[i] into n and returns the index behind it.
func plainName(body []byte, i int, n *Name) (end int, ok bool) {
	if byteAt(body, i) != '"' {
		return 0, false
	}
	i++
	length := bytes.IndexByte(body[i:min(i+MaxNameBytes+1, len(body))], '"')
	if length < 0 {
		return 0, false
	}
	err := n.parse(body[i : i+length])
	return i + length + 1, err == nil
}

// plainTime reads the string or integer at body[i] as a time and returns the
// index after it. An integer is at least leastInteger. What else may belong to the number, such as an exponent, is
// left for the caller to stumble over.
func plainTime(body []byte, i int, leastInteger int64) (unixMs int64, end int, ok bool) {
	if byteAt(body, i) != '"' {
		end = i
		for end < len(body) && isDigit(body[end]) {
			end++
		}
		unixMs, err := ParseUnixMs(body[i:end])
		return unixMs, end, err == nil && unixMs >= leastInteger
	}
	i++
	length := bytes.IndexByte(body[i:min(i+MaxTimeBytes+1, len(body))], '"')
	if length < 0 {
		return 0, 0, false
	}
	unixMs, err := ParseRFC3339(body[i : i+length])
	return unixMs, i + length + 1, err == nil
}

// plainHundredths reads the number at body[i], of at most three digits before
// the point and two behind it, and returns the index behind it. What else may
// belong to the number is left for the caller to stumble over.
func plainHundredths(body []byte, i int) (v Hundredths, end int, ok bool) {
	start := i
	whole := 0
	for i < len(body) && isDigit(body[i]) && i < start+4 {
		whole = whole*10 + int(body[i]-'0')
		i++
	}
	digits := i - start
	if digits == 0 || digits > 3 || body[start] == '0' && digits > 1 {
		return 0, 0, false
	}
	cents := 0
	if byteAt(body, i) == '.' {
		tenth, hundredth := byteAt(body, i+1)-'0', byteAt(body, i+2)-'0'
		switch {
		case tenth > 9:
			return 0, 0, false
		case hundredth > 9:
			cents = int(tenth) * 10
			i += 2
		default:
			cents = int(tenth)*10 + int(hundredth)
			i += 3
		}
	}
	sum := whole*100 + cents
	return Hundredths(sum), i, sum <= int(maxHundredths)
}

// byteAt returns body[i], or 0, which stands for nothing in JSON, behind the end.
func byteAt(body []byte, i int) byte {
	if i < len(body) {
		return body[i]
	}
	return 0
}
