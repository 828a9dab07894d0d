package vitals

import "bytes"

// decodePlain decodes the reading that starts at body[i] into r, which must be zero,
// and returns the index after it. If it gives up, it returns false and r is undefined.
//
// It is the fast path for typical readings: an object with known fields, each once,
// strings without escapes, and numbers without exponents. It gives up on everything
// else, including errors and broken rules, and leaves them to decodeStrict.
//
// Invariant: it may give up too often, but everything that it accepts is valid JSON,
// and decodeStrict would return the same reading. TestPlainAgreesWithStrict and
// FuzzDecode check it. It holds because each step below accepts a subset of the JSON
// grammar: known field names, strings accepted by ParseName or ParseRFC3339, which need
// no escapes, and numbers accepted by plainHundredths or ParseUnixMs and followed by a
// comma or brace.
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
			if i, ok = plainTime(body, i, times.leastInteger, r); !ok || d.rules.checkTime(r.TimeUnixMs, times) != nil {
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

// memberAt returns the member whose quoted name starts at body[i], and the index after
// the closing quote.
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

// plainName parses the string at body[i] into n and returns the index after it.
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

// plainTime parses the string or integer at body[i] as the time of r and returns the index after
// it. An integer must be at least leastInteger. A remainder of the number, such as an exponent,
// makes the caller give up.
func plainTime(body []byte, i int, leastInteger int64, r *Reading) (end int, ok bool) {
	if byteAt(body, i) != '"' {
		end = i
		for end < len(body) && isDigit(body[end]) {
			end++
		}
		unixMs, err := ParseUnixMs(body[i:end])
		r.TimeUnixMs = unixMs
		return end, err == nil && unixMs >= leastInteger
	}
	i++
	length := bytes.IndexByte(body[i:min(i+MaxTimeBytes+1, len(body))], '"')
	if length < 0 {
		return 0, false
	}
	var err error
	r.TimeUnixMs, r.UTCOffset, err = ParseRFC3339(body[i : i+length])
	return i + length + 1, err == nil
}

// plainHundredths parses the number at body[i], with at most three digits before the
// point and two after it, and returns the index after it. A remainder of the number
// makes the caller give up.
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

// byteAt returns body[i], or 0, which is never valid in JSON, if i is after the end.
func byteAt(body []byte, i int) byte {
	if i < len(body) {
		return body[i]
	}
	return 0
}
