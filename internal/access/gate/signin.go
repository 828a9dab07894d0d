package gate

import (
	"crypto/rand"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/signin"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// beginTime is how long a person may take to sign in at the provider.
const beginTime = 10 * time.Minute

// beginCookie returns the cookie with the secret of a browser that has begun to sign in at the provider. It must come
// back with the provider's redirection, which comes from another site.
func beginCookie(g *Gate, value string, maxAge int) *http.Cookie {
	c := sessionCookie(g.SignIns.Secure(), value, maxAge)
	c.Name += "-begin"
	c.SameSite = http.SameSiteLaxMode
	return c
}

// BeginSignIn returns the provider's address at which the browser signs in, or [signin.ErrUnavailable]. g.SignIns
// must not be nil.
func BeginSignIn(g *Gate, w http.ResponseWriter) (address string, err error) {
	secret := rand.Text()
	if address, err = g.SignIns.Begin(secret); err == nil {
		http.SetCookie(w, beginCookie(g, secret, int(beginTime/time.Second)))
	}
	return address, err
}

// FinishSignIn begins a session for the sender of r, whom the provider has sent back, if the rules allow reads. A
// rejection is counted and recorded. g.SignIns must not be nil.
func FinishSignIn(g *Gate, w http.ResponseWriter, r *http.Request, now time.Time) Verdict {
	secret := ""
	if c, err := r.Cookie(beginCookie(g, "", 0).Name); err == nil {
		secret = c.Value
	}
	http.SetCookie(w, beginCookie(g, "", -1))
	login, err := (*signin.Login)(nil), signin.ErrUnavailable
	if attempt := g.attempts.begin(share.Network(addrOf(PeerOf(r)))); attempt != nil {
		if login, err = g.SignIns.Finish(r.Context(), secret, r.URL.Query()); err == nil || err == signin.ErrState {
			attempt.Return(1) // the provider has not been asked in vain
		}
	}
	switch err {
	case nil:
	case signin.ErrUnavailable:
		g.note(audit.Refusal{Reason: audit.Undecided}, PeerOf(r))
		return Unavailable
	default:
		g.note(audit.Refusal{Reason: audit.Unknown}, PeerOf(r))
		return BadCredentials
	}
	p := login.Principal()
	if !p.Has(token.Read) {
		login.End()
		g.note(refusal(audit.NoRight, p), PeerOf(r))
		return Forbidden
	}
	value := g.sessions.begin(session{login: login, holder: p.ID()}, now)
	setSession(w, g.SignIns.Secure(), value, int(sessionTime/time.Second))
	return Allowed
}
