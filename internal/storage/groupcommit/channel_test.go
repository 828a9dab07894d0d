package groupcommit_test

import (
	"context"
	"runtime"
	"sync"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// A channelCommitter is the rejected design with a channel of calls, kept for
// BenchmarkCommit. It does only what the comparison needs: Close must not be called
// concurrently with Commit, and a panic of flush is not handled.
type channelCommitter struct {
	flush    func([]int) error
	maxGroup int
	calls    chan *channelCall
	pool     sync.Pool
	done     chan struct{}
	groups   uint64
}

type channelCall struct {
	items  []int
	answer chan error
}

func newChannelCommitter(maxGroup, maxQueued int, flush func([]int) error) *channelCommitter {
	c := &channelCommitter{
		flush:    flush,
		maxGroup: maxGroup,
		calls:    make(chan *channelCall, maxQueued),
		done:     make(chan struct{}),
	}
	c.pool.New = func() any { return &channelCall{answer: make(chan error, 1)} }
	go c.run()
	return c
}

func (c *channelCommitter) Commit(ctx context.Context, items []int) (groupcommit.Flush, error) {
	w := c.pool.Get().(*channelCall)
	w.items = items
	c.calls <- w
	select {
	case err := <-w.answer:
		c.pool.Put(w)
		return groupcommit.Flush{}, err
	case <-ctx.Done():
		return groupcommit.Flush{}, ctx.Err()
	}
}

func (c *channelCommitter) run() {
	defer close(c.done)
	var group []int
	var waiting []*channelCall
	for w := range c.calls {
		for w != nil {
			group = append(group, w.items...)
			waiting = append(waiting, w)
			w = nil
			// Every call has one item, so the next call always fits.
			if len(group) < c.maxGroup {
				select {
				case w = <-c.calls:
				default:
				}
			}
		}
		err := c.flush(group)
		c.groups++
		group = group[:0]
		for i, w := range waiting {
			waiting[i], w.items = nil, nil
			w.answer <- err
		}
		waiting = waiting[:0]
		runtime.Gosched()
	}
}

func (c *channelCommitter) Close(context.Context) error {
	close(c.calls)
	<-c.done
	return nil
}

func (c *channelCommitter) Stats() groupcommit.Stats { return groupcommit.Stats{Groups: c.groups} }
