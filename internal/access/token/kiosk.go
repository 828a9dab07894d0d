package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
)

// KioskCookie returns the value of the cookie of a session that was begun with the text of a kiosk's token: the ID and
// a secret. [Set.LookupKiosk] finds the token by it.
//
// No server keeps the session, so it outlives restarts and is known to every server with the same token file, until the
// token expires or is revoked. The secret is an HMAC under the token's text, and the file holds only its SHA-256:
// neither the cookie nor the file reveals the token, and a reader of the file cannot make a cookie. All browsers have
// the same cookie, so only the token's end ends a session whose cookie was copied.
func KioskCookie(text string) string {
	digest := Digest(sha256.Sum256([]byte(text)))
	return digest.ID().String() + "." + kioskSecret(text)
}

func kioskSecret(text string) string {
	mac := hmac.New(sha256.New, []byte(text))
	mac.Write([]byte("pulsegate kiosk session")) // never returns an error
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
