package pebblestore

import (
	"context"
	"fmt"
	"sync"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// maintenance lets in one backup or erasure at a time.
type maintenance struct {
	ctx context.Context // ends when the store is being closed
	end context.CancelFunc

	running sync.WaitGroup
	mu      sync.Mutex
	what    string // is under way; guarded by mu
}

func newMaintenance() *maintenance {
	m := &maintenance{}
	m.ctx, m.end = context.WithCancel(context.Background())
	return m
}

// begin returns an error that wraps storage.ErrBusy when something is under way, and
// storage.ErrClosed after close. Otherwise what begins must call done at its end, and
// come to that soon when m.ctx ends.
func (m *maintenance) begin(what string) (done func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil, storage.ErrClosed
	}
	if m.what != "" {
		return nil, fmt.Errorf("%w: %s is under way", storage.ErrBusy, m.what)
	}
	m.what = what
	m.running.Add(1)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.what = ""
		m.running.Done()
	}, nil
}

// close lets nothing in any more, and waits for what is under way.
func (m *maintenance) close() {
	m.mu.Lock()
	m.end()
	m.mu.Unlock()
	m.running.Wait()
}
