package reply

// AppendETag appends an entity tag: the opaque part in quotes, with W/ before it
// if it is weak. It reports false, and appends nothing, if opaque holds a byte
// that a tag may not hold (RFC 9110, section 8.8.3).
func AppendETag(dst []byte, opaque string, weak bool) ([]byte, bool) {
	for i := range len(opaque) {
		if !isETagByte(opaque[i]) {
			return dst, false
		}
	}
	if weak {
		dst = append(dst, "W/"...)
	}
	dst = append(dst, '"')
	dst = append(dst, opaque...)
	return append(dst, '"'), true
}

// MatchETag reports whether the values of an If-None-Match field name the tag
// etag (with its quotes), or are "*". The comparison is the weak one, as
// RFC 9110, section 13.1.2, asks.
func MatchETag(ifNoneMatch []string, etag string) bool {
	for _, field := range ifNoneMatch {
		if matchETagList(field, etag) {
			return true
		}
	}
	return false
}

// matchETagList looks for etag in one list. A list that turns out to be
// malformed matches with what was read before that.
func matchETagList[T string | []byte](list T, etag string) bool {
	etag = cutWeak(etag)
	list = trimSpace(list)
	if len(list) == 1 && list[0] == '*' {
		return true
	}
	for {
		for len(list) > 0 && (list[0] == ',' || list[0] == ' ' || list[0] == '\t') {
			list = list[1:]
		}
		list = cutWeak(list)
		if len(list) == 0 || list[0] != '"' {
			return false
		}
		end := 1
		for end < len(list) && isETagByte(list[end]) {
			end++
		}
		if end == len(list) || list[end] != '"' {
			return false
		}
		if string(list[:end+1]) == etag {
			return true
		}
		list = list[end+1:]
	}
}

func cutWeak[T string | []byte](s T) T {
	if len(s) >= 2 && s[0] == 'W' && s[1] == '/' {
		return s[2:]
	}
	return s
}

// isETagByte reports whether c is an etagc.
func isETagByte(c byte) bool {
	return c == 0x21 || 0x23 <= c && c != 0x7f
}
