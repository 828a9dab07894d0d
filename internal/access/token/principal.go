package token

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Principal is the sender of a request, with what the request may do: the holder of a
// token, or a client that needs none. It never changes, except for the state of its
// limiter and its budgets. If its token is revoked while it serves a request, it stays
// valid for that request. The nil Principal is allowed nothing.
type Principal struct {
	id       ID          // zero means no token
	gateway  vitals.Name // the holder
	devices  vitals.Name // prefix of the names that it covers
	before   vitals.Name
	rights   Rights   // with ReadSubjects
	subjects []string // nil means not bound
	limit    Limit
	limiter  *Bucket  // of limit; nil means no limit
	budgets  *Budgets // nil means no token
	expires  time.Time

	actor string // "" means the holder of a token in the file
}

// An Identity is whom an OpenID Connect provider vouches for.
type Identity struct{ Issuer, Subject string }

// ID returns an ID in place of a token's.
func (who *Identity) ID() ID {
	digest := Digest(sha256.Sum256([]byte(who.Issuer + "\n" + who.Subject)))
	return digest.ID()
}

// NewPrincipal returns the principal of whom a provider vouches for, with what spec allows. Of opt it uses
// DefaultLimit and Hourly. If was is not nil, it is the same person's, and the state of its limiter and
// budgets is kept. start is that of the first.
func NewPrincipal(who Identity, spec *Token, opt *Options, start time.Time, was *Principal) *Principal {
	p := spec.principal(opt, start, was)
	p.id, p.actor = who.ID(), "oidc:"+who.Subject+" "+who.Issuer
	return &p
}

// principal returns what a token allows. If was is not nil, it is the same holder's, and the state of its
// budgets is kept, and that of its limiter if the limit is the same.
func (t *Token) principal(opt *Options, start time.Time, was *Principal) Principal {
	p := Principal{
		id: t.ID(), gateway: t.Gateway, devices: t.Devices, before: Before(t.Devices), rights: t.Rights,
		subjects: t.Subjects.List(), expires: t.Expires,
		limit: cmp.Or(t.Limit, opt.DefaultLimit),
	}
	if was != nil {
		p.budgets = was.budgets
	} else {
		p.budgets = NewBudgets(opt.Hourly, start)
	}
	if was != nil && was.limit == p.limit {
		p.limiter = was.limiter
	} else if p.limit != (Limit{}) {
		p.limiter = NewBucket(p.limit, start)
	}
	if p.rights.Has(Read) {
		p.rights |= ReadSubjects
	}
	if p.subjects != nil {
		p.rights &^= Read
	}
	return p
}

// Actor returns how the audit log names whom a provider vouches for, "oidc:SUBJECT ISSUER", or "" for the
// holder of a token in the file, whom it names by the ID.
func (p *Principal) Actor() string {
	if p == nil {
		return ""
	}
	return p.actor
}

// Unlimited returns a Principal without a token, which has rights for all devices and
// subjects, at any rate.
func Unlimited(rights Rights) *Principal { return &Principal{rights: rights} }

// ID returns the ID of the token, or of the [Identity].
func (p *Principal) ID() ID {
	if p == nil {
		return ID{}
	}
	return p.id
}

// Expires returns when the token expires; zero means never, or that there is no token.
func (p *Principal) Expires() time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.expires
}

// Gateway returns the name of the gateway that the token belongs to.
func (p *Principal) Gateway() vitals.Name {
	if p == nil {
		return vitals.Name{}
	}
	return p.gateway
}

// Has reports whether the token has all of the rights wanted. A token that is bound to subjects
// has [ReadSubjects] and no other right.
func (p *Principal) Has(want Rights) bool { return p != nil && p.rights.Has(want) }

// Bound reports whether the token is bound to subjects.
func (p *Principal) Bound() bool { return p != nil && p.subjects != nil }

// CoversSubject reports whether the token may be used for a subject, as far as that depends on
// the subject: it is bound to it, or not bound.
func (p *Principal) CoversSubject(subject string) bool {
	return p != nil && (p.subjects == nil || slices.Contains(p.subjects, subject))
}

// Covers reports whether the token may be used for device, regardless of who wore it. A token that is bound
// to subjects may not.
func (p *Principal) Covers(device *vitals.Name) bool {
	return p != nil && p.subjects == nil && device.HasPrefix(&p.devices)
}

// CoversAll reports whether the token may be used for every device.
func (p *Principal) CoversAll() bool { return p != nil && p.subjects == nil && p.devices.IsZero() }

// Before returns the name that sorts right before the devices that the token covers. In
// the order of names, the covered devices are those after it, up to the first one that
// is not covered. It is zero if no name sorts before them.
func (p *Principal) Before() vitals.Name {
	if p == nil {
		return vitals.Name{}
	}
	return p.before
}

// Budgets returns the buckets of the token's [Hourly], or nil without a token.
func (p *Principal) Budgets() *Budgets {
	if p == nil {
		return nil
	}
	return p.budgets
}

// Allow takes n readings out of the token's rate limit, or returns how long to wait
// before the next attempt. Allow(0, now) checks without taking. See [Bucket.Take].
//
// Call it with 0 before reading the body, and with the number of readings once it is
// known.
func (p *Principal) Allow(n int, now time.Time) (ok bool, retryAfter time.Duration) {
	switch {
	case p == nil:
		return false, time.Hour
	case p.limiter == nil:
		return true, 0
	}
	return p.limiter.Take(n, now)
}

// Before returns the greatest name that sorts before every name that begins with
// prefix, or the zero Name if there is none.
func Before(prefix vitals.Name) vitals.Name {
	const order = "-.0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
	var b [vitals.MaxNameBytes]byte
	text := prefix.AppendTo(b[:0])
	if len(text) == 0 {
		return vitals.Name{}
	}
	// Decrement the last byte and pad with the greatest byte: before "ab" comes
	// "aazz…z". Drop a last byte that is the least: before "a-" comes "a".
	last := len(text) - 1
	if i := bytes.IndexByte([]byte(order), text[last]); i > 0 {
		text[last] = order[i-1]
		for len(text) < len(b) {
			text = append(text, order[len(order)-1])
		}
	} else {
		text = text[:last]
	}
	name, err := vitals.ParseName(text)
	if err != nil {
		return vitals.Name{} // text is empty: no name sorts before one that consists of the least byte
	}
	return name
}
