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
	files   chan struct{} // has an element while an operation is running, or the scrub has a turn
	mu      sync.Mutex
	// the operation that is running, or waits for the end of the scrub's turn; "" if none; guarded by mu
	what    string
	endTurn context.CancelFunc // ends the scrub's turn; nil if it has none; guarded by mu
}

func newMaintenance() *maintenance {
	m := &maintenance{files: make(chan struct{}, 1)}
	m.ctx, m.end = context.WithCancel(context.Background())
	return m
}

// begin begins the operation what. It returns an error that wraps storage.ErrBusy if another
// one is running, and storage.ErrClosed after close. Otherwise it ends the scrub's turn and
// waits until the scrub has closed its file. The caller must call done at the end of the
// operation, and soon after m.ctx ends.
func (m *maintenance) begin(what string) (done func(), err error) {
	if err := m.enter(what); err != nil {
		return nil, err
	}
	m.files <- struct{}{}
	return func() {
		m.mu.Lock()
		m.what = ""
		m.mu.Unlock()
		<-m.files
		m.running.Done()
	}, nil
}

// enter records the operation, and ends the scrub's turn.
func (m *maintenance) enter(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return storage.ErrClosed
	}
	if m.what != "" {
		return fmt.Errorf("%w: %s is in progress", storage.ErrBusy, m.what)
	}
	m.what = what
	m.running.Add(1)
	if m.endTurn != nil {
		m.endTurn()
	}
	return nil
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

// awaitTurn waits until no operation is running, and then begins a turn of the scrub, in which it may have a
// file open. The turn's context ends with ctx, or when an operation begins, which then waits for done.
func (m *maintenance) awaitTurn(ctx context.Context) (_ context.Context, done func(), err error) {
	select {
	case m.files <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	turn, stop := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endTurn = stop; m.what != "" {
		stop() // an operation waits
	}
	return turn, func() {
		stop()
		m.mu.Lock()
		m.endTurn = nil
		m.mu.Unlock()
		<-m.files
	}, nil
}

// close rejects further operations, and waits for the running ones.
func (m *maintenance) close() {
	m.mu.Lock()
	m.end()
	m.mu.Unlock()
	m.running.Wait()
}
