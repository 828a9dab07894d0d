package logbudget

import (
	"log/slog"
	"strings"
)

// Bounds of the kinds.
const (
	maxKinds        = 64 // kinds with a budget of their own; further ones share one
	maxMessageBytes = 96 // bytes of a message that distinguish kinds
)

// otherKinds is the message in summaries of all kinds beyond maxKinds.
const otherKinds = "(kinds beyond the first 64)"

// A kind is the set of lines that share a budget.
type kind struct {
	kindKey
	lines window // accepted lines

	// Lines not yet reported in a summary.
	suppressed int64 // because a budget was exhausted
	dropped    int64 // because the queue was full
}

type kindKey struct {
	level   slog.Level
	message string
}

// kinds holds the kinds of the last minute.
type kinds struct {
	byKey map[kindKey]*kind
	other kind
}

// of returns the kind of a record. It allocates only for a new kind.
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
	key.message = strings.Clone(key.message) // it may be a slice of a large string
	k := &kind{kindKey: key}
	s.byKey[key] = k
	return k
}

// forget removes the kinds without lines in the last minute and without unreported
// lines.
func (s *kinds) forget(second int64) {
	for key, k := range s.byKey {
		if k.lines.total(second) == 0 && k.suppressed == 0 && k.dropped == 0 {
			delete(s.byKey, key)
		}
	}
}

// unreported visits the kinds with unreported lines until visit returns false.
func (s *kinds) unreported(visit func(*kind) bool) {
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
