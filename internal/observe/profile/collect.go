package profile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/pprof/profile"
)

// Bounds of a window. The server takes whole seconds.
const (
	MinWindow = time.Second
	MaxWindow = maxContentionWindow
)

// A Capture is what was fetched from a server. A nil profile was not fetched.
//
// The profiles Allocs, Mutex and Block are differences over the window; Heap and
// Goroutine are of its end.
type Capture struct {
	Target string
	Start  time.Time     // of the window
	Window time.Duration // that was asked for

	Before, After         *Counters
	beforeText, afterText []byte // as the server sent them

	CPU, Allocs, Heap, Goroutine, Mutex, Block *profile.Profile
}

// Collect fetches the profiles and the counters of the server whose admin listener
// is at target, over a window of whole seconds. It takes as long.
//
// It always returns what it has achieved, even beside an error. An error that
// wraps [ErrNotPulsegate] means that the target is something else.
//
// Counters and cumulative profiles are fetched just before and just after the
// window, each set at once; the CPU profile covers the window between. The few
// milliseconds by which their windows differ are accounted for: each profile is
// divided by its own duration (see Analyze).
func Collect(ctx context.Context, target string, window time.Duration) (*Capture, error) {
	capture := &Capture{Target: target, Start: time.Now(), Window: window}
	if window < MinWindow || window > MaxWindow || window%time.Second != 0 {
		return capture, fmt.Errorf("profile: the window is not of 1 to %d whole seconds", MaxWindow/time.Second)
	}
	base, err := ParseTarget(target)
	if err != nil {
		return capture, fmt.Errorf("profile: %w", err)
	}
	capture.Target = base
	c := newClient(base)
	defer c.close()

	// Whoever is not Pulsegate is left alone at once.
	if _, _, err := c.counters(ctx); err != nil {
		return capture, err
	}
	before, errBefore := c.cumulative(ctx)
	capture.Before, capture.beforeText = before.Before, before.beforeText
	if ctx.Err() != nil {
		return capture, errBefore
	}
	capture.Start = time.Now()
	cpu, errWindow := c.window(ctx, window)
	capture.CPU = cpu
	// What is there at the end is worth having even if a part of the window failed,
	// unless nobody waits for it.
	if ctx.Err() != nil {
		return capture, errors.Join(errBefore, errWindow)
	}
	after, errAfter := c.cumulative(ctx)
	capture.After, capture.afterText = after.Before, after.beforeText
	dropMonotonic(capture.Before, capture.After)
	capture.Heap, capture.Goroutine = after.Heap, after.Goroutine
	var errDiff [3]error
	capture.Allocs, errDiff[0] = subtract("heap", before.Heap, after.Heap)
	capture.Allocs = allocations(capture.Allocs)
	capture.Mutex, errDiff[1] = subtract("mutex", before.Mutex, after.Mutex)
	capture.Block, errDiff[2] = subtract("block", before.Block, after.Block)
	return capture, errors.Join(errBefore, errWindow, errAfter, errors.Join(errDiff[:]...))
}

// dropMonotonic makes the times such that they lose nothing when they are saved,
// and keeps the time between them: the wall clock may have been set meanwhile.
func dropMonotonic(before, after *Counters) {
	if before == nil || after == nil {
		return
	}
	between := after.At.Sub(before.At)
	before.At = before.At.Round(0)
	after.At = before.At.Add(between)
}

// cumulative fetches what grows as the server runs, all at once, as the beginning
// of a capture.
func (c *client) cumulative(ctx context.Context) (*Capture, error) {
	now := new(Capture)
	var fetching sync.WaitGroup
	fetches := []struct {
		to   **profile.Profile
		path string
	}{
		// A heap profile is of the last completed collection, so that one is made
		// first: without it the allocations of the last moments were missing.
		{&now.Heap, "/debug/pprof/heap?gc=1"},
		{&now.Mutex, "/debug/pprof/mutex"},
		{&now.Block, "/debug/pprof/block"},
		{&now.Goroutine, "/debug/pprof/goroutine"},
	}
	errs := make([]error, len(fetches)+1)
	for i, f := range fetches {
		fetching.Go(func() { *f.to, errs[i] = c.profile(ctx, f.path, 0) })
	}
	fetching.Go(func() { now.Before, now.beforeText, errs[len(fetches)] = c.counters(ctx) })
	fetching.Wait()
	return now, errors.Join(errs...)
}

// window fetches the CPU profile of a window, in which the server records
// contention too.
func (c *client) window(ctx context.Context, window time.Duration) (*profile.Profile, error) {
	seconds := strconv.Itoa(int(window / time.Second))
	var recording sync.WaitGroup
	var errContention error
	recording.Go(func() {
		_, errContention = c.do(ctx, http.MethodPost, ContentionPath+"?seconds="+seconds, maxShownBytes, window+slack)
	})
	cpu, err := c.profile(ctx, "/debug/pprof/profile?seconds="+seconds, window)
	recording.Wait()
	if errors.Is(errContention, errNoSuchPage) {
		errContention = nil // a server that does not record contention has an empty profile of it
	}
	return cpu, errors.Join(err, errContention)
}

// subtract returns b-a, with the time between as its duration. It returns nil
// without an error if one of them is missing, which has been reported.
func subtract(name string, a, b *profile.Profile) (*profile.Profile, error) {
	if a == nil || b == nil {
		return nil, nil
	}
	start, end := a.TimeNanos, b.TimeNanos
	a = a.Copy()
	a.Scale(-1)
	d, err := profile.Merge([]*profile.Profile{a, b})
	if err != nil {
		return nil, fmt.Errorf("profile: subtract %s profiles: %w", name, err)
	}
	d.TimeNanos, d.DurationNanos = end, end-start
	return d, nil
}

// allocations removes what was in use from the difference of two heap profiles:
// what was in use before a window is nothing to subtract from what is after it.
// The runtime writes the allocations first.
func allocations(p *profile.Profile) *profile.Profile {
	if p == nil || len(p.SampleType) < 2 || p.SampleType[0].Type != "alloc_objects" || p.SampleType[1].Type != "alloc_space" {
		return p
	}
	for _, s := range p.Sample {
		s.Value = s.Value[:2]
	}
	p.SampleType, p.DefaultSampleType = p.SampleType[:2], "alloc_space"
	return p.Compact() // drops the samples that are 0 now
}
