package pgstore

import (
	"sync"

	"github.com/jackc/pgx/v5"
)

// partitions holds the numbers of the partitions that this node knows.
type partitions struct {
	mu    sync.RWMutex
	known map[int64]bool // guarded by mu
}

// forget forgets all partitions: one was dropped.
func (p *partitions) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = nil
}

func (p *partitions) has(n int64) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known[n]
}

func (p *partitions) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[int64]bool{}
	}
	p.known[n] = true
}

// ensurePartitions creates the partitions that the readings of w need.
func (s *Store) ensurePartitions(conn *pgx.Conn, w *work) error {
	last := int64(-1)
	for i := range w.chains {
		n := partitionOf(w.items[w.chains[i].from].e.Reading.TimeUnixMs)
		if n == last || s.partitions.has(n) {
			last = n
			continue
		}
		if err := s.createPartition(conn, n); err != nil {
			return err
		}
		s.partitions.add(n)
		last = n
	}
	return nil
}
