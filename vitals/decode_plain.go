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
// no escapes, and numbers accepted by plainValue or ParseUnixMs and followed by a
// comma or brace.
func (d *Decoder) decodePlain(body []byte, i int, times timeSpan, r *Reading) (end int, ok bool) {
	if byteAt(body, i) != '{' {
		return 0, false
	}
	hasTime := false
	m := memberUnknown
	for {
		i = skipSpace(body, i+1)
		var next int
		m, next = d.memberAt(body, i, m)
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
			v, next, ok := plainValue(body, i, int(d.rules.decimals[s]))
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
			if _, err := checkTogether(&r.Values); err != nil || !hasTime {
				return 0, false
			}
			_, err := d.from.complete(r)
			return i + 1, err == nil && !r.Device.IsZero()
		default:
			return 0, false
		}
	}
}

// memberAt returns the member whose quoted name starts at body[i], and the index after
// the closing quote. before is the member before it, or memberUnknown.
func (d *Decoder) memberAt(body []byte, i int, before member) (m member, end int) {
	m = d.after[before]
	if name := d.rules.names.quoted[m]; len(name) < len(body)-i && string(body[i:i+len(name)]) == name {
		return m, i + len(name)
	}
	if byteAt(body, i) != '"' {
		return memberUnknown, i
	}
	i++
	length := bytes.IndexByte(body[i:min(i+d.rules.names.longest+1, len(body))], '"')
	if length < 0 {
		return memberUnknown, i
	}
	if m = d.rules.names.find(body[i : i+length]); m != memberUnknown {
		d.after[before] = m
	}
	return m, i + length + 1
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

// plainValue parses the number at body[i], with at most six digits before the point and at most
// the given number of decimals, and returns the index after it. A remainder of the number
// makes the caller give up.
func plainValue(body []byte, i int, decimals int) (v Value, end int, ok bool) {
	negative := byteAt(body, i) == '-'
	if negative {
		i++
	}
	start, n := i, int32(0) // n is undefined after too many digits
	for ; i < len(body) && isDigit(body[i]); i++ {
		n = n*10 + int32(body[i]-'0')
	}
	if digits := i - start; digits == 0 || digits > 6 || digits > 1 && body[start] == '0' {
		return 0, 0, false
	}
	if byteAt(body, i) == '.' {
		i++
		point := i
		for ; i < len(body) && isDigit(body[i]); i++ {
			n = n*10 + int32(body[i]-'0')
		}
		if decimals -= i - point; i == point || decimals < 0 {
			return 0, 0, false
		}
	}
	if n *= int32(powers[decimals]); negative {
		n = -n
	}
	return Value(n), i, true
}

// byteAt returns body[i], or 0, which is never valid in JSON, if i is after the end.
func byteAt(body []byte, i int) byte {
	if i < len(body) {
		return body[i]
	}
	return 0
}
