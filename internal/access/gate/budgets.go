package gate

import (
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// namedBudgets are those of passes without a token, by the gateway's name: a
// certificate's, or none where the gate is open.
type namedBudgets struct {
	mu     sync.Mutex
	byName map[vitals.Name]*token.Budgets // guarded by mu
}

// maxNamed bounds the names that have budgets of their own. Further names share one.
const maxNamed = 1 << 16

// budgets returns the budgets of a pass. It takes a lock for one without a token.
func (g *Gate) budgets(p *Pass, now time.Time) *token.Budgets {
	if b := p.grant.Budgets(); b != nil {
		return b
	}
	g.named.mu.Lock()
	defer g.named.mu.Unlock()
	if g.named.byName == nil {
		g.named.byName = map[vitals.Name]*token.Budgets{}
	}
	name := p.gateway
	if len(g.named.byName) >= maxNamed && g.named.byName[name] == nil {
		name = vitals.Name{}
	}
	b := g.named.byName[name]
	if b == nil {
		b = token.NewBudgets(g.Hourly, now)
		g.named.byName[name] = b
	}
	return b
}

// Contradict takes a contradiction of another gateway's reading out of the budget of a
// pass, before a reading is compared, and reports whether there was one left. Call
// [Gate.Agreed] if the reading then contradicts nothing.
func (g *Gate) Contradict(p *Pass, now time.Time) bool {
	ok, _ := g.budgets(p, now).Contradictions.Take(1, now)
	return ok
}

// Agreed gives back what [Gate.Contradict] has taken.
func (g *Gate) Agreed(p *Pass, now time.Time) { g.budgets(p, now).Contradictions.Return(1) }

// Withheld notes that readings of a request were not compared, for want of budget, and
// returns how long to wait until one can be.
func (g *Gate) Withheld(p *Pass, peer Peer, now time.Time) (retryAfter time.Duration) {
	g.note(audit.Refusal{Reason: audit.Contradictions, Token: p.grant.ID()}, peer)
	_, wait := g.budgets(p, now).Contradictions.Take(0, now)
	return wait
}

// Reading takes n readings, which are about to be read without a record, out of the
// budget of a pass. It reports false when there is none left: then they are an export,
// see [Gate.Exporting]. Give those that were not read back with [Gate.Unread].
func (g *Gate) Reading(p *Pass, n int, now time.Time) bool {
	if g.Audit == nil {
		return true
	}
	ok, _ := g.budgets(p, now).Reads.Take(n, now)
	return ok
}

// Unread gives back what [Gate.Reading] has taken.
func (g *Gate) Unread(p *Pass, n int, now time.Time) {
	if g.Audit != nil {
		g.budgets(p, now).Reads.Return(n)
	}
}
