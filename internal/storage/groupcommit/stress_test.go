package groupcommit_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// TestStress lets 64 callers commit, cancel, submit and read Stats in real time, until
// one of them closes the committer. Every item that was answered with nil must have
// been flushed. Run it with the race detector.
//
// It was seen to hang when an abandoned call was reused, a call answered twice, a
// wake-up lost or the queue dropped at Close.
func TestStress(t *testing.T) {
	const (
		callers  = 64
		rounds   = 300
		maxGroup = 50
	)
	var flushed [callers * rounds]bool // written by flush only
	var inFlush atomic.Int32
	c := groupcommit.New(groupcommit.Options[int]{MaxGroup: maxGroup}, func(group []int) error {
		if inFlush.Add(1) != 1 {
			t.Error("flush was called concurrently")
		}
		runtime.Gosched()
		for _, item := range group {
			if flushed[item] {
				t.Errorf("item %d was flushed twice", item)
			}
			flushed[item] = true
		}
		inFlush.Add(-1)
		return nil
	})

	var answered [callers * rounds]bool
	var canceled, closed atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for round := range rounds {
				item := caller*rounds + round
				ctx, cancel := context.WithCancel(background)
				if round%7 == 0 {
					go cancel()
				}
				var err error
				if round%3 == 0 {
					answer := make(chan error, 1)
					err = c.Submit([]int{item}, waiterFunc(func(f groupcommit.Flush) { answer <- f.Err }))
					if err == nil {
						err = <-answer
					}
				} else {
					_, err = c.Commit(ctx, []int{item})
				}
				cancel()
				switch {
				case err == nil:
					answered[item] = true
				case errors.Is(err, groupcommit.ErrClosed):
					closed.Add(1)
				case errors.Is(err, context.Canceled):
					canceled.Add(1)
				default:
					t.Errorf("item %d: got %v", item, err)
				}
				if st := c.Stats(); st.QueuedItems > callers*rounds || st.QueuedCalls > st.QueuedItems {
					t.Errorf("Stats: got %+v", st)
				}
				if caller == 0 && round == rounds*9/10 {
					if err := c.Close(background); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := c.Close(background); err != nil {
		t.Errorf("Close: %v", err)
	}
	safe := 0
	for item, ok := range answered {
		if ok {
			safe++
			if !flushed[item] {
				t.Errorf("item %d was answered with nil but not flushed", item)
			}
		}
	}
	st := c.Stats()
	t.Logf("%d safe, %d canceled, %d closed, %d groups", safe, canceled.Load(), closed.Load(), st.Groups)
	if safe == 0 || closed.Load() == 0 {
		t.Error("want calls that were flushed and calls after Close")
	}
	if st.QueuedItems != 0 || st.Flushing {
		t.Errorf("Stats: got %+v, want nothing queued", st)
	}
}
