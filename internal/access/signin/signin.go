package signin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"

	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// Durations of a login.
const (
	RefreshEvery = 4 * time.Minute // or sooner, if what the provider has issued expires sooner
	EndAfter     = 9 * time.Minute // without a confirmation by the provider
	MaxTime      = 12 * time.Hour  // a working day
	retryEvery   = 30 * time.Second
	minRefresh   = 5 * time.Second
	timeout      = 10 * time.Second // of what the provider is asked for
)

// MaxFinishing bounds the sign-ins that are finished at a time, and so the requests to the provider.
const MaxFinishing = 16

// Errors of [Flow.Finish]. They are not wrapped.
var (
	ErrState       = errors.New("this browser has not begun this sign-in")
	ErrRefused     = errors.New("the provider has not confirmed who this is")
	ErrUnavailable = errors.New("the provider does not answer")
)

// Options configure a [Flow].
type Options struct {
	Provider *oidc.Provider
	ClientID string
	Secret   string   // of the client; "" if it has none
	Scopes   []string // beside openid
	Page     string   // URL of the page, as CheckPage accepts it
}

// CallbackPath is where the provider sends the browser back to, relative to the page.
const CallbackPath = "v1/session/callback"

// CheckPage rejects what cannot be the URL of the page.
func CheckPage(page string) error {
	if err := oidc.CheckIssuer(page); err != nil { // the same rules
		return err
	}
	if !strings.HasSuffix(page, "/") {
		return errors.New("does not end in a slash")
	}
	return nil
}

// A Flow signs people in. It is safe for concurrent use.
type Flow struct {
	opt       Options
	ctx       context.Context // of the logins
	stop      context.CancelFunc
	logins    sync.WaitGroup
	finishing chan struct{} // a place for each
}

// New returns a Flow. The caller must Close it before the provider.
func New(opt Options) *Flow {
	f := &Flow{opt: opt, finishing: make(chan struct{}, MaxFinishing)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Close ends all logins, and waits for requests to the provider.
func (f *Flow) Close() {
	f.stop()
	f.logins.Wait()
}

// Page returns the URL of the page.
func (f *Flow) Page() string { return f.opt.Page }

// Secure reports whether browsers use TLS.
func (f *Flow) Secure() bool { return strings.HasPrefix(f.opt.Page, "https:") }

// of derives a value for the provider from the secret of a browser, which it does not reveal.
func of(secret, purpose string) string {
	sum := sha256.Sum256([]byte(purpose + " " + secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// config returns what the library needs to know.
func (f *Flow) config() (conf *oauth2.Config, endSession string, err error) {
	provider, err := f.opt.Provider.Discovered()
	if err != nil {
		return nil, "", ErrUnavailable
	}
	var published struct {
		Methods    []string `json:"token_endpoint_auth_methods_supported"`
		EndSession string   `json:"end_session_endpoint"`
	}
	if err := provider.Claims(&published); err != nil {
		return nil, "", ErrUnavailable
	}
	conf = &oauth2.Config{
		ClientID: f.opt.ClientID, ClientSecret: f.opt.Secret, Endpoint: provider.Endpoint(),
		RedirectURL: f.opt.Page + CallbackPath,
		Scopes:      append([]string{"openid"}, f.opt.Scopes...),
	}
	conf.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	if f.opt.Secret != "" && (published.Methods == nil || slices.Contains(published.Methods, "client_secret_basic")) {
		conf.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	for _, address := range []string{conf.Endpoint.AuthURL, conf.Endpoint.TokenURL} {
		if oidc.CheckURL(address) != nil {
			return nil, "", ErrUnavailable
		}
	}
	if oidc.CheckURL(published.EndSession) != nil {
		published.EndSession = ""
	}
	return conf, published.EndSession, nil
}

// Begin returns the provider's address to which the browser with a secret is sent.
func (f *Flow) Begin(secret string) (address string, err error) {
	conf, _, err := f.config()
	if err != nil {
		return "", err
	}
	return conf.AuthCodeURL(of(secret, "state"), oauth2.S256ChallengeOption(of(secret, "verifier")),
		oauth2.SetAuthURLParam("nonce", of(secret, "nonce"))), nil
}

// Finish returns the login of a browser with a secret that has come back from the provider with an answer.
func (f *Flow) Finish(ctx context.Context, secret string, answer url.Values) (*Login, error) {
	iss := answer.Get("iss") // RFC 9207
	if secret == "" || subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(of(secret, "state"))) != 1 ||
		iss != "" && iss != f.opt.Provider.Issuer() {
		return nil, ErrState
	}
	if answer.Get("code") == "" {
		return nil, ErrRefused
	}
	select {
	case f.finishing <- struct{}{}:
	default:
		return nil, ErrUnavailable
	}
	defer func() { <-f.finishing }()
	conf, _, err := f.config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(f.opt.Provider.Client(ctx), timeout)
	defer cancel()
	t, err := conf.Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(of(secret, "verifier")))
	if err != nil {
		return nil, brief(err)
	}
	l := &Login{flow: f}
	l.idToken, _ = t.Extra("id_token").(string)
	person, err := f.opt.Provider.VerifyIDToken(ctx, l.idToken, of(secret, "nonce"))
	if err != nil {
		return nil, brief(err)
	}
	l.person.Store(person)
	l.ctx, l.end = context.WithTimeout(f.ctx, MaxTime)
	f.logins.Go(func() { l.follow(t, time.Now()) })
	return l, nil
}

// brief returns ErrRefused if it is no use to ask the provider again, or ErrUnavailable.
func brief(err error) error {
	answer := (*oauth2.RetrieveError)(nil)
	switch {
	case errors.As(err, &answer):
		if code := answer.Response.StatusCode; code < 500 && code != 429 && code != 408 {
			return ErrRefused
		}
	case err == oidc.ErrInvalid, err == oidc.ErrExpired, err == oidc.ErrMalformed:
		return ErrRefused
	}
	return ErrUnavailable
}

// A Login is a person's who has signed in. It is safe for concurrent use.
type Login struct {
	flow *Flow
	ctx  context.Context // until it ends
	end  context.CancelFunc

	idToken string // of the sign-in; because it has a nonce, the API accepts it nowhere
	person  atomic.Pointer[oidc.Person]
}

// End ends the login here.
func (l *Login) End() { l.end() }

// Ended reports whether the login has ended.
func (l *Login) Ended() bool { return l.ctx.Err() != nil }

// Principal returns what the person may do now, or nil if the login has ended.
func (l *Login) Principal() *token.Principal {
	if l.Ended() {
		return nil
	}
	return l.person.Load().Principal()
}

// EndAddress returns the provider's address that ends the person's session there and leads back to the page, or "" if
// it has none.
func (l *Login) EndAddress() string {
	_, address, err := l.flow.config()
	u, parseErr := url.Parse(address)
	if err != nil || parseErr != nil || address == "" {
		return ""
	}
	q := u.Query()
	q.Set("client_id", l.flow.opt.ClientID)
	q.Set("id_token_hint", l.idToken)
	q.Set("post_logout_redirect_uri", l.flow.opt.Page)
	u.RawQuery = q.Encode()
	return u.String()
}

// follow asks the provider again and again whether the account still holds, and ends the login if it does not.
func (l *Login) follow(t *oauth2.Token, confirmed time.Time) {
	defer l.end()
	pause := EndAfter
	if t.RefreshToken != "" {
		pause = pauseAfter(t)
	}
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(pause):
		}
		if t.RefreshToken == "" {
			return
		}
		next, err := l.refresh(t)
		if next != nil {
			t = next // the former one may be of no use any more
		}
		switch {
		case err == nil:
			confirmed, pause = time.Now(), pauseAfter(t)
		case err == ErrRefused, time.Since(confirmed) >= EndAfter:
			return
		default:
			pause = min(retryEvery, max(EndAfter-time.Since(confirmed), time.Second))
		}
	}
}

// pauseAfter returns how long to wait before a refresh, so that logins of one time are not refreshed at one time.
func pauseAfter(t *oauth2.Token) time.Duration {
	pause := RefreshEvery
	if t.ExpiresIn > 0 {
		pause = min(pause, max(time.Duration(t.ExpiresIn)*time.Second/2, minRefresh))
	}
	return pause - rand.N(pause/8)
}

// refresh asks the provider for what it knows now about the person. It may return a token also with an error.
func (l *Login) refresh(t *oauth2.Token) (*oauth2.Token, error) {
	conf, _, err := l.flow.config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(l.flow.opt.Provider.Client(l.ctx), timeout)
	defer cancel()
	next, err := conf.TokenSource(ctx, &oauth2.Token{RefreshToken: t.RefreshToken}).Token()
	if err != nil {
		return nil, brief(err)
	}
	idToken, _ := next.Extra("id_token").(string)
	if idToken == "" {
		return next, nil // the account holds, and nothing is known to have changed
	}
	person, err := l.flow.opt.Provider.VerifyRefreshed(ctx, idToken, l.person.Load())
	if err != nil {
		return next, brief(err)
	}
	l.person.Store(person)
	return next, nil
}
