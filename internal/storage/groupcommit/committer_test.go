package groupcommit_test

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// background is the context of calls that are not canceled.
var background = context.Background()

func newCommitter(t *testing.T, cfg groupcommit.Options[int], flush func([]int) error) *groupcommit.Committer[int] {
	t.Helper()
	c := groupcommit.New(cfg, flush)
	t.Cleanup(func() { c.Close(background) })
	return c
}

func flushNothing([]int) error { return nil }

func TestCloseReturnsWhenContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := groupcommit.New(groupcommit.Options[int]{MaxGroup: 1}, func([]int) error {
			<-release
			return nil
		})
		answer := make(chan error, 1)
		go func() { _, err := c.Commit(background, []int{1}); answer <- err }()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: got %v, want the context's error", err)
		}
		if _, err := c.Commit(background, []int{2}); !errors.Is(err, groupcommit.ErrClosed) {
			t.Errorf("Commit after Close: got %v, want ErrClosed", err)
		}
		close(release)
		if err := c.Close(background); err != nil {
			t.Errorf("second Close: got %v, want nil", err)
		}
		if err := <-answer; err != nil {
			t.Errorf("Commit before Close: got %v, want nil", err)
		}
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close of a closed committer with a ctx that has ended: got %v, want nil", err)
		}
	})
}

// TestRejections lists the calls that are rejected immediately, and those without
// items, which always succeed.
func TestRejections(t *testing.T) {
	ended, cancel := context.WithCancel(background)
	cancel()
	open := newCommitter(t, groupcommit.Options[int]{MaxGroup: 2}, flushNothing)
	closed := newCommitter(t, groupcommit.Options[int]{MaxGroup: 2}, flushNothing)
	try(t, closed.Close(background))
	for _, tt := range []struct {
		name  string
		c     *groupcommit.Committer[int]
		ctx   context.Context
		items []int
		want  error
	}{
		{"no items", open, background, nil, nil},
		{"no items, canceled", open, ended, []int{}, nil},
		{"no items, closed", closed, background, nil, nil},
		{"canceled", open, ended, []int{1}, context.Canceled},
		{"canceled, closed", closed, ended, []int{1}, context.Canceled},
		{"too large", open, background, []int{1, 2, 3}, groupcommit.ErrTooLarge},
		{"too large, closed", closed, background, []int{1, 2, 3}, groupcommit.ErrTooLarge},
		{"closed", closed, background, []int{1}, groupcommit.ErrClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.c.Commit(tt.ctx, tt.items)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if err != nil && !errors.Is(err, groupcommit.ErrNotWritten) {
				t.Errorf("got %v, want an error that wraps ErrNotWritten", err)
			}
		})
	}
	if got := open.Stats(); got != (groupcommit.Stats{}) {
		t.Errorf("Stats after rejections: got %+v, want zeros", got)
	}
}

func TestPanicErrorNamesNoValue(t *testing.T) {
	const secret = "systolic 121"
	for _, tt := range []struct {
		name  string
		flush func([]int) error
		want  string
	}{
		{"string", func([]int) error { panic(secret) }, "groupcommit: flush panicked with a value of type string"},
		{"error", func([]int) error { panic(errors.New(secret)) },
			"groupcommit: flush panicked with a value of type *errors.errorString"},
		{"runtime error", func(g []int) error { return []error{nil}[len(g)] },
			"groupcommit: flush panicked: runtime error: index out of range [1] with length 1"},
		{"nil", func([]int) error { panic(nil) }, "groupcommit: flush panicked: panic called with nil argument"},
		{"Goexit", func([]int) error { runtime.Goexit(); return nil }, "groupcommit: flush ended its goroutine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCommitter(t, groupcommit.Options[int]{MaxGroup: 1}, tt.flush)
			_, err := c.Commit(background, []int{1})
			p, ok := errors.AsType[*groupcommit.PanicError](err)
			if !ok || errors.Is(err, groupcommit.ErrNotWritten) {
				t.Fatalf("Commit: got %v, want a PanicError without ErrNotWritten", err)
			}
			if got := p.Error(); got != tt.want {
				t.Errorf("text: got %q, want %q", got, tt.want)
			}
			if !strings.Contains(string(p.Stack), "TestPanicErrorNamesNoValue") {
				t.Errorf("the stack does not show the flush:\n%s", p.Stack)
			}
			_, later := c.Commit(background, []int{2})
			if q, _ := errors.AsType[*groupcommit.PanicError](later); q != p || !errors.Is(later, groupcommit.ErrNotWritten) {
				t.Errorf("later Commit: got %v, want ErrNotWritten with the same PanicError", later)
			}
			if strings.Contains(err.Error()+later.Error(), secret) {
				t.Errorf("texts %q and %q show the panic's value", err, later)
			}
			if err := c.Close(background); err != error(p) {
				t.Errorf("Close: got %v, want the same PanicError", err)
			}
		})
	}
}

// TestGroupsAreBounded repeatedly queues the same number of items, in calls of the
// sizes that need the most groups.
//
// It was seen to fail when used groups were not kept, and when each group was a
// new one.
func TestGroupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxGroup, queued = 10, 100
		c := groupcommit.New(groupcommit.Options[int]{MaxGroup: maxGroup}, func([]int) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		madeFirst := 0
		for round := range 20 {
			for _, size := range []int{10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 1} {
				try(t, c.Submit(make([]int, size), waiterFunc(func(groupcommit.Flush) {})))
			}
			if got := c.Stats().QueuedItems; got != queued {
				t.Errorf("%d items are queued, want %d", got, queued)
			}
			time.Sleep(time.Second)
			groups, places := c.FreeGroups()
			if limit := 2*queued/maxGroup + 3; groups < 1 || groups > limit {
				t.Errorf("round %d: %d groups are kept, want 1 to %d", round, groups, limit)
			}
			if round == 0 {
				madeFirst = groups
			}
			if groups != madeFirst {
				t.Errorf("round %d: %d groups are kept, %d after the first round", round, groups, madeFirst)
			}
			if places > 2*maxGroup {
				t.Errorf("round %d: a group has %d places, want at most %d", round, places, 2*maxGroup)
			}
		}
		try(t, c.Close(background))
	})
}

// TestFlushes compares the Flush that OnFlush, a Waiter and Commit receive, and the
// order in which they do.
//
// It was seen to fail when OnFlush was called after the answers, and when the times
// were taken around the answers.
func TestFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		failure := errors.New("disk")
		var observed []groupcommit.Flush
		var groups [][]int
		c := groupcommit.New(groupcommit.Options[int]{
			MaxGroup: 5,
			OnFlush: func(f groupcommit.Flush, group []int) {
				groups = append(groups, slices.Clone(group))
				observed = append(observed, f)
				time.Sleep(time.Second)
			},
		}, func(group []int) error {
			time.Sleep(time.Duration(group[0]) * time.Millisecond)
			if group[0] == 2 {
				return failure
			}
			return nil
		})
		flush := func(after, took time.Duration, items int, err error) groupcommit.Flush {
			return groupcommit.Flush{Start: start.Add(after), End: start.Add(after + took), Items: items, Err: err}
		}
		want := []groupcommit.Flush{
			flush(0, 3*time.Millisecond, 2, nil),
			flush(time.Second+3*time.Millisecond, 2*time.Millisecond, 3, failure),
		}
		if got, err := c.Commit(background, []int{3, 3}); got != want[0] || err != nil {
			t.Errorf("Commit: got %+v, %v; want %+v", got, err, want[0])
		}
		answer := make(chan groupcommit.Flush, 1)
		try(t, c.Submit([]int{2, 2, 2}, waiterFunc(func(f groupcommit.Flush) { answer <- f })))
		synctest.Wait()
		if !c.Stats().Flushing {
			t.Error("Stats: Flushing is false during a flush")
		}
		if got := <-answer; got != want[1] {
			t.Errorf("Waiter: got %+v, want %+v", got, want[1])
		}
		if !slices.Equal(observed, want) {
			t.Errorf("OnFlush: got %+v, want %+v", observed, want)
		}
		if want := [][]int{{3, 3}, {2, 2, 2}}; !reflect.DeepEqual(groups, want) {
			t.Errorf("OnFlush: got the groups %v, want %v", groups, want)
		}
		try(t, c.Close(background))
	})
}

var try = polltest.Try
