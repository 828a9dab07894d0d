package token

import (
	"crypto/subtle"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options are those of a [Set].
type Options struct {
	// DefaultLimit is that of tokens without one of their own. Each token has a
	// bucket for itself. The zero Limit is none.
	DefaultLimit Limit

	// Hourly is that of each token.
	Hourly Hourly

	// Every is the time between two looks at the file: default 1 s, below 0 none.
	Every time.Duration

	// Changed is called as [filewatch.Options.Loaded] is. May be nil.
	Changed func(Change)
}

// A Change tells what a reload of the token file did.
type Change struct {
	Err            error // the file cannot be used: the Set keeps the tokens that it had
	Tokens         int   // in use now
	Added, Removed []ID  // an altered token is in both
}

// A Set holds the tokens of a running server. Its methods may be called from many
// goroutines.
type Set struct {
	*filewatch.Follower // of the token file

	path   string
	opt    Options
	start  time.Time
	change Change // of the last load, guarded by the Follower

	// current is replaced whole and never changed.
	current atomic.Pointer[snapshot]
}

// A snapshot holds the tokens of one state of the file.
type snapshot struct {
	byID map[ID]*entry
}

// An entry is one token, ready to be asked. It is immutable, but for the state of
// its limiter.
type entry struct {
	token         Token
	expiresUnixMs int64 // 0: never
	prefix        devicePrefix
	limiter       *Bucket // nil: none
	limit         Limit   // of limiter
	before        vitals.Name
	budgets       *Budgets
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
		Paths: []string{path}, Every: opt.Every, Load: s.load, Loaded: s.loaded,
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
	if s.opt.Changed != nil {
		s.opt.Changed(change)
	}
}

// publish puts tokens into force. A token that stays as it was keeps the state of
// its limiter, so that a change of the file gives nobody a full bucket.
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
	e := &entry{token: *t, prefix: newDevicePrefix(t.Devices), before: before(t.Devices)}
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

// Lookup returns what the token in the value of an Authorization header grants at
// nowUnixMs, or an error: [ErrMissing] for an empty value, [ErrMalformed],
// [ErrUnknown] or [ErrExpired]. It neither allocates nor locks, and retains
// nothing of authorization. The value comes without white space around it; a
// request with several Authorization headers must be refused before, since two
// readers of it could take different ones.
//
// With ErrUnknown and ErrExpired the Grant has an ID and grants nothing.
//
// Time. What an attacker chooses is the text; what is looked up is its SHA-256,
// which he can compute but not steer: to send a text whose digest begins with n
// chosen bits he must try 2ⁿ texts. If the time of the look-up told him that some
// ID exists, he would know 48 bits of a digest, which says nothing about the
// secret, and the bits behind it are compared in constant time. Everything before
// the look-up depends on his own text alone.
func (s *Set) Lookup(authorization []byte, nowUnixMs int64) (Grant, error) {
	digest, err := digestOfHeader(authorization)
	if err != nil {
		return Grant{}, err
	}
	return s.lookup(&digest, nowUnixMs)
}

// LookupString is [Set.Lookup] for a string.
func (s *Set) LookupString(authorization string, nowUnixMs int64) (Grant, error) {
	digest, err := digestOfHeader(authorization)
	if err != nil {
		return Grant{}, err
	}
	return s.lookup(&digest, nowUnixMs)
}

func (s *Set) lookup(digest *Digest, nowUnixMs int64) (Grant, error) {
	id := digest.ID()
	e := s.current.Load().byID[id]
	if e == nil || subtle.ConstantTimeCompare(e.token.Digest[:], digest[:]) != 1 {
		return Grant{id: id}, ErrUnknown
	}
	if e.expiresUnixMs != 0 && nowUnixMs >= e.expiresUnixMs {
		return Grant{id: id}, ErrExpired
	}
	return Grant{entry: e, id: id}, nil
}

// A Grant is what a valid token allows. It is a small value, to be used for one
// request and then dropped: a token that is revoked during the request stays
// valid for it. The zero Grant allows nothing.
type Grant struct {
	entry *entry // nil: grants nothing
	id    ID
}

// ID returns the ID of the token.
func (g Grant) ID() ID { return g.id }

// Gateway returns the name that the token is bound to.
func (g Grant) Gateway() vitals.Name {
	if g.entry == nil {
		return vitals.Name{}
	}
	return g.entry.token.Gateway
}

// Has reports whether the token has all of the rights wanted.
func (g Grant) Has(want Rights) bool { return g.entry != nil && g.entry.token.Rights.Has(want) }

// Covers reports whether the token may be used for device.
func (g Grant) Covers(device *vitals.Name) bool {
	return g.entry != nil && g.entry.prefix.covers(device)
}

// CoversAll reports whether the token may be used for every device.
func (g Grant) CoversAll() bool { return g.entry != nil && g.entry.prefix.bytes == 0 }

// Before returns the name that sorts right before the devices that the token
// covers: in the order of names these are the ones that follow it, up to the
// first one that is not covered. It is zero if no device sorts before them.
func (g Grant) Before() vitals.Name {
	if g.entry == nil {
		return vitals.Name{}
	}
	return g.entry.before
}

// Budgets returns what is left of the token's [Hourly], or nil for the zero Grant.
func (g Grant) Budgets() *Budgets {
	if g.entry == nil {
		return nil
	}
	return g.entry.budgets
}

// Allow takes n readings out of the token's rate, or returns how long to wait before
// the next try. With n of 0 it only asks. See [Bucket.Take].
//
// Ask with 0 before the body is read, and with the number of readings once it is
// known.
func (g Grant) Allow(n int, now time.Time) (ok bool, retryAfter time.Duration) {
	switch {
	case g.entry == nil:
		return false, time.Hour
	case g.entry.limiter == nil:
		return true, 0
	}
	return g.entry.limiter.Take(n, now)
}
