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

// An authorization holds what a request may do, and its peer.
type authorization struct {
	access gate.Access
	peer   gate.Peer // nil means not known
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
		return authorization{access: access, peer: v.Peer}, refusal{}
	case gate.Limited:
		return authorization{}, refusal{kind: refusedLimited, retryAfter: retryAfter}
	case gate.Forbidden:
		return authorization{}, refusal{kind: refusedForbidden, detail: "The right write is needed, and a client certificate must name the token's gateway."}
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
// gateway of the others.
func (j *Job) keepAuthorized() {
	if j.core.cfg.Gate == nil {
		return
	}
	access := &j.auth.access
	gateway, coversAll := access.Gateway(), access.CoversAll()
	if gateway.IsZero() && coversAll {
		return
	}
	for i := range j.batch.Refused {
		if j.batch.Refused[i].Err == ErrNotCovered {
			j.uncovered++
		}
	}
	readings, kept := j.batch.Readings, 0
	for i := range readings {
		r, index := &readings[i], j.batch.Index[i]
		switch {
		case !coversAll && !access.Covers(&r.Device):
			j.uncovered++
			j.batch.Refused = append(j.batch.Refused, vitals.FieldError{Index: int(index), Field: "device", Err: ErrNotCovered})
		case !gateway.IsZero() && !r.Gateway.IsZero() && r.Gateway != *gateway:
			j.batch.Refused = append(j.batch.Refused, vitals.FieldError{Index: int(index), Field: "gateway", Err: errGateway})
		default:
			if !gateway.IsZero() {
				r.Gateway = *gateway
			}
			if kept < i {
				readings[kept] = *r
			}
			j.batch.Index[kept] = index
			kept++
		}
	}
	if kept == len(readings) {
		return
	}
	j.batch.Readings, j.batch.Index = readings[:kept], j.batch.Index[:kept]
	j.batch.sortRefused()
}

func (b *batch) sortRefused() {
	slices.SortFunc(b.Refused, func(x, y vitals.FieldError) int { return cmp.Compare(x.Index, y.Index) })
}

// charge charges all readings of the request, rejected ones too, to the rate of its token, and
// reports whether the rate allows them. A request without readings counts as one.
//
// Only requests that are admitted or invalid are charged: a client whose request was rejected
// because of overload sends it again.
func (j *Job) charge() bool {
	if j.core.cfg.Gate == nil {
		return true
	}
	ok, retryAfter := j.auth.access.Allow(max(j.batch.Len(), 1), j.began)
	if !ok {
		j.refusal = refusal{kind: refusedLimited, retryAfter: retryAfter}
	}
	return ok
}

// reportWithheld reports a request with withheld readings to the gate, and returns the time until
// one can be compared.
func (j *Job) reportWithheld() (retryAfter time.Duration) {
	return j.core.cfg.Gate.Withheld(&j.auth.access, j.auth.peer, j.began)
}

// reportUncovered reports a request to the gate of which readings were rejected because of their
// devices.
func (j *Job) reportUncovered() {
	if j.uncovered > 0 {
		j.core.counters.refused[refusedDevice].Add(uint64(j.uncovered))
		j.core.cfg.Gate.NotCovered(&j.auth.access, j.auth.peer)
	}
}
