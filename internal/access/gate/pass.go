package gate

import (
	"context"
	"net/netip"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Pass is what a request may do. It is for one request: a token that is revoked
// meanwhile stays valid for it. The zero Pass allows nothing.
type Pass struct {
	gateway vitals.Name
	grant   token.Grant
	all     bool // not limited by a token
	reads   bool // includes the right to read
}

// Gateway returns the name that whoever came is known by; zero if the gate is
// open, in which case readings say themselves where they come from.
func (p *Pass) Gateway() *vitals.Name { return &p.gateway }

// Token returns the ID of the token; zero if none was shown, or the gate is open.
func (p *Pass) Token() token.ID { return p.grant.ID() }

// Holder returns who holds what the request takes: the token or, where there is none, the
// gateway that the client's certificate names, or else the peer's address. The caller
// must Put it.
func (p *Pass) Holder(all *share.Holders, peer Peer) *share.Holder {
	switch id := p.Token(); {
	case all == nil:
		return nil
	case id != (token.ID{}):
		return all.Get(id)
	case !p.gateway.IsZero():
		return all.Get(p.gateway)
	}
	return all.Addr(addrOf(peer))
}

// Covers reports whether device may be read or written.
func (p *Pass) Covers(device *vitals.Name) bool { return p.all || p.grant.Covers(device) }

// CoversAll reports whether every device may be.
func (p *Pass) CoversAll() bool { return p.all || p.grant.CoversAll() }

// Before returns the name right before the devices that may be read or written, as
// [token.Grant.Before] does; zero if there is no device before them.
func (p *Pass) Before() vitals.Name { return p.grant.Before() }

// MayRead reports whether the pass includes the right to read. A client without it must
// not learn from answers to what it writes what others wrote.
func (p *Pass) MayRead() bool { return p.reads }

// Charge takes n readings out of the rate of the token, or says how long to wait
// before the next try, as [token.Grant.Allow] does.
func (p *Pass) Charge(n int, now time.Time) (ok bool, retryAfter time.Duration) {
	if p.all {
		return true, 0
	}
	return p.grant.Allow(n, now)
}

// NotCovered notes that a request was refused because its pass does not cover a
// device.
func (g *Gate) NotCovered(p *Pass, peer Peer) {
	g.note(audit.Refusal{Reason: audit.NotCovered, Token: p.grant.ID()}, peer)
}

// BadCertificate notes a client certificate that did not stand the handshake, so
// that no request came of it.
func (g *Gate) BadCertificate(peer Peer) {
	g.note(audit.Refusal{Reason: audit.BadCertificate}, peer)
}

// An Export says which readings are given out.
type Export struct {
	Device   vitals.Name
	From, To time.Time // zero: open
}

// Exporting records that readings are about to be given out, durably. When it
// fails, they must not be. Where there is no audit log it does nothing.
func (g *Gate) Exporting(ctx context.Context, p *Pass, peer Peer, e Export) error {
	if g.Audit == nil {
		return nil
	}
	r := audit.Record{Gateway: p.gateway, Device: e.Device, From: e.From, To: e.To, Peer: addrOf(peer)}
	if id := p.Token(); id != (token.ID{}) {
		r.Token = id.String()
	}
	return g.Audit.Export(ctx, r)
}

// numReasons is one more than the greatest audit.Reason.
const numReasons = audit.Contradictions + 1

// Refused returns how many requests were refused for a reason.
func (g *Gate) Refused(reason audit.Reason) uint64 {
	if reason >= numReasons {
		return 0
	}
	return g.refused[reason].Load()
}

// note counts a refusal, and has it recorded. The peer is asked for only if there
// is a log.
func (g *Gate) note(r audit.Refusal, peer Peer) {
	g.refused[r.Reason].Add(1)
	if g.Audit != nil {
		r.Peer = addrOf(peer)
		g.Audit.Refused(r)
	}
}

// A Peer tells where a request came from. It is asked only about what is recorded.
type Peer interface {
	// PeerAddr returns the address, or the zero Addr if it is not known.
	PeerAddr() netip.Addr
}

func addrOf(p Peer) netip.Addr {
	if p == nil {
		return netip.Addr{}
	}
	return p.PeerAddr()
}
