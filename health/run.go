package health

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Start runs the checks in the background until ctx is done or Close is called; then the Health drains, because its
// results are no longer renewed. Start does not wait for the first results. It panics if it is called twice.
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
	owned.Go(func() {
		<-ctx.Done()
		h.Drain()
	})
	if h.onChange != nil {
		owned.Go(func() { h.notify(ctx) })
	}
	go func() {
		owned.Wait()
		close(ended)
	}()
}

// Close drains, stops the checks and waits for them. If ctx is done first, Close
// returns its error with the names of the checks that are still running, because they
// ignore their contexts. Close may be called again to continue waiting.
func (h *Health) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed, h.draining = true, true
	for _, c := range h.checks {
		if c.expiry != nil {
			c.expiry.Stop()
		}
	}
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

// running returns the names of the checks that have not returned.
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

// schedule runs c periodically until ctx is done. It skips runs that were due during a
// long run.
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

// run calls c.Run once and waits for it without a time limit.
//
// Invariant: calls of c.Run do not overlap, because schedule is the only caller.
// TestOverrun checks it.
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
		// Record this even if a result was reported before: a check that hangs has
		// no next run to correct it.
		h.recordLocked(c, ErrOverrun, "")
	})
	err, public := errEnded, ""
	defer func() { // also if Run has ended the goroutine
		late := !deadline.Stop()
		if late {
			<-overrun
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		c.running = false
		// Ignore a late result, which was recorded as ErrOverrun; a result after ctx is
		// done, which proves nothing; and a result older than a reported one.
		if !late && ctx.Err() == nil && pushes == c.pushes {
			h.recordLocked(c, err, public)
		}
	}()
	err, public = call(runCtx, c.Run)
}

// errEnded is the error of a check that ended its goroutine: it is not run again.
var errEnded = errors.New("health: check called runtime.Goexit")

// call returns the result of a check and its public text. A panic is an error.
func call(ctx context.Context, run func(context.Context) error) (err error, public string) {
	defer func() {
		if v := recover(); v != nil {
			err, public = fmt.Errorf("health: check panicked: %v\n%s", v, debug.Stack()), ""
		}
	}()
	err = run(ctx)
	return err, publicText(err)
}

// notify calls OnChange for changes until ctx is done, and then for the remaining ones.
func (h *Health) notify(ctx context.Context) {
	for {
		h.reportChanges()
		select {
		case <-ctx.Done():
			h.reportChanges()
			return
		case <-h.wake:
		}
	}
}

// reportChanges calls OnChange for each check whose outcome has changed since the last
// report.
func (h *Health) reportChanges() {
	for _, c := range h.checks {
		h.mu.Lock()
		changed := c.outcome != c.reported
		c.reported = c.outcome
		err := c.err
		h.mu.Unlock()
		if changed {
			h.onChange(c.Name, err)
		}
	}
}
