package fhir

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// # Cursors
//
// A link to the next page has one parameter, the cursor: the parameters of the search and the
// last Observation shown, encrypted with AES-GCM. So the link does not name the patient, to
// proxies and logs on its way, and cannot be changed. The key is derived from the credentials
// of the request, so that a cursor is of use only together with them, to every server that
// accepts them, also after a restart. A cursor gives no access: it is only a search, which is
// authorized like any other.
//
// Without tokens there are no credentials, and everybody can decrypt a cursor.

// A position is the place of an Observation in a searchset.
type position struct {
	unixMs int64
	device vitals.Name
	group  group
}

const (
	cursorVersion = 1
	cursorPage    = "pulsegate fhir page\x00"
)

// pageCipher returns the cipher of the cursors of a client.
func pageCipher(r *http.Request) cipher.AEAD {
	_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ") // the scheme may be in any case
	key := sha256.Sum256([]byte(cursorPage + strings.TrimSpace(secret)))
	return newCipher(key[:])
}

// newCipher returns the encryption with a key.
func newCipher(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for other lengths of keys
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for other lengths of blocks
	}
	return aead
}

// seal returns the cursor of a page that continues after last.
func seal(r *http.Request, used url.Values, last position) string {
	query := used.Encode()
	plain := make([]byte, 0, 16+vitals.MaxNameBytes+len(query))
	plain = binary.BigEndian.AppendUint64(append(plain, cursorVersion, byte(last.group)), uint64(last.unixMs))
	plain = last.device.AppendTo(append(plain, byte(last.device.Len())))
	plain = append(plain, query...)
	return base64.RawURLEncoding.EncodeToString(pageCipher(r).Seal(nil, nil, plain, nil))
}

// open reverses seal. It reports false for a text that seal did not return to the same client.
func open(r *http.Request, cursor string) (used url.Values, last position, ok bool) {
	sealed, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, last, false
	}
	plain, err := pageCipher(r).Open(nil, nil, sealed, nil)
	const head = 2 + 8 + 1
	if err != nil || len(plain) < head || plain[0] != cursorVersion || len(plain) < head+int(plain[head-1]) {
		return nil, last, false
	}
	last.group, last.unixMs = group(plain[1]), int64(binary.BigEndian.Uint64(plain[2:]))
	name, query := plain[head:head+int(plain[head-1])], plain[head+int(plain[head-1]):]
	if last.device, err = vitals.ParseName(name); err != nil {
		return nil, last, false
	}
	used, err = url.ParseQuery(string(query))
	return used, last, err == nil
}
