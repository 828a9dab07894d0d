package shape

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/pulsegate/pulsegate/vitals"
)

var (
	errLongName  = errors.New("longer than 64 bytes as a name, in which : and two digits are written for other characters")
	errEmptyPart = errors.New("a part is empty")
)

// Name returns the name of a text, which is UTF-8. A text that is a name stays as it is, unless it reads like an escaped
// one. In all others, each byte that no name may have, and each colon, is written as a colon and two hexadecimal digits
// in upper case. Two texts never give one name.
//
// Invariant: a text stays only if no other text is escaped to it. TestNamesDiffer compares all short texts.
func Name(text []byte) (vitals.Name, error) {
	if name, err := vitals.ParseName(text); err == nil && !isEscaped(text) {
		return name, nil
	}
	return parseEscaped(appendEscaped(nil, text, ":"))
}

// joinedName returns the name of several texts, of which none may be empty: they are escaped, their full stops too, and
// joined with full stops.
func joinedName(parts [][]byte) (vitals.Name, error) {
	var joined []byte
	for i, part := range parts {
		if len(part) == 0 {
			return vitals.Name{}, errEmptyPart
		}
		if i > 0 {
			joined = append(joined, '.')
		}
		joined = appendEscaped(joined, part, ":.")
	}
	return parseEscaped(joined)
}

func parseEscaped(text []byte) (vitals.Name, error) {
	if len(text) > vitals.MaxNameBytes {
		return vitals.Name{}, errLongName
	}
	return vitals.ParseName(text)
}

// isNameByte reports whether names may have a byte.
func isNameByte(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == ':' || c == '-'
}

const upperHex = "0123456789ABCDEF"

// appendEscaped appends a text in which the bytes that no name may have, and those of also, are escaped.
func appendEscaped(dst, text []byte, also string) []byte {
	for i, c := range text {
		if len(dst) > vitals.MaxNameBytes { // too long for a name
			return dst
		}
		if isNameByte(c) && strings.IndexByte(also, c) < 0 {
			dst = append(dst, text[i])
		} else {
			dst = append(dst, ':', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

// isEscaped reports whether a name is what another text, which is UTF-8, is escaped to.
func isEscaped(name []byte) bool {
	text := make([]byte, 0, vitals.MaxNameBytes)
	for i := 0; i < len(name); i++ {
		if name[i] != ':' {
			text = append(text, name[i])
			continue
		}
		if i+2 >= len(name) {
			return false
		}
		high, low := strings.IndexByte(upperHex, name[i+1]), strings.IndexByte(upperHex, name[i+2])
		if high < 0 || low < 0 {
			return false
		}
		if c := byte(high<<4 | low); c == ':' || !isNameByte(c) {
			text = append(text, c)
		} else {
			return false
		}
		i += 2
	}
	return !bytes.Equal(text, name) && utf8.Valid(text)
}
