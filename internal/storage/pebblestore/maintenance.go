package pebblestore

import (
	"context"
	"fmt"
	"sync"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// maintenance lets in one backup or erasure at a time, and the scrub while there is
// neither.
type maintenance struct {
	ctx context.Context // ends when the store is being closed
	end context.CancelFunc

	running sync.WaitGroup
	mu      sync.Mutex
	what    string        // is under way; guarded by mu
	over    chan struct{} // closed when that ends; nil: nothing is under way; guarded by mu
	turn    *scrubTurn    // of the scrub; nil: none; guarded by mu
}

// A scrubTurn is a time in which the scrub may have a file open.
type scrubTurn struct {
	stop context.CancelFunc
	done chan struct{}
}

func newMaintenance() *maintenance {
	m := &maintenance{}
	m.ctx, m.end = context.WithCancel(context.Background())
	return m
}

// begin returns an error that wraps storage.ErrBusy when something is under way, and
// storage.ErrClosed after close. Otherwise it ends the scrub's turn, which has no file open
// any more when begin returns. What begins must call done at its end, and come to that soon
// when m.ctx ends.
func (m *maintenance) begin(what string) (done func(), err error) {
	turn, err := m.enter(what)
	if err != nil {
		return nil, err
	}
	if turn != nil {
		turn.stop()
		<-turn.done
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.what = ""
		close(m.over)
		m.over = nil
		m.running.Done()
	}, nil
}

// enter notes what begins, and returns the scrub's turn, which must end first.
func (m *maintenance) enter(what string) (*scrubTurn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil, storage.ErrClosed
	}
	if m.what != "" {
		return nil, fmt.Errorf("%w: %s is under way", storage.ErrBusy, m.what)
	}
	m.what, m.over = what, make(chan struct{})
	m.running.Add(1)
	return m.turn, nil
}

// join has close wait for leave, unless the store is closed.
func (m *maintenance) join() (leave func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil, false
	}
	m.running.Add(1)
	return m.running.Done, true
}

// awaitTurn waits until nothing is under way, and then gives the scrub a turn. Its context
// ends with ctx and as soon as something wants to begin, which waits for done.
func (m *maintenance) awaitTurn(ctx context.Context) (_ context.Context, done func(), err error) {
	for {
		turn, stop := context.WithCancel(ctx)
		over := m.take(stop)
		if over == nil {
			return turn, m.endTurn, nil
		}
		stop()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// take gives the scrub a turn, or returns what is closed when it may ask again.
func (m *maintenance) take(stop context.CancelFunc) (over <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over == nil {
		m.turn = &scrubTurn{stop, make(chan struct{})}
	}
	return m.over
}

// endTurn ends the turn that there is.
func (m *maintenance) endTurn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn.stop()
	close(m.turn.done)
	m.turn = nil
}

// close lets nothing in any more, and waits for what is under way.
func (m *maintenance) close() {
	m.mu.Lock()
	m.end()
	m.mu.Unlock()
	m.running.Wait()
}
