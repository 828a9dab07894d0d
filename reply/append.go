package reply

import "strconv"

// AppendInt appends n in decimal, as strconv.AppendInt does. For the small
// numbers that answers are full of (lengths, seconds, indexes, counts) it takes
// less than half the time.
func AppendInt(dst []byte, n int64) []byte {
	switch u := uint64(n); {
	case u < 10:
		return append(dst, '0'+byte(u))
	case u < 100:
		return append(dst, '0'+byte(u/10), '0'+byte(u%10))
	case u < 1000:
		return append(dst, '0'+byte(u/100), '0'+byte(u/10%10), '0'+byte(u%10))
	case u < 10000:
		return append(dst, '0'+byte(u/1000), '0'+byte(u/100%10), '0'+byte(u/10%10), '0'+byte(u%10))
	}
	return strconv.AppendInt(dst, n, 10)
}

// AppendToken appends s as a parameter value: as it is if it is a token, in
// quotes otherwise. It reports false, and appends nothing, where
// [AppendQuotedString] does.
func AppendToken(dst []byte, s string) ([]byte, bool) {
	if isToken(s) {
		return append(dst, s...), true
	}
	return AppendQuotedString(dst, s)
}

// AppendQuotedString appends s as a quoted-string (RFC 9110, section 5.6.4). It
// reports false, and appends nothing, if s holds a control character other than
// a tab: no quoting makes that safe in a header.
func AppendQuotedString(dst []byte, s string) ([]byte, bool) {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return dst, false
		}
	}
	dst = append(dst, '"')
	for i := range len(s) {
		if c := s[i]; c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"'), true
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x80 || tokenBytes[c/64]&(1<<(c%64)) == 0 {
			return false
		}
	}
	return s != ""
}

// tokenBytes has a bit for each byte that a token may hold.
var tokenBytes = func() (set [2]uint64) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		set[c/64] |= 1 << (c % 64)
	}
	return set
}()
