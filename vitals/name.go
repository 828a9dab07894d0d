package vitals

import "bytes"

// MaxNameBytes is the maximum length of a [Name].
const MaxNameBytes = 64

// A Name is the name of a device or of a gateway: 1 to 64 bytes of
// A–Z a–z 0–9 . _ : and -.
//
// A Name has no pointers. It can be compared with == and used as a map key, and it does
// not refer to the buffer from which it was parsed. The zero Name means that there is
// no name.
type Name struct {
	// b has the bytes of the name, padded with NULs.
	//
	// Invariant: only NULs follow a NUL, so that == and Compare agree with the texts.
	// TestNameOrder checks it.
	b [MaxNameBytes]byte
}

// ParseName parses text as a name. It returns an error that wraps [ErrName] if text is
// invalid. It does not retain text.
func ParseName[T ~string | ~[]byte](text T) (Name, error) {
	if !isName(text) {
		return Name{}, ErrName
	}
	var n Name
	copy(n.b[:], text)
	return n, nil
}

// parse is like ParseName, but writes to n, which must be zero.
func (n *Name) parse(text []byte) error {
	if !isName(text) {
		return ErrName
	}
	copy(n.b[:], text)
	return nil
}

func isName[T ~string | ~[]byte](text T) bool {
	if len(text) == 0 || len(text) > MaxNameBytes {
		return false
	}
	for i := range len(text) {
		if !nameByte[text[i]] {
			return false
		}
	}
	return true
}

// IsAwkward reports whether n is ".", ".." or begins with "-". URL libraries remove the
// dots (RFC 3986, section 5.2.4), command lines parse a leading "-" as a flag, and
// spreadsheets as a formula.
func (n *Name) IsAwkward() bool {
	switch n.b[0] {
	case '-':
		return true
	case '.':
		return n.b[1] == 0 || n.b[1] == '.' && n.b[2] == 0
	}
	return false
}

// IsZero reports whether n is the zero Name.
func (n *Name) IsZero() bool { return n.b[0] == 0 }

// Len returns the length of n in bytes, 0 to 64.
func (n *Name) Len() int {
	if i := bytes.IndexByte(n.b[:], 0); i >= 0 {
		return i
	}
	return MaxNameBytes
}

// Bytes returns the bytes of n, which must not be modified. NULs follow, up to a capacity of MaxNameBytes.
func (n *Name) Bytes() []byte { return n.b[:n.Len()] }

// AppendTo appends the bytes of n to dst.
func (n *Name) AppendTo(dst []byte) []byte { return append(dst, n.Bytes()...) }

// String returns the text of n, or "" for the zero Name.
func (n Name) String() string { return string(n.b[:n.Len()]) }

// Compare compares n and m bytewise. It returns -1, 0 or +1 if n sorts before, equals
// or sorts after m.
func (n *Name) Compare(m *Name) int { return bytes.Compare(n.b[:], m.b[:]) }

// HasPrefix reports whether n begins with prefix. Every name begins with the zero Name.
func (n *Name) HasPrefix(prefix *Name) bool {
	return bytes.HasPrefix(n.b[:], prefix.b[:prefix.Len()])
}

// nameByte is true for the bytes allowed in names. It is never modified.
var nameByte = func() (ok [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") {
		ok[c] = true
	}
	return ok
}()
