package shape

import (
	"errors"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

var (
	errLongName  = errors.New("longer than 64 bytes as a name, in which : and two digits are written for other characters")
	errEmptyPart = errors.New("a part is empty")
)

// Name returns the name of a text, which is UTF-8. A text that is a name and does not begin with a colon stays as it
// is. Any other becomes a colon and the text, in which each byte that no name may have, and each colon, is a colon and
// two hexadecimal digits in upper case. So two texts never give one name: what begins with a colon can be read back.
func Name(text []byte) (vitals.Name, error) {
	if len(text) == 0 || text[0] != ':' {
		if name, err := vitals.ParseName(text); err == nil || len(text) == 0 {
			return name, err
		}
	}
	return parseEscaped(appendEscaped([]byte{':'}, text, ":"))
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
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' ||
		c == ':' || c == '-'
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
