package ingest

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// A permit is what a request may do, and where it came from.
type permit struct {
	pass gate.Access
	peer gate.Peer // nil: not known
}

// enter decides whether a request is taken, before its body is read: a server with
// tokens does not hold a body without one.
func (c *Core) enter(v gate.Credentials, now time.Time) (permit, refusal) {
	switch {
	case c.draining.Load():
		return permit{}, refusal{kind: refusedDraining}
	case c.cfg.Gate == nil:
		return permit{}, refusal{}
	}
	pass, verdict, retryAfter := c.cfg.Gate.Authorize(v, token.Write, now)
	switch verdict {
	case gate.Allowed:
		return permit{pass: pass, peer: v.Peer}, refusal{}
	case gate.Limited:
		return permit{}, refusal{kind: refusedLimited, retryAfter: retryAfter}
	case gate.Forbidden:
		return permit{}, refusal{kind: refusedForbidden, detail: "The right write is needed, and a client certificate must name the token's gateway."}
	case gate.BadCredentials:
		return permit{}, refusal{kind: refusedCredentials}
	}
	return permit{}, refusal{kind: refusedUnauthorized}
}

// The rules about who sends a reading. Their texts are for the client.
var (
	errDevice  = errors.New("the token is not for this device")
	errGateway = errors.New("not the gateway that the credentials name")
)

// keepPermitted keeps those of the decoded readings that the pass allows, and says of
// which gateway they are. A batch keeps the others.
func (j *Job) keepPermitted() {
	if j.core.cfg.Gate == nil {
		return
	}
	pass := &j.permitted.pass
	gateway, coversAll := pass.Gateway(), pass.CoversAll()
	if gateway.IsZero() && coversAll {
		return
	}
	readings, kept := j.batch.Readings, 0
	for i := range readings {
		r, index := &readings[i], j.batch.Index[i]
		switch {
		case !coversAll && !pass.Covers(&r.Device):
			j.uncovered++
			j.batch.Refused = append(j.batch.Refused, vitals.FieldError{Index: int(index), Field: "device", Err: errDevice})
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
	j.sortRefused()
}

func (j *Job) sortRefused() {
	slices.SortFunc(j.batch.Refused, func(a, b vitals.FieldError) int { return cmp.Compare(a.Index, b.Index) })
}

// charge takes the request's readings out of the rate of its token, refused ones
// as well, and reports whether there was room. A request without any counts as one.
//
// Only requests are charged that are let in or that are wrong in themselves: one
// that the server is too busy for comes again.
func (j *Job) charge() bool {
	if j.core.cfg.Gate == nil {
		return true
	}
	ok, retryAfter := j.permitted.pass.Charge(max(j.batch.Len(), 1), j.began)
	if !ok {
		j.refusal = refusal{kind: refusedLimited, retryAfter: retryAfter}
	}
	return ok
}

// noteWithheld reports a request of which readings were not compared, and returns how
// long to wait until one can be.
func (j *Job) noteWithheld() (retryAfter time.Duration) {
	return j.core.cfg.Gate.Withheld(&j.permitted.pass, j.permitted.peer, j.began)
}

// noteUncovered tells of a request that was refused, in part or whole, because of
// its devices.
func (j *Job) noteUncovered() {
	if j.uncovered > 0 {
		j.core.counters.refused[refusedDevice].Add(uint64(j.uncovered))
		j.core.cfg.Gate.NotCovered(&j.permitted.pass, j.permitted.peer)
	}
}
