package server

import "github.com/pulsegate/pulsegate/internal/storage/groupcommit"

// A pulse reports whether those parts of a server make progress that nothing else would
// notice to hang: its event loops, and the committer's goroutine.
//
// It does not report that the server is ready, nor that the disk answers. A new start
// does not mend a stalled disk; it would only throw away the requests that wait,
// and start a store on a disk that does not answer. So a committer that waits for
// the disk lives. That a store cannot write is shown by readyz, and one that has
// failed ends the process by itself.
type pulse struct {
	loops   func() bool // whether they came round since the last call
	commits func() groupcommit.Stats

	last groupcommit.Stats
}

func newPulse(s *server) *pulse {
	p := &pulse{loops: func() bool { return true }, commits: s.core.Commits}
	if s.lane != nil {
		p.loops = s.lane.Beat
	}
	return p
}

// hangs returns what has not moved since the last call, or nothing. To ask for the
// counters takes the committer's mutex: if that is never free again, hangs does not
// return, which stops the watchdog as well.
func (p *pulse) hangs() string {
	now := p.commits()
	// Calls wait, none was answered since, and the store is not at it.
	stuck := now.QueuedCalls > 0 && p.last.QueuedCalls > 0 && now.Groups == p.last.Groups && !now.Flushing && !p.last.Flushing
	p.last = now
	switch loops := p.loops(); {
	case !loops:
		return "event loop"
	case stuck:
		return "committer"
	}
	return ""
}
