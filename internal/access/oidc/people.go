package oidc

import (
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// maxPeople bounds how many people have a rate and budgets of their own. Further ones share those of
// one.
const maxPeople = 1 << 16

// people make the principals of those whom the provider vouches for. A person with several tokens,
// one after another or at once, has one rate and one set of budgets.
type people struct {
	opt   *token.Options
	start time.Time

	mu   sync.Mutex
	byID map[token.ID]*token.Principal // guarded by mu; the newest of each
}

// principal returns the principal of a person with what spec allows; nil means nothing.
func (p *people) principal(who token.Identity, spec *token.Token) *token.Principal {
	if spec == nil {
		spec = &token.Token{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := who.ID()
	if _, known := p.byID[id]; !known && len(p.byID) >= maxPeople {
		id = token.ID{}
	}
	next := token.NewPrincipal(who, spec, p.opt, p.start, p.byID[id])
	p.byID[id] = next
	return next
}
