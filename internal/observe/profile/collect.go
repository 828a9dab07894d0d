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

// A Capture holds the profiles and counters fetched from a server. A nil profile was
// not fetched.
//
// Allocs, Mutex and Block are differences over the window; Heap and Goroutine are
// snapshots at its end.
type Capture struct {
	Target string
	Start  time.Time     // of the window
	Window time.Duration // as requested

	Before, After         *Counters
	beforeText, afterText []byte // as the server sent them

	CPU, Allocs, Heap, Goroutine, Mutex, Block *profile.Profile
}

// Collect fetches the profiles and the counters of the server whose admin listener is
// at target, which [ParseTarget] has returned. It takes the whole window, a number of
// whole seconds from MinWindow to MaxWindow.
//
// It returns what it has fetched even if it also returns an error. An error that wraps
// [ErrNotPulsegate] means that the target is not a Pulsegate server.
//
// Counters and cumulative profiles are fetched concurrently, just before and just after
// the window; the CPU profile covers the window itself. Their windows differ by a few
// milliseconds, so each profile is divided by its own duration; see [Analyze].
func Collect(ctx context.Context, target string, window time.Duration) (*Capture, error) {
	capture := &Capture{Target: target, Start: time.Now(), Window: window}
	c := newClient(target)
	defer c.close()

	// Check that the target is Pulsegate before anything else.
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
	// Fetch the rest even if a part of the window failed, unless ctx is done.
	if ctx.Err() != nil {
		return capture, errors.Join(errBefore, errWindow)
	}
	after, errAfter := c.cumulative(ctx)
	capture.After, capture.afterText = after.Before, after.beforeText
	capture.Heap, capture.Goroutine = after.Heap, after.Goroutine
	var errDiff [3]error
	capture.Allocs, errDiff[0] = subtract("heap", before.Heap, after.Heap)
	capture.Allocs = allocations(capture.Allocs)
	capture.Mutex, errDiff[1] = subtract("mutex", before.Mutex, after.Mutex)
	capture.Block, errDiff[2] = subtract("block", before.Block, after.Block)
	return capture, errors.Join(errBefore, errWindow, errAfter, errors.Join(errDiff[:]...))
}

// cumulative concurrently fetches the counters and the cumulative profiles. It returns
// them as a Capture with only Before set.
func (c *client) cumulative(ctx context.Context) (*Capture, error) {
	now := new(Capture)
	var fetching sync.WaitGroup
	fetches := []struct {
		to   **profile.Profile
		path string
	}{
		// A heap profile covers allocations up to the last completed garbage
		// collection, so force one first.
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

// window fetches the CPU profile of a window, during which the server also records
// contention.
func (c *client) window(ctx context.Context, window time.Duration) (*profile.Profile, error) {
	seconds := strconv.Itoa(int(window / time.Second))
	var recording sync.WaitGroup
	var errContention error
	recording.Go(func() {
		_, errContention = c.do(ctx, http.MethodPost, ContentionPath+"?seconds="+seconds, window+slack)
	})
	cpu, err := c.profile(ctx, "/debug/pprof/profile?seconds="+seconds, window)
	recording.Wait()
	return cpu, errors.Join(err, errContention)
}

// subtract returns b-a, with the time between them as its duration. It returns nil, nil
// if one of them is missing, because that was already reported.
func subtract(name string, a, b *profile.Profile) (*profile.Profile, error) {
	if a == nil || b == nil {
		return nil, nil
	}
	start, end := a.TimeNanos, b.TimeNanos
	a = a.Copy()
	a.Scale(-1)
	d, err := profile.Merge([]*profile.Profile{a, b})
	if err != nil {
		return nil, fmt.Errorf("subtract %s profiles: %w", name, err)
	}
	d.TimeNanos, d.DurationNanos = end, end-start
	return d, nil
}

// allocations removes the sample types for memory in use from the difference of two
// heap profiles, for which a difference makes no sense. The runtime writes the
// allocation types first.
func allocations(p *profile.Profile) *profile.Profile {
	if p == nil || len(p.SampleType) < 2 || p.SampleType[0].Type != "alloc_objects" ||
		p.SampleType[1].Type != "alloc_space" {
		return p
	}
	for _, s := range p.Sample {
		s.Value = s.Value[:2]
	}
	p.SampleType, p.DefaultSampleType = p.SampleType[:2], "alloc_space"
	return p.Compact() // drops samples that are now 0
}
