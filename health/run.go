package health

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Start runs the checks in the background until ctx ends or Close is called. It
// does not wait for their first results. It panics if it is called twice.
func (h *Health) Start(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started {
		panic("health: Start called twice")
	}
	h.started = true
	if h.closed {
		return
	}
	var owned sync.WaitGroup
	ended := make(chan struct{})
	ctx, h.cancel = context.WithCancel(ctx)
	h.ended = ended
	for _, c := range h.checks {
		if c.Run != nil {
			owned.Go(func() { h.schedule(ctx, c) })
		}
	}
	if h.onChange != nil {
		owned.Go(func() { h.notify(ctx) })
	}
	go func() {
		owned.Wait()
		close(ended)
	}()
}

// Close drains, stops the checks and waits for them. If ctx ends first, its error
// is returned together with the names of the checks that are still running, which
// do not watch their own contexts. Close may be called again, to wait on.
func (h *Health) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed, h.draining = true, true
	h.publishLocked()
	cancel, ended := h.cancel, h.ended
	h.mu.Unlock()
	if ended == nil {
		return nil // never started
	}
	cancel()

	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	if names := h.running(); len(names) > 0 {
		return fmt.Errorf("close health: still running: %s: %w", strings.Join(names, ", "), ctx.Err())
	}
	select {
	case <-ended:
		return nil
	default:
		return fmt.Errorf("close health: %w", ctx.Err())
	}
}

// running returns the names of the checks that have not come back.
func (h *Health) running() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.checks {
		if c.running {
			names = append(names, c.Name)
		}
	}
	return names
}

// schedule runs c until ctx ends. Points of the schedule that a long run has
// missed are left out.
func (h *Health) schedule(ctx context.Context, c *check) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		start := time.Now()
		h.run(ctx, c)
		timer.Reset(c.Every - time.Since(start)%c.Every)
	}
}

// run calls c.Run once and waits for it, however long it takes.
//
// Invariant: c.Run is not called while an earlier call has not returned, since
// schedule is the only caller (TestOverrun).
func (h *Health) run(ctx context.Context, c *check) {
	h.mu.Lock()
	c.running = true
	pushes := c.pushes
	h.mu.Unlock()

	runCtx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	overrun := make(chan struct{})
	deadline := time.AfterFunc(c.Timeout, func() {
		defer close(overrun)
		h.mu.Lock()
		defer h.mu.Unlock()
		// This counts even if a result was pushed in the meantime: a check that
		// hangs has no next run to correct it.
		h.settleLocked(c, ErrOverrun)
	})
	err := c.Run(runCtx)
	late := !deadline.Stop()
	if late {
		<-overrun
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	c.running = false
	// A result that came late has been settled; one that was cut short by the
	// end of ctx says nothing; one that is older than a pushed one is out of date.
	if !late && ctx.Err() == nil && pushes == c.pushes {
		h.settleLocked(c, err)
	}
}

// notify calls OnChange until ctx ends, and then for what is left.
func (h *Health) notify(ctx context.Context) {
	for {
		h.tell()
		select {
		case <-ctx.Done():
			h.tell()
			return
		case <-h.wake:
		}
	}
}

// tell calls OnChange for each check of which it does not know the outcome.
func (h *Health) tell() {
	for _, c := range h.checks {
		h.mu.Lock()
		changed := c.outcome != c.told
		c.told = c.outcome
		err := c.err
		h.mu.Unlock()
		if changed {
			h.onChange(c.Name, err)
		}
	}
}
