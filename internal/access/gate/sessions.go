package gate

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/signin"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

const (
	// sessionTime is how long a session lasts.
	sessionTime = signin.MaxTime

	// maxSessions bounds the sessions; maxTokenSessions those of one token. Beyond, the
	// oldest one ends.
	maxSessions      = 1024
	maxTokenSessions = 32

	// maxCookieTime is for how long browsers keep a cookie (RFC 6265bis, section 5.5).
	maxCookieTime = 400 * 24 * time.Hour

	// The name of the cookie. Browsers let only the host itself, over TLS, set a cookie
	// with the prefix __Host- (RFC 6265bis, section 4.1.3.2).
	secureCookie = "__Host-pulsegate"
	plainCookie  = "pulsegate"
)

// sessions are the sessions of people who have signed in with a token, or at an OpenID Connect
// provider, in a browser. A session is a random value in a cookie, and allows reads only, as long
// as its token or login does: it ends when the token expires or is revoked. Sessions are in memory
// only and end with the process; sessions of kiosks are not among them, see [token.KioskCookie]. The zero value is
// ready for use, and safe for concurrent use.
type sessions struct {
	mu   sync.Mutex
	byID map[sessionID]session // guarded by mu; at most maxSessions
	last uint64                // guarded by mu; number of sessions so far
}

// A sessionID is the SHA-256 of the cookie's value, so that the duration of a look-up reveals
// nothing about the value.
type sessionID [sha256.Size]byte

type session struct {
	token   token.Digest
	login   *signin.Login // nil means that it is the token's
	holder  token.ID      // of the token, or the person
	expires time.Time     // zero, only of a kiosk, means never
	number  uint64        // in the order of their beginnings
}

// begin begins a session and returns the cookie's value.
func (s *sessions) begin(next session, now time.Time) (value string) {
	value = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[sessionID]session{}
	}
	for id, old := range s.byID {
		if !now.Before(old.expires) || old.login != nil && old.login.Ended() {
			s.dropLocked(id)
		}
	}
	s.evictLocked(maxTokenSessions, func(old *session) bool { return old.holder == next.holder })
	s.evictLocked(maxSessions, func(*session) bool { return true })
	s.last++
	next.expires, next.number = now.Add(sessionTime).Truncate(time.Millisecond), s.last
	s.byID[sha256.Sum256([]byte(value))] = next
	return value
}

func (s *sessions) dropLocked(id sessionID) {
	if login := s.byID[id].login; login != nil {
		login.End()
	}
	delete(s.byID, id)
}

// evictLocked ends the oldest of some sessions if there are most of them.
func (s *sessions) evictLocked(most int, some func(*session) bool) {
	n, oldest, oldestNumber := 0, sessionID{}, s.last+1
	for id, old := range s.byID {
		if !some(&old) {
			continue
		}
		n++
		if old.number < oldestNumber {
			oldest, oldestNumber = id, old.number
		}
	}
	if n >= most {
		s.dropLocked(oldest)
	}
}

// find returns the session in one of some cookies.
func (s *sessions) find(values []string, now time.Time) (found session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range values {
		if found, ok = s.byID[sha256.Sum256([]byte(value))]; ok && now.Before(found.expires) {
			return found, true
		}
	}
	return session{}, false
}

func (s *sessions) end(values []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range values {
		s.dropLocked(sha256.Sum256([]byte(value)))
	}
}

// cookies returns the sessions that a request names. A request that a browser makes for a
// page of another origin has none: SameSite keeps cookies from pages of other sites, but a
// site includes all ports and subdomains.
func cookies(r *http.Request) []string {
	if len(r.Header["Cookie"]) == 0 {
		return nil
	}
	if !OwnPage(r) {
		return nil
	}
	var values []string
	for _, name := range []string{secureCookie, plainCookie} {
		if name == plainCookie && schemeOf(r) == "https" {
			continue // anybody on the network may have set it
		}
		for _, c := range r.CookiesNamed(name) {
			if len(values) < 2 { // more than a browser sends
				values = append(values, c.Value)
			}
		}
	}
	return values
}

// SignIn begins a session for the sender of r, who has sent the text of a token, if that
// allows reads. A rejection is counted and recorded like that of any other request with
// that token.
func (g *Gate) SignIn(w http.ResponseWriter, r *http.Request, text string, now time.Time) Verdict {
	if g.Tokens == nil {
		return Forbidden
	}
	v := CredentialsOf(r)
	v.Authorization, v.Several = "Bearer "+text, false
	_, verdict, _ := g.Authorize(v, token.Read, now)
	if verdict != Allowed {
		return verdict
	}
	digest, err := token.DigestOf(text)
	if err != nil {
		return BadCredentials // Authorize accepts spaces before the text
	}
	g.sessions.end(v.Cookies)
	kiosk := token.KioskCookie(text)
	if _, expires, err := g.Tokens.LookupKiosk(kiosk, now.UnixMilli()); err == nil {
		setSession(w, isSecure(r), kiosk, kioskAge(expires, now))
		return Allowed
	}
	value := g.sessions.begin(session{token: digest, holder: digest.ID()}, now)
	setSession(w, isSecure(r), value, int(sessionTime/time.Second))
	return Allowed
}

// SignOut ends the session of the sender of r. If it began at a provider, SignOut returns the address at which
// the provider ends its own, or "" if there is none.
func (g *Gate) SignOut(w http.ResponseWriter, r *http.Request, now time.Time) (address string) {
	values := cookies(r)
	if found, ok := g.sessions.find(values, now); ok && found.login != nil {
		address = found.login.EndAddress()
	}
	g.sessions.end(values)
	setSession(w, isSecure(r), "", -1)
	return address
}

// Session returns what the session of the sender of r allows, if there is one, and when it ends at the latest, which is
// zero for a kiosk's token that does not expire.
func (g *Gate) Session(r *http.Request, now time.Time) (access Access, expires time.Time, ok bool) {
	v := CredentialsOf(r)
	found, verified, ok := g.inSession(&v, token.Read, now)
	if !ok || !verified.Has(token.Read) {
		return Access{}, time.Time{}, false
	}
	if ends := verified.Expires(); !ends.IsZero() && (found.expires.IsZero() || ends.Before(found.expires)) {
		found.expires = ends
	}
	return accessOf(verified), found.expires, true
}

// RenewKiosk sets the cookie of a kiosk again, which browsers would drop before the token expires. Call it only for a
// request that asks for that: the answer to any other one may arrive after the person has signed out.
func RenewKiosk(g *Gate, w http.ResponseWriter, r *http.Request, now time.Time) {
	for _, value := range cookies(r) {
		if _, expires, ok := inKiosk(g, []string{value}, now); ok {
			secure := slices.ContainsFunc(r.CookiesNamed(secureCookie), func(c *http.Cookie) bool { return c.Value == value })
			http.SetCookie(w, sessionCookie(secure, value, kioskAge(expires, now)))
			return
		}
	}
}

// inSession returns whose session a request names, which ends when the token or the login
// does. Only a read without an Authorization header may use a session.
func (g *Gate) inSession(v *Credentials, right token.Rights, now time.Time) (session, *token.Principal, bool) {
	isRead := right == token.Read || v.SubjectsInSession && right == token.ReadSubjects
	if len(v.Cookies) == 0 || !v.bare() || !isRead {
		return session{}, nil, false
	}
	found, ok := g.sessions.find(v.Cookies, now)
	if !ok {
		p, expires, ok := inKiosk(g, v.Cookies, now)
		return session{expires: expires}, p, ok
	}
	if found.login != nil {
		p := found.login.Principal()
		return found, p, p != nil
	}
	verified, err := g.Tokens.Lookup(&found.token, now.UnixMilli())
	return found, verified, err == nil
}

// inKiosk returns the holder of a kiosk's token that one of some cookies names, and when the token expires.
func inKiosk(g *Gate, cookies []string, now time.Time) (p *token.Principal, expires time.Time, ok bool) {
	if g.Tokens == nil {
		return nil, time.Time{}, false
	}
	for _, value := range cookies {
		if p, expires, err := g.Tokens.LookupKiosk(value, now.UnixMilli()); err == nil {
			return p, expires, true
		}
	}
	return nil, time.Time{}, false
}

// kioskAge returns for how many seconds a browser keeps the cookie of a kiosk whose token expires then; zero means
// never.
func kioskAge(expires, now time.Time) int {
	age := maxCookieTime
	if !expires.IsZero() {
		age = min(age, max(expires.Sub(now), time.Second)) // an age of less than a second removes the cookie
	}
	return int(age / time.Second)
}

// setSession sets the cookie of a session, and removes that of the other name, which may name another session.
func setSession(w http.ResponseWriter, secure bool, value string, maxAge int) {
	http.SetCookie(w, sessionCookie(secure, value, maxAge))
	http.SetCookie(w, sessionCookie(!secure, "", -1))
}

// sessionCookie returns the cookie of a session; maxAge is in seconds.
func sessionCookie(secure bool, value string, maxAge int) *http.Cookie {
	c := &http.Cookie{Name: plainCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true,
		SameSite: http.SameSiteStrictMode}
	if secure {
		c.Name, c.Secure = secureCookie, true
	}
	return c
}

// isSecure reports whether the browser that sent r uses TLS, if only up to a proxy: browsers
// send the origin of the page with each request that is not a GET or HEAD.
func isSecure(r *http.Request) bool {
	origin, err := url.Parse(r.Header.Get("Origin"))
	return r.TLS != nil || err == nil && origin.Scheme == "https"
}
