package oidc

import (
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// maxPeople bounds how many people have a rate and allowances of their own. To make room for further ones, those
// are forgotten who have presented no new token for forgetAfter; if there are none, the further ones share one.
const (
	maxPeople   = 1 << 16
	forgetAfter = 2 * time.Hour // allowances are full again after one
	sweepEvery  = time.Minute
)

// people make the principals of those whom the provider vouches for. A person with several tokens,
// one after another or at once, has one rate and one set of allowances.
type people struct {
	opt   *token.Options
	start time.Time

	mu    sync.Mutex
	byID  map[token.ID]person // guarded by mu
	swept time.Time           // guarded by mu
}

type person struct {
	newest *token.Principal
	seen   time.Time
}

// principal returns the principal of a person with what spec allows; nil means nothing.
func (p *people) principal(who token.Identity, spec *token.Token, now time.Time) *token.Principal {
	if spec == nil {
		spec = &token.Token{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := who.ID()
	if _, known := p.byID[id]; !known && len(p.byID) >= maxPeople {
		if now.Sub(p.swept) >= sweepEvery {
			p.sweepLocked(now)
		}
		if len(p.byID) >= maxPeople {
			id = token.ID{}
		}
	}
	next := token.NewPrincipal(who, spec, p.opt, p.start, p.byID[id].newest)
	p.byID[id] = person{next, now}
	return next
}

func (p *people) sweepLocked(now time.Time) {
	p.swept = now
	for id, who := range p.byID {
		if now.Sub(who.seen) > forgetAfter {
			delete(p.byID, id)
		}
	}
}
