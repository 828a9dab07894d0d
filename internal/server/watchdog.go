package server

import "github.com/pulsegate/pulsegate/internal/storage/groupcommit"

// A pulse reports whether the parts of a server that could hang unnoticed make progress:
// its event loops, and the committer's goroutine.
//
// It does not report that the server is ready, nor that the disk answers. A restart does
// not mend a stalled disk; it would only discard the waiting requests, and open a store
// on a disk that does not answer. So a committer that waits for the disk counts as
// alive. readyz shows that a store cannot write, and a failed store ends the process.
type pulse struct {
	loops   func() bool // whether each has iterated since the last call
	commits func() groupcommit.Stats

	last groupcommit.Stats
}

func newPulse(s *server) *pulse {
	lanes := s.listeners.lanes()
	return &pulse{commits: s.core.Commits, loops: func() bool {
		alive := true
		for _, lane := range lanes {
			alive = lane.Beat() && alive // each begins its next turn
		}
		return alive
	}}
}

// hangs returns the name of a part that made no progress since the last call, or an
// empty string. Reading the counters takes the committer's mutex: if that is never
// released, hangs does not return, which stops the watchdog as well.
func (p *pulse) hangs() string {
	now := p.commits()
	// Calls wait, none was answered since, and the store is not writing.
	stuck := now.QueuedCalls > 0 && p.last.QueuedCalls > 0 && now.Groups == p.last.Groups && !now.Flushing &&
		!p.last.Flushing
	p.last = now
	switch loops := p.loops(); {
	case !loops:
		return "event loop"
	case stuck:
		return "committer"
	}
	return ""
}
