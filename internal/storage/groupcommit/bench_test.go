package groupcommit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// BenchmarkCommit measures the cost of a durable commit without that of its flush. A
// flush that does nothing shows the cost of the hand-over; a flush that takes a
// millisecond shows how callers share it.
func BenchmarkCommit(b *testing.B) {
	for _, flush := range []struct {
		name  string
		takes time.Duration
	}{{"nothing", 0}, {"1ms", time.Millisecond}} {
		for _, callers := range []int{1, 64, 1000} {
			b.Run(fmt.Sprintf("flush=%s/callers=%d", flush.name, callers), func(b *testing.B) {
				benchmarkCommit(b, callers, flush.takes)
			})
		}
	}
}

func benchmarkCommit(b *testing.B, callers int, takes time.Duration) {
	items := 0
	flush := func(group []int) error {
		items += len(group)
		if takes > 0 {
			time.Sleep(takes)
		}
		return nil
	}
	c := groupcommit.New(groupcommit.Options[int]{MaxGroup: 1024}, flush)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		calls := b.N / callers
		if i < b.N%callers {
			calls++
		}
		wg.Go(func() {
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			item := []int{i}
			for range calls {
				if _, err := c.Commit(ctx, item); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	reportGroups(b, c, &items)
}

// reportGroups closes c, checks that it flushed every item, and reports the number of
// flushes per operation.
func reportGroups(b *testing.B, c *groupcommit.Committer[int], flushed *int) {
	b.Helper()
	try(b, c.Close(background))
	if *flushed != b.N {
		b.Fatalf("flushed %d items, want %d", *flushed, b.N)
	}
	b.ReportMetric(float64(c.Stats().Groups)/float64(b.N), "groups/op")
}

// A countingWaiter sends on all whenever want calls have been answered.
type countingWaiter struct {
	want, answered int
	all            chan struct{}
}

func (w *countingWaiter) Done(f groupcommit.Flush) {
	if f.Err != nil {
		panic(f.Err)
	}
	if w.answered++; w.answered == w.want {
		w.answered = 0
		w.all <- struct{}{}
	}
}
