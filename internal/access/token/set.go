package token

import (
	"crypto/subtle"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options configure a [Set].
type Options struct {
	// DefaultLimit applies to each token without a limit of its own. Tokens do not
	// share buckets. The zero Limit means no limit.
	DefaultLimit Limit

	// Hourly applies to each token.
	Hourly Hourly

	// Every is the interval at which the file is checked: default 1 s; negative: never.
	Every time.Duration

	// OnChange, if not nil, is called as [filewatch.Options.OnLoad] is.
	OnChange func(Change)
}

// A Change describes the result of a reload of the token file.
type Change struct {
	Err            error // not nil: the file cannot be used, and the Set keeps its tokens
	Tokens         int   // number of tokens in use now
	Added, Removed []ID  // an altered token is in both
}

// A Set holds the tokens of a running server. It is safe for concurrent use.
type Set struct {
	*filewatch.Follower // of the token file

	path   string
	opt    Options
	start  time.Time
	change Change // of the last load, guarded by the Follower

	// current is replaced as a whole; a snapshot is never modified.
	current atomic.Pointer[snapshot]
}

// A snapshot holds the tokens of one version of the file.
type snapshot struct {
	byID map[ID]*entry
}

// An entry is one token, prepared for look-ups. It is immutable except for the state of
// its limiter and budgets.
type entry struct {
	token         Token
	expiresUnixMs int64   // 0: never
	limiter       *Bucket // nil: no limit
	limit         Limit   // of limiter
	before        vitals.Name
	budgets       *Budgets
	rights        Rights   // with ReadSubjects
	subjects      []string // nil: not bound
}

// Open reads the token file at path and follows its changes until Close. It
// returns an error if the file cannot be used now.
func Open(path string, opt Options) (*Set, error) {
	if !opt.DefaultLimit.valid() {
		return nil, errors.New("token: the default limit is out of bounds")
	}
	s := &Set{path: path, opt: opt, start: time.Now()}
	s.current.Store(&snapshot{})
	var err error
	s.Follower, err = filewatch.Follow(filewatch.Options{
		Paths: []string{path}, Every: opt.Every, Load: s.load, OnLoad: s.loaded,
		Final: []error{ErrFile, ErrWritable},
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Set) load() (changed bool, err error) {
	tokens, err := ReadFile(s.path)
	if err != nil {
		return false, err
	}
	s.change = s.publish(tokens)
	return len(s.change.Added)+len(s.change.Removed) > 0, nil
}

func (s *Set) loaded(err error) {
	change := s.change
	if err != nil {
		change = Change{Err: err, Tokens: s.Len()}
	}
	if s.opt.OnChange != nil {
		s.opt.OnChange(change)
	}
}

// publish puts tokens into effect. An unchanged token keeps the state of its limiter,
// so a change of the file never refills a bucket.
func (s *Set) publish(tokens []Token) Change {
	old := s.current.Load()
	next := &snapshot{byID: make(map[ID]*entry, len(tokens))}
	change := Change{Tokens: len(tokens)}
	for i := range tokens {
		id := tokens[i].ID()
		was := old.byID[id]
		if was != nil && was.token == tokens[i] {
			next.byID[id] = was
			continue
		}
		change.Added = append(change.Added, id)
		if was != nil {
			change.Removed = append(change.Removed, id)
		}
		next.byID[id] = s.newEntry(&tokens[i], was)
	}
	for id := range old.byID {
		if next.byID[id] == nil {
			change.Removed = append(change.Removed, id)
		}
	}
	s.current.Store(next)
	return change
}

func (s *Set) newEntry(t *Token, was *entry) *entry {
	e := &entry{token: *t, before: Before(t.Devices), rights: t.Rights, subjects: t.Subjects.List()}
	if e.rights.Has(Read) {
		e.rights |= ReadSubjects
	}
	if e.subjects != nil {
		e.rights &^= Read
	}
	if !t.Expires.IsZero() {
		e.expiresUnixMs = t.Expires.UnixMilli()
	}
	limit := t.Limit
	if limit == (Limit{}) {
		limit = s.opt.DefaultLimit
	}
	if was != nil {
		e.budgets = was.budgets
	} else {
		e.budgets = NewBudgets(s.opt.Hourly, s.start)
	}
	e.limit = limit
	switch {
	case limit == Limit{}:
	case was != nil && was.limit == limit:
		e.limiter = was.limiter
	default:
		e.limiter = newLimiter(limit, s.start)
	}
	return e
}

// Len returns the number of tokens, expired ones included.
func (s *Set) Len() int { return len(s.current.Load().byID) }

// Lookup returns what the token with a digest allows at nowUnixMs, or [ErrUnknown] or
// [ErrExpired]. It neither allocates nor locks. After an error the Access has an ID and
// allows nothing.
//
// Timing: an attacker chooses the text, but the look-up is by its SHA-256, which he can
// compute but not choose: a text whose digest begins with n given bits takes 2ⁿ
// attempts to find. If timing revealed that an ID exists, he would know 48 bits of a
// digest, which reveal nothing about the secret; the remaining bits are compared in
// constant time. Everything before the look-up depends only on his own text.
func (s *Set) Lookup(digest *Digest, nowUnixMs int64) (Access, error) {
	id := digest.ID()
	e := s.current.Load().byID[id]
	if e == nil || subtle.ConstantTimeCompare(e.token.Digest[:], digest[:]) != 1 {
		return Access{id: id}, ErrUnknown
	}
	if e.expiresUnixMs != 0 && nowUnixMs >= e.expiresUnixMs {
		return Access{id: id}, ErrExpired
	}
	return Access{entry: e, id: id}, nil
}

// Unlimited returns an Access without a token, which has rights for all devices and subjects, at
// any rate.
func Unlimited(rights Rights) Access { return Access{entry: &entry{rights: rights}} }

// An Access is what a valid token allows. It is a small value for the duration of one
// request: if the token is revoked meanwhile, it stays valid for that request. The zero
// Access allows nothing.
type Access struct {
	entry *entry // nil: allows nothing
	id    ID
}

// ID returns the ID of the token.
func (a Access) ID() ID { return a.id }

// Gateway returns the name of the gateway that the token belongs to.
func (a Access) Gateway() vitals.Name {
	if a.entry == nil {
		return vitals.Name{}
	}
	return a.entry.token.Gateway
}

// Has reports whether the token has all of the rights wanted. A token that is bound to subjects
// has [ReadSubjects] and no other right.
func (a Access) Has(want Rights) bool { return a.entry != nil && a.entry.rights.Has(want) }

// Bound reports whether the token is bound to subjects.
func (a Access) Bound() bool { return a.entry != nil && a.entry.subjects != nil }

// CoversSubject reports whether the token may be used for a subject, as far as that depends on
// the subject: it is bound to it, or not bound.
func (a Access) CoversSubject(subject string) bool {
	return a.entry != nil && (a.entry.subjects == nil || slices.Contains(a.entry.subjects, subject))
}

// Covers reports whether the token may be used for device, whoever wore it. A token that is bound
// to subjects may not.
func (a Access) Covers(device *vitals.Name) bool {
	return a.entry != nil && a.entry.subjects == nil && device.HasPrefix(&a.entry.token.Devices)
}

// CoversAll reports whether the token may be used for every device.
func (a Access) CoversAll() bool {
	return a.entry != nil && a.entry.subjects == nil && a.entry.token.Devices.IsZero()
}

// Before returns the name that sorts right before the devices that the token covers. In
// the order of names, the covered devices are those after it, up to the first one that
// is not covered. It is zero if no name sorts before them.
func (a Access) Before() vitals.Name {
	if a.entry == nil {
		return vitals.Name{}
	}
	return a.entry.before
}

// Budgets returns the buckets of the token's [Hourly], or nil without a token.
func (a Access) Budgets() *Budgets {
	if a.entry == nil {
		return nil
	}
	return a.entry.budgets
}

// Allow takes n readings out of the token's rate limit, or returns how long to wait
// before the next attempt. Allow(0, now) checks without taking. See [Bucket.Take].
//
// Call it with 0 before reading the body, and with the number of readings once it is
// known.
func (a Access) Allow(n int, now time.Time) (ok bool, retryAfter time.Duration) {
	switch {
	case a.entry == nil:
		return false, time.Hour
	case a.entry.limiter == nil:
		return true, 0
	}
	return a.entry.limiter.Take(n, now)
}
