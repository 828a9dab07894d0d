package ingest

import (
	"cmp"
	"crypto/tls"
	"errors"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// An authorization holds what a request may do, and its peer. It is the storage.Guard of the
// request's readings.
type authorization struct {
	gate   *gate.Gate // that allowed the request; nil means every client may write
	access gate.Access
	peer   gate.Peer // nil means not known
	began  time.Time // when the request was received
}

// enter authorizes a request before its body is read, so that unauthorized clients cannot make
// the server hold bodies.
func (c *Core) enter(v gate.Credentials, now time.Time) (authorization, refusal) {
	switch {
	case c.draining.Load():
		return authorization{}, refusal{kind: refusedDraining}
	case c.cfg.Gate == nil:
		return authorization{}, refusal{}
	}
	access, verdict, retryAfter := c.cfg.Gate.Authorize(v, token.Write, now)
	switch verdict {
	case gate.Allowed:
		return authorization{gate: c.cfg.Gate, access: access, peer: v.Peer}, refusal{}
	case gate.Limited:
		return authorization{}, refusal{kind: refusedLimited, retryAfter: retryAfter}
	case gate.Forbidden:
		return authorization{},
			refusal{kind: refusedForbidden,
				detail: "The right write is needed, and a client certificate must name the token's gateway."}
	case gate.Unavailable:
		return authorization{}, refusal{kind: refusedKeyUnknown}
	case gate.Undecided:
		return authorization{}, refusal{kind: refusedUndecided}
	case gate.BadCredentials:
		return authorization{}, refusal{kind: refusedCredentials}
	}
	return authorization{}, refusal{kind: refusedUnauthorized}
}

// outlived reports whether the client certificate of a connection is no longer valid. The
// answer must then be the last one, so that the client presents its new certificate on the next
// connection.
func (c *Core) outlived(cs *tls.ConnectionState, now time.Time) bool {
	return cs != nil && c.cfg.Gate != nil && c.cfg.Gate.Outlived(cs, now)
}

// Reasons for rejecting a reading because of its sender. Their texts are sent to the client.
var (
	ErrNotCovered = errors.New("the token is not for this device")
	errGateway    = errors.New("not the gateway that the credentials name")
)

// keepAuthorized rejects the decoded readings that the credentials do not allow, and sets the
// gateway of the others, unless they are relayed: then they have the one that they name, or none.
// It returns the number of readings of devices that the token does not cover.
func (b *batch) keepAuthorized(access *gate.Access, relayed bool) (uncovered int) {
	gateway, coversAll := *access.Gateway(), access.CoversAll()
	if relayed {
		gateway = vitals.Name{}
	}
	if gateway.IsZero() && coversAll {
		return 0
	}
	for i := range b.Refused {
		if b.Refused[i].Err == ErrNotCovered {
			uncovered++
		}
	}
	b.keep(func(i int) bool {
		switch r := &b.Readings[i]; {
		case !coversAll && !access.Covers(&r.Device):
			uncovered++
			b.Refused = append(b.Refused, vitals.FieldError{Index: int(b.Index[i]), Field: "device", Err: ErrNotCovered})
			return false
		case !gateway.IsZero() && !r.Gateway.IsZero() && r.Gateway != gateway:
			b.Refused = append(b.Refused, vitals.FieldError{Index: int(b.Index[i]), Field: "gateway", Err: errGateway})
			return false
		case !gateway.IsZero():
			r.Gateway = gateway
		}
		return true
	})
	return uncovered
}

// keep drops the readings for which kept returns false, which may have added them to Refused.
func (b *batch) keep(kept func(i int) bool) {
	n := 0
	for i := range b.Readings {
		if !kept(i) {
			continue
		}
		if n < i {
			b.Readings[n], b.Index[n] = b.Readings[i], b.Index[i]
		}
		n++
	}
	if n < len(b.Readings) {
		b.Readings, b.Index = b.Readings[:n], b.Index[:n]
		slices.SortFunc(b.Refused, func(x, y vitals.FieldError) int { return cmp.Compare(x.Index, y.Index) })
	}
}

// charge charges all readings of a request, rejected ones too, to the rate of its token. It returns
// the refusal if the rate does not allow them. A request without readings counts as one.
//
// Only requests that are admitted or invalid are charged: a client whose request was rejected
// because of overload sends it again.
func (a *authorization) charge(readings int) refusal {
	if a.gate == nil {
		return refusal{}
	}
	if ok, retryAfter := a.access.Allow(max(readings, 1), a.began); !ok {
		return refusal{kind: refusedLimited, retryAfter: retryAfter}
	}
	return refusal{}
}

// Take implements storage.Guard. Like Return, it runs on the committer's goroutine, while the Job
// waits.
func (a *authorization) Take() bool { return a.gate.TakeContradiction(&a.access, a.began) }

// Return implements storage.Guard.
func (a *authorization) Return() { a.gate.ReturnContradiction(&a.access, a.began) }

// reportWithheld reports a request with withheld readings to the gate, and returns the time until
// one can be compared.
func (a *authorization) reportWithheld() (retryAfter time.Duration) {
	return a.gate.Withheld(&a.access, a.peer, a.began)
}

// reportIdentity reports a request to the gate of which readings were rejected because of their devices or gateways.
func (j *Job) reportIdentity() {
	if j.uncovered > 0 {
		j.core.counters.refused[refusedDevice].Add(uint64(j.uncovered))
		j.core.cfg.Gate.NotCovered(&j.auth.access, j.auth.peer)
	}
	misnamed := func(f vitals.FieldError) bool {
		return f.Err == errGateway || f.Err == vitals.ErrOrigin && f.Field == "gateway"
	}
	if !j.auth.access.Gateway().IsZero() && (j.refusal.misnamed || slices.ContainsFunc(j.batch.Refused, misnamed)) {
		gate.OtherGateway(j.core.cfg.Gate, &j.auth.access, j.auth.peer)
	}
}
