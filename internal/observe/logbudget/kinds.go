package logbudget

import (
	"log/slog"
	"strings"
)

// Bounds of the kinds.
const (
	maxKinds        = 64 // that are told apart; what comes beyond shares one budget
	maxMessageBytes = 96 // of a message that tell kinds apart
)

// otherKinds is the message that stands for all kinds beyond maxKinds.
const otherKinds = "(kinds beyond the first 64)"

// A kind is the lines that share a budget.
type kind struct {
	level   slog.Level
	message string
	lines   window // that were accepted

	// What has not been told.
	suppressed int64 // because a budget was spent
	dropped    int64 // because the queue was full
}

type kindKey struct {
	level   slog.Level
	message string
}

// kinds are the kinds of the last minute.
type kinds struct {
	byKey map[kindKey]*kind
	other kind
}

func newKinds() kinds {
	return kinds{byKey: make(map[kindKey]*kind, maxKinds), other: kind{message: otherKinds}}
}

// of returns the kind of a record. It allocates for a new kind only.
func (s *kinds) of(level slog.Level, message string, second int64) *kind {
	key := kindKey{level, message[:min(len(message), maxMessageBytes)]}
	if k := s.byKey[key]; k != nil {
		return k
	}
	if len(s.byKey) >= maxKinds {
		s.forget(second)
	}
	if len(s.byKey) >= maxKinds {
		s.other.level = max(s.other.level, level)
		return &s.other
	}
	key.message = strings.Clone(key.message) // it may be part of something large
	k := &kind{level: level, message: key.message}
	s.byKey[key] = k
	return k
}

// forget drops the kinds of which nothing is known that matters.
func (s *kinds) forget(second int64) {
	for key, k := range s.byKey {
		if k.lines.total(second) == 0 && k.suppressed == 0 && k.dropped == 0 {
			delete(s.byKey, key)
		}
	}
}

// untold visits the kinds of which lines are missing, until visit returns false.
func (s *kinds) untold(visit func(*kind) bool) {
	missing := func(k *kind) bool { return k.suppressed > 0 || k.dropped > 0 }
	for _, k := range s.byKey {
		if missing(k) && !visit(k) {
			return
		}
	}
	if missing(&s.other) && visit(&s.other) {
		s.other.level = 0
	}
}
