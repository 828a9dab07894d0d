package pebblestore

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// A committer makes batches durable, one after another.
type committer struct {
	db    *pebble.DB // replaced by tree.reopen
	alarm *alarm
	stuck atomic.Bool // do not call Pebble again

	// handed is a batch of the sealer for the next commit to take along, or nil. See
	// engine.commitAlong.
	handed atomic.Pointer[handedBatch]

	// committing is held during each commit. A crash may leave any part of what was not
	// synced, and the start takes a record before a later one for damaged: so at most one
	// is being written.
	committing sync.Mutex
}

// A handedBatch is a batch that the sealer has handed over.
type handedBatch struct {
	batch *pebble.Batch
	err   error // of the commit; set before committer.committing is unlocked
}

// commit makes b durable, together with a batch that the sealer has handed over. engine.mu must be held.
func (c *committer) commit(b *pebble.Batch) error {
	c.committing.Lock()
	defer c.committing.Unlock()
	h := c.handed.Swap(nil)
	if h == nil {
		return c.write(b, nil)
	}
	h.err = storage.ErrFailed // if Pebble panics
	h.err = c.write(b, h.batch)
	return h.err
}

// commitAlong makes b durable with the next commit, so that groups do not wait for syncs of the
// sealer. If there is no commit to wait for, it commits b alone. e.mu must not be held.
func (e *engine) commitAlong(b *pebble.Batch) error {
	h := &handedBatch{batch: b}
	e.handed.Store(h)
	e.mu.Lock() // a running Append takes b along, or is already past its commit
	taken := e.handed.Load() != h
	e.mu.Unlock()
	if taken {
		return h.err
	}
	e.committing.Lock()
	defer e.committing.Unlock()
	if e.handed.CompareAndSwap(h, nil) {
		return e.write(b, nil)
	}
	return h.err
}

// write adds what is in along, if it is not nil, to b, and makes b durable. c.committing must be
// held. After an error, Pebble's state in memory may differ from the disk's, so the store fails too.
//
// Batch.Commit would pass an error of the log to Logger.Fatalf, and return nil. Pebble declares
// ApplyNoSyncWait experimental: it does the first half of Commit, and SyncWait the second.
func (c *committer) write(b, along *pebble.Batch) error {
	err := c.guard(func() error {
		if along != nil {
			if err := b.Apply(along, nil); err != nil {
				return err
			}
		}
		if err := c.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
			return err
		}
		return b.SyncWait()
	})
	if err != nil {
		c.alarm.raise(fmt.Sprintf("the log cannot be written: %v", err))
		return c.alarm.reportedErr()
	}
	return nil
}

// guard runs call, which calls Pebble. If Pebble panics, which is a bug, it may never
// release its locks, so the store fails.
func (c *committer) guard(call func() error) error {
	defer func() {
		if p := recover(); p != nil {
			c.stuck.Store(true)
			c.alarm.raise(fmt.Sprintf("panic: %v", p))
			panic(p)
		}
	}()
	return call()
}
