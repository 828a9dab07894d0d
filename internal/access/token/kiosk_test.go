package token_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// A kiosk's cookie finds its token as long as the token is valid. The file does not have the cookie, nor the cookie the
// token, and only a kiosk's token has one.
func TestKiosk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	wall := token.Token{Gateway: name(t, "wall"), Rights: token.Read, Devices: name(t, "ppg-"), Kiosk: true,
		Expires: epoch.Add(time.Hour)}
	text, made := create(t, path, wall)
	plain, _ := create(t, path, token.Token{Gateway: name(t, "ward"), Rights: token.Read})
	cookie := token.KioskCookie(text)
	_, secret, _ := strings.Cut(cookie, ".")
	if made.Session != sha256.Sum256([]byte(secret)) {
		t.Error("the token's Session is not the digest of the cookie's secret")
	}
	file, err := os.ReadFile(path)
	try(t, err)
	if strings.Contains(string(file), secret) || strings.Contains(cookie, text[len(token.Prefix):]) {
		t.Error("the file has the cookie, or the cookie the token")
	}
	checkFile(t, path, made, mustFind(t, path, "ward"))

	set, err := token.Open(path, token.Options{Every: -1})
	try(t, err)
	defer set.Close()
	for _, tt := range []struct {
		what, cookie string
		at           time.Time
		want         error
	}{
		{"the kiosk's", cookie, epoch, nil},
		{"before it expires", cookie, epoch.Add(time.Hour - time.Millisecond), nil},
		{"when it expires", cookie, epoch.Add(time.Hour), token.ErrExpired},
		{"another secret", cookie[:len(cookie)-1] + "~", epoch, token.ErrUnknown},
		{"the digest in the file", made.ID().String() + "." + hex.EncodeToString(made.Session[:]), epoch, token.ErrUnknown},
		{"no secret", made.ID().String() + ".", epoch, token.ErrUnknown},
		{"another ID", "0123456789ab." + secret, epoch, token.ErrUnknown},
		{"no ID", "." + secret, epoch, token.ErrUnknown},
		{"of a token that is not a kiosk's", token.KioskCookie(plain), epoch, token.ErrUnknown},
		{"nothing", "", epoch, token.ErrUnknown},
	} {
		p, expires, err := set.LookupKiosk(tt.cookie, tt.at.UnixMilli())
		if !errors.Is(err, tt.want) || (p != nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", tt.what, err, tt.want)
		}
		if p != nil && (p.ID() != made.ID() || !expires.Equal(wall.Expires)) {
			t.Errorf("%s: token %s, which expires %v", tt.what, p.ID(), expires)
		}
	}
	for what, change := range map[string]func(*token.Token){
		"may write":         func(s *token.Token) { s.Rights = token.Read | token.Write },
		"may only write":    func(s *token.Token) { s.Rights = token.Write },
		"may administer":    func(s *token.Token) { s.Rights, s.Devices = token.Read|token.Admin, name(t, "") },
		"bound to subjects": func(s *token.Token) { s.Subjects, s.Devices = "P-1", name(t, "") },
	} {
		spec := wall
		change(&spec)
		keeper := token.Keeper{Path: path}
		if _, err := keeper.Create(t.Context(), spec, epoch, nil); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("a kiosk's token that %s: %v, want ErrInvalid", what, err)
		}
	}

	keeper := token.Keeper{Path: path}
	_, err = keeper.Revoke(t.Context(), func(other *token.Token) bool { return other.Kiosk })
	try(t, err, set.Reload())
	if _, _, err := set.LookupKiosk(cookie, epoch.UnixMilli()); !errors.Is(err, token.ErrUnknown) {
		t.Errorf("after the token was revoked: %v, want ErrUnknown", err)
	}
}

// mustFind returns the token of a gateway in the file at path.
func mustFind(t *testing.T, path, gateway string) token.Token {
	t.Helper()
	tokens, err := token.ReadFile(path)
	try(t, err)
	for i := range tokens {
		if tokens[i].Gateway == name(t, gateway) {
			return tokens[i]
		}
	}
	t.Fatalf("%s has no token", gateway)
	return token.Token{}
}
