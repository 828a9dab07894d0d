package oidc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
)

// How often the provider is asked for its addresses and keys, which takes two requests.
const (
	RenewEvery   = 5 * time.Minute // so that withdrawn keys are not accepted for longer
	MinFetch     = 5 * time.Second // also if a token has an unknown key
	maxBackOff   = time.Minute     // after failures
	fetchTimeout = 10 * time.Second

	maxResponseBytes = 1 << 20
)

// Options configure a [Provider].
type Options struct {
	Issuer   string   // URL; see CheckIssuer
	ClientID string   // of this server at the provider; tokens must have it as an audience
	Clients  []string // further clients whose tokens are accepted, by the claims azp, client_id and appid
	Rules    string   // path of the file of rules

	// Limits has the DefaultLimit and the Hourly of each person.
	Limits token.Options

	// Every is the interval at which the file is checked: default 1 s; negative: never.
	Every time.Duration

	Now       func() time.Time  // default time.Now
	Transport http.RoundTripper // for requests to the provider; default: as http.DefaultTransport

	// OnRules, if not nil, is called as [filewatch.Options.OnLoad] is, with the number of rules in force.
	OnRules func(rules int, err error)

	// OnProvider, if not nil, is called with an error when the keys cannot be fetched for the first
	// time, and with nil when they can again.
	OnProvider func(error)
}

// A Provider verifies tokens of an OpenID Connect provider. It is safe for concurrent use.
type Provider struct {
	opt    Options
	rules  *filewatch.Follower
	client *http.Client
	cache  *cache
	people people

	// generation counts changes of keys and rules. Invariant: it is increased after a change, and read
	// before what it counts is used, so that a cached result is never newer than it claims.
	generation atomic.Uint64
	current    atomic.Pointer[Rules]
	found      atomic.Pointer[discovery] // nil before the first success

	kick      chan struct{} // asks for keys
	stop      context.CancelFunc
	done      sync.WaitGroup
	verifying chan struct{} // a place for each verification that Begin has started

	fetches, checked *prometheus.CounterVec
}

// A discovery is what the provider has published. It does not change.
type discovery struct {
	provider *goidc.Provider
	keys     []jose.JSONWebKey
	text     []byte    // of the keys
	at       time.Time // when it was fetched
}

// CheckIssuer rejects an issuer whose keys anybody on the network could replace, and one that is no URL of at most 256
// bytes without a query.
func CheckIssuer(issuer string) error {
	if len(issuer) > 256 ||
		strings.ContainsFunc(issuer, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"\?#`, c) }) {
		return errURL
	}
	return CheckURL(issuer)
}

var errURL = errors.New("not a URL such as https://login.example/realms/house")

// CheckURL rejects an address whose answers anybody on the network could replace.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return errURL
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if loopback := u.Hostname() == "localhost" || err == nil && addr.IsLoopback(); u.Scheme != "https" &&
		(u.Scheme != "http" || !loopback) {
		return errors.New("not an https URL; http is only accepted for a loopback address")
	}
	return nil
}

// Open reads the rules and begins to ask the provider for its keys. It does not wait for them: until
// they are known, tokens are ErrUnavailable. The caller must Close it.
func Open(opt Options) (*Provider, error) {
	if err := CheckIssuer(opt.Issuer); err != nil {
		return nil, err
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Transport == nil {
		opt.Transport = http.DefaultTransport.(*http.Transport).Clone() // of its own, to close its connections
	}
	p := &Provider{
		opt: opt, cache: &cache{seed: maphash.MakeSeed()}, kick: make(chan struct{}, 1), verifying: make(chan struct{}, 4),
		people: people{opt: &opt.Limits, start: time.Now(), byID: map[token.ID]person{}},
		client: &http.Client{
			Transport: &bounded{opt.Transport}, Timeout: fetchTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	counter := func(name, help string, results ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
		for _, result := range results {
			vec.WithLabelValues(result)
		}
		return vec
	}
	p.fetches = counter("pulsegate_oidc_fetches_total", "Attempts to fetch the provider's keys, by result.", "ok", "error")
	p.checked = counter("pulsegate_oidc_verified_total", "JWTs that were not in the cache, by result.", "accepted",
		"rejected", "undecided")
	var err error
	p.rules, err = filewatch.Follow(filewatch.Options{Paths: []string{opt.Rules}, Every: opt.Every, Load: p.load,
		OnLoad: p.loaded})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

// Close stops the requests to the provider, and no longer follows the rules. It waits for what has begun.
func (p *Provider) Close() {
	p.stop()
	p.rules.Close()
	p.done.Wait()
	p.client.CloseIdleConnections()
}

// Reload reads the rules now. If it returns an error, the previous ones stay in force.
func (p *Provider) Reload() error { return p.rules.Reload() }

func (p *Provider) load() (changed bool, err error) {
	rules, err := ReadRules(p.opt.Rules)
	if err != nil {
		return false, err
	}
	p.current.Store(rules)
	p.generation.Add(1)
	return true, nil
}

func (p *Provider) loaded(err error) {
	if p.opt.OnRules != nil {
		p.opt.OnRules(p.Rules(), err)
	}
}

// Rules returns the number of rules in force.
func (p *Provider) Rules() int { return p.current.Load().Len() }

// Collect exports the counters.
func (p *Provider) Collect(ch chan<- prometheus.Metric) {
	p.fetches.Collect(ch)
	p.checked.Collect(ch)
	stale := 0.0
	if p.rules.Stale() {
		stale = 1
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("pulsegate_oidc_rules_stale",
		"Whether the file of rules is unusable, so that the previous rules stay in force: 0 or 1.", nil, nil),
		prometheus.GaugeValue, stale)
}

// run fetches what the provider publishes: at the start, then once in RenewEvery, sooner if a token
// has an unknown key, but not more often than once in MinFetch, and with back-off after failures.
func (p *Provider) run(ctx context.Context) {
	for failures := 0; ; {
		err := p.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		pause, more := MinFetch, RenewEvery-MinFetch
		if err != nil {
			p.fetches.WithLabelValues("error").Inc()
			pause, more = min(MinFetch<<min(failures, 8), maxBackOff), 0
			failures++
		} else {
			p.fetches.WithLabelValues("ok").Inc()
		}
		if p.opt.OnProvider != nil && (failures == 1 && err != nil || failures > 0 && err == nil) {
			p.opt.OnProvider(err)
		}
		if err == nil {
			failures = 0
		}
		if !sleep(ctx, pause, nil) || !sleep(ctx, more, p.kick) {
			return
		}
	}
}

// sleep waits for d or for early, and reports whether ctx continues.
func sleep(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
	case <-early:
	}
	return true
}

// fetch asks the provider for its addresses and keys.
func (p *Provider) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(p.Client(ctx), fetchTimeout)
	defer cancel()
	provider, err := goidc.NewProvider(ctx, p.opt.Issuer)
	if err != nil {
		return brief("get the provider's configuration", err)
	}
	var published struct {
		JWKS string `json:"jwks_uri"`
	}
	if err := provider.Claims(&published); err != nil {
		return brief("get the provider's configuration", err)
	}
	if err := CheckURL(published.JWKS); err != nil {
		return fmt.Errorf("get the provider's keys: jwks_uri is %w", err)
	}
	text, keys, err := p.fetchKeys(ctx, published.JWKS)
	if err != nil {
		return brief("get the provider's keys", err)
	}
	if old := p.found.Swap(&discovery{provider, keys, text, p.opt.Now()}); old == nil || !bytes.Equal(old.text, text) {
		p.generation.Add(1)
	}
	return nil
}

// brief returns an error with what fits in a line: those of the library repeat what the provider has
// sent.
func brief(what string, err error) error {
	text := fmt.Sprintf("%.200q", err.Error())
	return fmt.Errorf("%s: %s", what, text)
}

// Client returns a context for requests to the provider with the libraries go-oidc and oauth2. They
// do not follow redirections, end after 10 s, and read at most 1 MiB.
func (p *Provider) Client(ctx context.Context) context.Context {
	return goidc.ClientContext(ctx, p.client)
}

// Discovered returns the provider's addresses, or ErrUnavailable.
func (p *Provider) Discovered() (*goidc.Provider, error) {
	if d := p.found.Load(); d != nil {
		return d.provider, nil
	}
	return nil, ErrUnavailable
}

// Issuer returns the provider's URL.
func (p *Provider) Issuer() string { return p.opt.Issuer }

// A bounded cuts off long responses, which are then not valid JSON.
type bounded struct{ http.RoundTripper }

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxResponseBytes), resp.Body}
	}
	return resp, err
}

func (b *bounded) CloseIdleConnections() {
	if inner, ok := b.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		inner.CloseIdleConnections()
	}
}
