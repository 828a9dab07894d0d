package vitals

import "bytes"

// MaxNameBytes is the length of the longest [Name].
const MaxNameBytes = 64

// A Name is the name of a device or of a gateway: 1 to 64 bytes of
// A–Z a–z 0–9 . _ : and -.
//
// A Name is a value without pointers. It can be compared with == and used as a
// map key, and it never refers to the buffer that it was parsed from. The zero
// Name means "not given".
type Name struct {
	// b holds the name's bytes, followed by NULs.
	//
	// Invariant: no byte follows a NUL, so that == and Compare are those of the
	// names. TestNameOrder checks it.
	b [MaxNameBytes]byte
}

// ParseName returns the name that text spells, or an error that wraps [ErrName].
// It does not retain text.
func ParseName[T ~string | ~[]byte](text T) (Name, error) {
	if !isName(text) {
		return Name{}, ErrName
	}
	var n Name
	copy(n.b[:], text)
	return n, nil
}

// parse is ParseName into n, which is zero.
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

// IsAwkward reports whether n is ".", ".." or begins with "-". Clients that build a URL
// of it remove the dots (RFC 3986, section 5.2.4), command lines take it for a flag, and
// spreadsheets compute it.
func (n *Name) IsAwkward() bool {
	switch n.b[0] {
	case '-':
		return true
	case '.':
		return n.b[1] == 0 || n.b[1] == '.' && n.b[2] == 0
	}
	return false
}

// IsZero reports whether n was not given.
func (n *Name) IsZero() bool { return n.b[0] == 0 }

// Len returns the length of n in bytes, 0 to 64.
func (n *Name) Len() int {
	if i := bytes.IndexByte(n.b[:], 0); i >= 0 {
		return i
	}
	return MaxNameBytes
}

// AppendTo appends the bytes of n to dst.
func (n *Name) AppendTo(dst []byte) []byte { return append(dst, n.b[:n.Len()]...) }

// String returns the name as text, "" for the zero Name.
func (n Name) String() string { return string(n.b[:n.Len()]) }

// Compare returns -1, 0 or +1 as n sorts before, is equal to or sorts after m,
// byte by byte.
func (n *Name) Compare(m *Name) int { return bytes.Compare(n.b[:], m.b[:]) }

// nameByte tells the bytes that a name may hold. It is never written to.
var nameByte = func() (ok [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") {
		ok[c] = true
	}
	return ok
}()
