package gate

import (
	"net/netip"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// namedBudgets holds the budgets of requests without a token.
type namedBudgets struct {
	mu       sync.Mutex
	byHolder map[holder]*token.Budgets // guarded by mu
}

// A holder has budgets: the gateway in the client certificate or, for what a client without one changes, its network.
// What such clients read is of one holder, the zero value.
type holder struct {
	gateway vitals.Name
	network netip.Prefix
}

// maxNamed bounds the number of holders with budgets of their own. Further ones share one.
const maxNamed = 1 << 16

// budgets returns the budgets of a request. It takes a lock if the request has no
// token.
func (g *Gate) budgets(a *Access, now time.Time) *token.Budgets {
	return budgetsOf(g, a, holder{gateway: a.gateway}, now)
}

func budgetsOf(g *Gate, a *Access, h holder, now time.Time) *token.Budgets {
	if b := a.Budgets(); b != nil {
		return b
	}
	g.named.mu.Lock()
	defer g.named.mu.Unlock()
	if g.named.byHolder == nil {
		g.named.byHolder = map[holder]*token.Budgets{}
	}
	if len(g.named.byHolder) >= maxNamed && g.named.byHolder[h] == nil {
		h = holder{}
	}
	b := g.named.byHolder[h]
	if b == nil {
		b = token.NewBudgets(g.Hourly, now)
		g.named.byHolder[h] = b
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

// changesOf returns the budgets of what a client changes.
func changesOf(g *Gate, a *Access, peer netip.Addr, now time.Time) *token.Budgets {
	h := holder{gateway: a.gateway}
	if h.gateway.IsZero() {
		h.network = share.Network(peer)
	}
	return budgetsOf(g, a, h, now)
}

// TakeAssignments takes up to n changes of assignments out of a client's budget, and returns how many it took. Return
// those that are not recorded with [ReturnAssignments].
func TakeAssignments(g *Gate, a *Access, peer netip.Addr, n int, now time.Time) (taken int) {
	bucket := changesOf(g, a, peer, now).Assignments
	for ; taken < n; taken++ {
		if ok, _ := bucket.Take(1, now); !ok { // without debts: each is a line of the log
			break
		}
	}
	return taken
}

// ReturnAssignments returns n of the changes that [TakeAssignments] took.
func ReturnAssignments(g *Gate, a *Access, peer netip.Addr, n int, now time.Time) {
	changesOf(g, a, peer, now).Assignments.Return(n)
}
