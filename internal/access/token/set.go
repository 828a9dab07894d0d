package token

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
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
	Err            error // if not nil, the file cannot be used, and the Set keeps its tokens
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

	// current has the tokens of one version of the file. It is replaced as a whole, and the
	// map is never modified.
	current atomic.Pointer[map[ID]*entry]
}

// An entry is one token, prepared for look-ups.
type entry struct {
	Principal
	token Token
}

// Open reads the token file at path and follows its changes until Close. It
// returns an error if the file cannot be used now.
func Open(path string, opt Options) (*Set, error) {
	if !opt.DefaultLimit.valid() {
		return nil, errors.New("the default limit is out of bounds")
	}
	s := &Set{path: path, opt: opt, start: time.Now()}
	s.current.Store(&map[ID]*entry{})
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
	old, next := *s.current.Load(), make(map[ID]*entry, len(tokens))
	change := Change{Tokens: len(tokens)}
	for i := range tokens {
		id := tokens[i].ID()
		was := old[id]
		if was != nil && was.token == tokens[i] {
			next[id] = was
			continue
		}
		var before *Principal
		change.Added = append(change.Added, id)
		if was != nil {
			before = &was.Principal
			change.Removed = append(change.Removed, id)
		}
		next[id] = &entry{tokens[i].principal(&s.opt, s.start, before), tokens[i]}
	}
	for id := range old {
		if next[id] == nil {
			change.Removed = append(change.Removed, id)
		}
	}
	s.current.Store(&next)
	return change
}

// Len returns the number of tokens, expired ones included.
func (s *Set) Len() int { return len(*s.current.Load()) }

// LookupKiosk returns the holder of a kiosk's token by the value of [KioskCookie], and when the token expires, which is
// zero for never. Its errors and timing are those of Lookup, but it allocates.
func (s *Set) LookupKiosk(cookie string, nowUnixMs int64) (p *Principal, expires time.Time, err error) {
	text, secret, _ := strings.Cut(cookie, ".")
	id, err := ParseID(text)
	if err != nil {
		return nil, time.Time{}, ErrUnknown
	}
	e, digest := (*s.current.Load())[id], sha256.Sum256([]byte(secret))
	switch {
	case e == nil || !e.token.Kiosk || subtle.ConstantTimeCompare(e.token.Session[:], digest[:]) != 1:
		return nil, time.Time{}, ErrUnknown
	case e.token.Expired(time.UnixMilli(nowUnixMs)):
		return nil, time.Time{}, ErrExpired
	}
	return &e.Principal, e.token.Expires, nil
}

// Lookup returns the holder of the token with a digest, or [ErrUnknown] or, at nowUnixMs,
// [ErrExpired]. It neither allocates nor locks.
//
// Timing: an attacker chooses the text, but the look-up is by its SHA-256, which he can
// compute but not choose: a text whose digest begins with n given bits takes 2ⁿ
// attempts to find. If timing revealed that an ID exists, he would know 48 bits of a
// digest, which reveal nothing about the secret; the remaining bits are compared in
// constant time. Everything before the look-up depends only on his own text.
func (s *Set) Lookup(digest *Digest, nowUnixMs int64) (*Principal, error) {
	e := (*s.current.Load())[digest.ID()]
	switch {
	case e == nil || subtle.ConstantTimeCompare(e.token.Digest[:], digest[:]) != 1:
		return nil, ErrUnknown
	case e.token.Expired(time.UnixMilli(nowUnixMs)):
		return nil, ErrExpired
	}
	return &e.Principal, nil
}
