package pebblestore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// maintenance admits one backup or erasure at a time, and the scrub while there is
// neither.
type maintenance struct {
	ctx context.Context // ends when the store is being closed
	end context.CancelFunc

	running sync.WaitGroup
	mu      sync.Mutex
	what    string        // the running operation, "" if none; guarded by mu
	over    chan struct{} // closed when the operation ends; nil means none is running; guarded by mu
	turn    *scrubTurn    // the scrub's turn, or nil; guarded by mu
}

// A scrubTurn is a period in which the scrub may have a file open.
type scrubTurn struct {
	stop context.CancelFunc
	done chan struct{}
}

func newMaintenance() *maintenance {
	m := &maintenance{}
	m.ctx, m.end = context.WithCancel(context.Background())
	return m
}

// begin begins the operation what. It returns an error that wraps storage.ErrBusy if another
// one is running, and storage.ErrClosed after close. Otherwise it ends the scrub's turn and
// waits until the scrub has closed its file. The caller must call done at the end of the
// operation, and soon after m.ctx ends.
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

// enter records the operation, and returns the scrub's turn, which must end first.
func (m *maintenance) enter(what string) (*scrubTurn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil, storage.ErrClosed
	}
	if m.what != "" {
		return nil, fmt.Errorf("%w: %s is in progress", storage.ErrBusy, m.what)
	}
	m.what, m.over = what, make(chan struct{})
	m.running.Add(1)
	return m.turn, nil
}

// join makes close wait until leave is called. It returns false after close.
func (m *maintenance) join() (leave func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil, false
	}
	m.running.Add(1)
	return m.running.Done, true
}

// during begins work in the background. The context that it returns ends with ctx, and when the store
// is being closed; close then waits for end. It returns false after close.
func (m *maintenance) during(ctx context.Context) (_ context.Context, end func(), ok bool) {
	leave, ok := m.join()
	if !ok {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(m.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		leave()
	}, true
}

// sleep waits for d, or until ctx ends, and then returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitTurn waits until no operation is running, and then begins a turn of the scrub. The
// turn's context ends with ctx, or when an operation begins, which then waits for done.
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

// take begins a turn of the scrub, or returns a channel that is closed at the end of the
// running operation.
func (m *maintenance) take(stop context.CancelFunc) (over <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over == nil {
		m.turn = &scrubTurn{stop, make(chan struct{})}
	}
	return m.over
}

// endTurn ends the scrub's turn.
func (m *maintenance) endTurn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn.stop()
	close(m.turn.done)
	m.turn = nil
}

// close rejects further operations, and waits for the running ones.
func (m *maintenance) close() {
	m.mu.Lock()
	m.end()
	m.mu.Unlock()
	m.running.Wait()
}
