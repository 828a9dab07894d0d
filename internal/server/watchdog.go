package server

import (
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// A pulse says whether the parts of a server go on that nothing else would notice
// to hang: its event loops, and the committer's goroutine.
//
// It does not say that the server is ready, nor that the disk answers. A new start
// does not mend a stalled disk; it would only throw away the requests that wait,
// and start a store on a disk that does not answer. So a committer that waits for
// the disk lives. That a store cannot write is told by readyz, and one that has
// failed ends the process by itself.
type pulse struct {
	loops   func() bool // whether they came round since the last call
	commits func() groupcommit.Stats
	flushes *flushWatch

	last        groupcommit.Stats
	lastFlushes bool
}

func newPulse(s *Server) *pulse {
	p := &pulse{loops: func() bool { return true }, commits: s.core.Commits, flushes: s.flushes}
	if s.lane != nil {
		p.loops = s.lane.Beat
	}
	return p
}

// hangs returns what has not moved since the last call, or nothing. To ask for the
// counters takes the committer's mutex: if that is never free again, hangs does not
// return, which says the same.
func (p *pulse) hangs() string {
	now, flushes := p.commits(), p.flushes.under.Load()
	// Calls wait, none was answered since, and the store is not at it.
	stuck := now.QueuedCalls > 0 && p.last.QueuedCalls > 0 && now.Groups == p.last.Groups && !flushes && !p.lastFlushes
	p.last, p.lastFlushes = now, flushes
	switch loops := p.loops(); {
	case !loops:
		return "event loop"
	case stuck:
		return "committer"
	}
	return ""
}

// A flushWatch knows whether the committer is in the store.
type flushWatch struct {
	next  ingest.Appender
	under atomic.Bool
}

func (f *flushWatch) Append(group []*storage.Entry) error {
	f.under.Store(true)
	defer f.under.Store(false)
	return f.next.Append(group)
}
