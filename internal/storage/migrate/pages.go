package migrate

import (
	"context"
	"fmt"
	"math"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Sizes of pages.
const (
	pageDevices = 500
	pageRecords = 4096
)

// A cursor reads what a store has of something, in its order and page by page.
type cursor[T any] struct {
	what  string // source or target
	page  []T
	at, n int
	ended bool
	fill  func(ctx context.Context, last *T, dst []T) (int, error) // reads what follows last, nil at first
}

// reset moves to the beginning of what fill now reads.
func (c *cursor[T]) reset() { c.at, c.n, c.ended = 0, 0, false }

// peek returns the next element, or nil. It is valid until the next call after skip.
func (c *cursor[T]) peek(ctx context.Context) (*T, error) {
	if c.at == c.n && !c.ended {
		var last *T
		if c.n > 0 {
			last = &c.page[c.n-1]
		}
		n, err := c.fill(ctx, last, c.page)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.what, err)
		}
		c.at, c.n, c.ended = 0, n, n < len(c.page)
	}
	if c.at == c.n {
		return nil, nil
	}
	return &c.page[c.at], nil
}

func (c *cursor[T]) skip() { c.at++ }

// next is peek and skip.
func (c *cursor[T]) next(ctx context.Context) (*T, error) {
	x, err := c.peek(ctx)
	if x != nil {
		c.at++
	}
	return x, err
}

// Names of the stores in errors.
const (
	source = "source"
	target = "target"
)

// devices reads the devices of a store.
func devices(what string, s storage.Store) *cursor[storage.Device] {
	return &cursor[storage.Device]{what: what, page: make([]storage.Device, pageDevices),
		fill: func(ctx context.Context, last *storage.Device, dst []storage.Device) (int, error) {
			var after vitals.Name
			if last != nil {
				after = last.Name
			}
			return s.Devices(ctx, after, dst)
		}}
}

// records reads the records of the device that start names.
type records struct {
	cursor[storage.Record]
	device vitals.Name
	fromMs int64
}

func newRecords(what string, s storage.Store) *records {
	r := &records{}
	r.cursor = cursor[storage.Record]{what: what, page: make([]storage.Record, pageRecords),
		fill: func(ctx context.Context, last *storage.Record, dst []storage.Record) (int, error) {
			from := r.fromMs
			if last != nil {
				from = last.TimeUnixMs + 1
			}
			return s.Scan(ctx, storage.Range{Device: r.device, FromUnixMs: from, ToUnixMs: math.MaxInt64}, dst)
		}}
	return r
}

// start moves to the first record of a device that is not before fromMs.
func (r *records) start(device *vitals.Name, fromMs int64) {
	r.device, r.fromMs = *device, fromMs
	r.reset()
}

// assigned reads the assignments of a store.
func assigned(what string, s storage.Subjects) *cursor[storage.Assignment] {
	return &cursor[storage.Assignment]{what: what, page: make([]storage.Assignment, pageDevices),
		fill: func(ctx context.Context, last *storage.Assignment, dst []storage.Assignment) (int, error) {
			var after storage.AssignmentKey
			if last != nil {
				after = last.Key()
			}
			return s.Assignments(ctx, after, dst)
		}}
}

// A peeker is a cursor, or reads from one.
type peeker[T any] interface {
	peek(ctx context.Context) (*T, error)
}

// both returns the next elements of the source and the target.
func both[T any](ctx context.Context, from, to peeker[T]) (s, t *T, err error) {
	if s, err = from.peek(ctx); err == nil {
		t, err = to.peek(ctx)
	}
	return s, t, err
}
