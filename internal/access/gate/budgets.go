package gate

import (
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// namedBudgets holds the budgets of requests without a token, by the gateway's name:
// the one in the client certificate, or the zero Name if the gate is open.
type namedBudgets struct {
	mu     sync.Mutex
	byName map[vitals.Name]*token.Budgets // guarded by mu
}

// maxNamed bounds the number of names with budgets of their own. Further names share
// one.
const maxNamed = 1 << 16

// budgets returns the budgets of a request. It takes a lock if the request has no
// token.
func (g *Gate) budgets(a *Access, now time.Time) *token.Budgets {
	if b := a.Budgets(); b != nil {
		return b
	}
	g.named.mu.Lock()
	defer g.named.mu.Unlock()
	if g.named.byName == nil {
		g.named.byName = map[vitals.Name]*token.Budgets{}
	}
	name := a.gateway
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

// TakeContradiction takes one contradiction of another gateway's reading out of the
// request's budget, and reports whether there was one left. Call it before comparing a
// reading, and call [Gate.ReturnContradiction] if the reading contradicts nothing.
func (g *Gate) TakeContradiction(a *Access, now time.Time) bool {
	ok, _ := g.budgets(a, now).Contradictions.Take(1, now)
	return ok
}

// ReturnContradiction returns what [Gate.TakeContradiction] took.
func (g *Gate) ReturnContradiction(a *Access, now time.Time) {
	g.budgets(a, now).Contradictions.Return(1)
}

// Withheld records that readings of a request were not compared because the budget is
// exhausted. It returns how long to wait until one can be.
func (g *Gate) Withheld(a *Access, peer Peer, now time.Time) (retryAfter time.Duration) {
	g.note(refusal(audit.Contradictions, a.Principal), peer)
	_, wait := g.budgets(a, now).Contradictions.Take(0, now)
	return wait
}

// TakeReads takes n readings, which are about to be read without an audit record, out of
// the request's budget. If it returns false, the budget is exhausted and the read is an
// export; see [Gate.Exporting]. Return the readings that were not read with
// [Gate.ReturnReads].
func (g *Gate) TakeReads(a *Access, n int, now time.Time) bool {
	if g.Audit == nil {
		return true
	}
	ok, _ := g.budgets(a, now).Reads.Take(n, now)
	return ok
}

// ReturnReads returns n of the readings that [Gate.TakeReads] took.
func (g *Gate) ReturnReads(a *Access, n int, now time.Time) {
	if g.Audit != nil {
		g.budgets(a, now).Reads.Return(n)
	}
}

// TakeAssignments takes up to n changes of assignments out of a client's budget, and returns how many it took. Return
// those that are not recorded with [ReturnAssignments].
func TakeAssignments(g *Gate, a *Access, n int, now time.Time) (taken int) {
	bucket := g.budgets(a, now).Assignments
	for ; taken < n; taken++ {
		if ok, _ := bucket.Take(1, now); !ok { // without debts: each is a line of the log
			break
		}
	}
	return taken
}

// ReturnAssignments returns n of the changes that [TakeAssignments] took.
func ReturnAssignments(g *Gate, a *Access, n int, now time.Time) {
	g.budgets(a, now).Assignments.Return(n)
}
