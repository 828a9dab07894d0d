package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"path/filepath"
	"strings"
)

// Prefix is the beginning of every token.
const Prefix = "pgt_"

// TextBytes is the length of every token's text.
const TextBytes = len(Prefix) + (secretBytes+crcBytes)/3*4

const (
	secretBytes = 32
	crcBytes    = 4
)

// Errors for an invalid token text or for a request's credentials. They do not reveal
// the text.
var (
	ErrMissing   = errors.New("no token")
	ErrMalformed = errors.New("not a token")
	ErrUnknown   = errors.New("the token is unknown or revoked")
	ErrExpired   = errors.New("the token has expired")
)

// castagnoli is the table of CRC-32C, RFC 3720, appendix B.4. It is never written
// to.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Digest is the SHA-256 of a token's text.
type Digest [sha256.Size]byte

// ID returns the ID of the token with digest d.
func (d *Digest) ID() ID { return ID(d[:len(ID{})]) }

// An ID names a token: the first 48 bits of its digest.
type ID [6]byte

// String returns the 12 hexadecimal digits of id.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID parses 12 lower-case hexadecimal digits as an ID.
func ParseID(text string) (ID, error) {
	var id ID
	if !parseHex(id[:], text) {
		return ID{}, errors.New("an ID is 12 hexadecimal digits, 0-9 and a-f")
	}
	return id, nil
}

// parseHex decodes text into dst. It reports whether text is exactly len(dst) bytes in
// lower-case hexadecimal digits.
func parseHex(dst []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(dst)) || strings.ContainsAny(text, "ABCDEF") {
		return false
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}

// newText returns the text of a new token.
func newText() string {
	var raw [secretBytes + crcBytes]byte
	rand.Read(raw[:secretBytes]) // never fails: crypto/rand ends the process instead
	binary.BigEndian.PutUint32(raw[secretBytes:], secretCRC(raw[:secretBytes]))
	return Prefix + base64.RawURLEncoding.EncodeToString(raw[:])
}

// secretCRC returns the CRC-32C of Prefix and secret. It does not use crc32.Update,
// whose argument would escape to the heap.
func secretCRC(secret []byte) uint32 {
	crc := ^prefixCRC
	for _, b := range secret {
		crc = castagnoli[byte(crc)^b] ^ crc>>8
	}
	return ^crc
}

// prefixCRC is the CRC-32C of Prefix. It is never modified.
var prefixCRC = crc32.Checksum([]byte(Prefix), castagnoli)

// IsText reports whether path is, or ends in, the text of a token. Such a path must be
// rejected early, because errors and logs repeat file names.
func IsText(path string) bool {
	_, err := DigestOf(filepath.Base(path))
	return err == nil
}

// DigestOf returns the digest of a token's text, or [ErrMalformed]. It detects typing
// errors without reading the file. It does not retain text.
func DigestOf[T ~string | ~[]byte](text T) (Digest, error) {
	if len(text) != TextBytes || string(text[:len(Prefix)]) != Prefix {
		return Digest{}, ErrMalformed
	}
	// A copy of known size stays on the stack.
	var b [TextBytes]byte
	copy(b[:], text)
	var raw [secretBytes + crcBytes]byte
	// Decode skips line breaks and then returns fewer bytes.
	n, err := base64.RawURLEncoding.Decode(raw[:], b[len(Prefix):])
	if err != nil || n != len(raw) || binary.BigEndian.Uint32(raw[secretBytes:]) != secretCRC(raw[:secretBytes]) {
		return Digest{}, ErrMalformed
	}
	return sha256.Sum256(b[:]), nil
}

// scheme is the authentication scheme in an Authorization header. It is
// case-insensitive (RFC 9110, section 11.1).
const scheme = "bearer"

// DigestOfHeader returns the digest of the token in the value of an Authorization
// header: the scheme, one or more spaces, and the token (RFC 6750, section 2.1), without
// white space around them. It returns [ErrMissing] for an empty value, and [ErrMalformed]
// for anything else, other schemes included. It neither allocates nor retains value.
//
// The caller must reject a request with several Authorization headers, because two parties
// might pick different ones.
func DigestOfHeader[T ~string | ~[]byte](value T) (Digest, error) {
	if len(value) == 0 {
		return Digest{}, ErrMissing
	}
	return DigestOf(TextOf(value))
}

// TextOf returns the token in the value of an Authorization header, which may be anything that follows the
// scheme and the spaces; empty if the value has another form.
func TextOf[T ~string | ~[]byte](value T) (text T) {
	if len(value) <= len(scheme) || value[len(scheme)] != ' ' {
		return text
	}
	for i := range len(scheme) {
		if value[i]|0x20 != scheme[i] { // bit 5 is the letter case
			return text
		}
	}
	i := len(scheme)
	for i < len(value) && value[i] == ' ' {
		i++
	}
	return value[i:]
}
