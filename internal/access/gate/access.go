package gate

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// An Access is what one request may do: what its token allows, or what needs none. If the token
// is revoked later, the Access stays valid for that request. The zero Access allows nothing.
type Access struct {
	*token.Principal
	gateway vitals.Name
	bound   bool // the token is bound to subjects
}

// What may be done without a token.
var (
	anything = token.Unlimited(token.Write | token.Read | token.ReadSubjects | token.Admin) // if the gate is open
	writing  = token.Unlimited(token.Write)                                                 // with a client certificate
)

// Gateway returns the name of the authenticated gateway. It is zero if the gate is
// open; readings then name their gateway themselves.
func (a *Access) Gateway() *vitals.Name { return &a.gateway }

// Holder returns the client to which the resources of the request are charged: its token,
// else the gateway in its certificate, else its address. The caller must Put it.
func (a *Access) Holder(all *share.Holders, peer Peer) *share.Holder {
	switch id := a.ID(); {
	case all == nil:
		return nil
	case id != (token.ID{}):
		return all.Get(id)
	case !a.gateway.IsZero():
		return all.Get(a.gateway)
	}
	return all.Addr(addrOf(peer))
}

// BoundToSubjects reports whether the token is bound to subjects. Such a token has only
// [token.ReadSubjects], and covers no device: what was measured on a device belongs to whoever wore
// it at the time. [Gate.Authorize] also sets it for a request that it forbids.
func (a *Access) BoundToSubjects() bool { return a.bound }

// MayReadSubject reports whether the request may read what was measured of a subject, to whom devices were assigned at
// any time. A request that is not bound to subjects must cover all of these devices. If it does not cover every device,
// it must not learn whether a subject without any of them exists.
func (a *Access) MayReadSubject(subject string, devices []vitals.Name) bool {
	switch {
	case !a.CoversSubject(subject):
		return false
	case a.BoundToSubjects() || a.CoversAll():
		return true
	}
	return len(devices) > 0 && !slices.ContainsFunc(devices, func(d vitals.Name) bool { return !a.Covers(&d) })
}

// WhyNotRead returns why a request for reading was forbidden, for its answer.
func (a *Access) WhyNotRead() string {
	if a.bound {
		return "The token is bound to subjects. It reads only under /fhir, /v1/subjects and /v1/changes."
	}
	return "A token with the read right is needed."
}

// MayRead reports whether the request has the read right. The responses to a client
// without it must not reveal what others wrote.
func (a *Access) MayRead() bool { return a.Has(token.Read) }

// NotCovered records that a request was rejected because its token does not cover a
// device.
func (g *Gate) NotCovered(a *Access, peer Peer) {
	g.note(refusal(audit.NotCovered, a.Principal), peer)
}

// OtherGateway records that a request was rejected because it names another gateway than its credentials do.
func OtherGateway(g *Gate, a *Access, peer Peer) {
	g.note(refusal(audit.OtherGateway, a.Principal), peer)
}

// BadCertificate records a client certificate that failed the TLS handshake.
func (g *Gate) BadCertificate(peer Peer) {
	g.note(audit.Refusal{Reason: audit.BadCertificate}, peer)
}

// An Export describes the readings of an export: those of a device, of a patient, or of a
// patient from a device.
type Export struct {
	Device   vitals.Name // zero means all of the patient
	Subject  string      // patient; empty means no patient
	From, To time.Time   // zero means open
}

// Exporting durably records that readings are about to be exported. If it fails, they
// must not be. Without an audit log it does nothing.
func (g *Gate) Exporting(ctx context.Context, a *Access, peer Peer, e Export) error {
	if g.Audit == nil {
		return nil
	}
	r := audit.Record{Gateway: a.gateway, Device: e.Device, Subject: e.Subject, From: e.From, To: e.To, Peer: addrOf(peer)}
	if r.Actor = a.Actor(); r.Actor == "" && a.ID() != (token.ID{}) {
		r.Token = a.ID().String()
	}
	return g.Audit.Export(ctx, r)
}

// Refused returns the number of requests rejected for a reason.
func (g *Gate) Refused(reason audit.Reason) uint64 { return g.refused[reason].Load() }

// note counts and records a refusal. It determines the peer's address only if there is
// an audit log.
func (g *Gate) note(r audit.Refusal, peer Peer) {
	g.refused[r.Reason].Add(1)
	if g.Audit != nil {
		r.Peer = addrOf(peer)
		g.Audit.Refused(r)
	}
}

// A Peer is the other end of a connection. Its address is determined only when needed.
type Peer interface {
	// PeerAddr returns the address, or the zero Addr if it is unknown.
	PeerAddr() netip.Addr
}

func addrOf(p Peer) netip.Addr {
	if p == nil {
		return netip.Addr{}
	}
	return p.PeerAddr()
}
