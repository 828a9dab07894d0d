package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
)

var errSubjects = errors.New("migrate: only one of the stores keeps assignments of devices to subjects")

// assignments compares the assignments of both stores, and returns the number of the source's
// and of those that the target lacks. If copying, it adds these.
func (r *run) assignments(ctx context.Context, copying bool) (all, lacking int64, err error) {
	source, fromKeeps := r.From.(storage.Subjects)
	target, toKeeps := r.To.(storage.Subjects)
	switch {
	case fromKeeps != toKeeps:
		return 0, 0, errSubjects
	case !fromKeeps:
		return 0, 0, nil
	}
	from, to := assigned{store: source}, assigned{store: target}
	for {
		s, err := from.peek(ctx)
		if err != nil {
			return all, lacking, fmt.Errorf("read source: %w", err)
		}
		t, err := to.peek(ctx)
		if err != nil {
			return all, lacking, fmt.Errorf("read target: %w", err)
		}
		switch {
		case s == nil && t == nil:
			return all, lacking, nil
		case s != nil && t != nil && *s == *t:
			to.skip()
		case t != nil && (s == nil || compareKeys(t, s) <= 0):
			return all, lacking, fmt.Errorf("%w: it has assignments of the device %s that the source does not have", ErrDiffers, t.Device)
		default:
			lacking++
			if copying {
				if err := r.alone(ctx); err != nil {
					return all, lacking, err
				}
				if err := target.Assign(ctx, *s); err != nil {
					return all, lacking, fmt.Errorf("write target: %w", err)
				}
			}
		}
		all++
		from.skip()
	}
}

func compareKeys(a, b *storage.Assignment) int {
	x, y := a.Key(), b.Key()
	return x.Compare(&y)
}

// assigned reads the assignments of a store in their order.
type assigned struct {
	store storage.Subjects
	page  []storage.Assignment
	at, n int
	after storage.AssignmentKey
	ended bool
}

// peek returns the next assignment, or nil. It is valid until the next call after skip.
func (a *assigned) peek(ctx context.Context) (*storage.Assignment, error) {
	if a.at == a.n && !a.ended {
		if a.page == nil {
			a.page = make([]storage.Assignment, pageDevices)
		}
		n, err := a.store.Assignments(ctx, a.after, a.page)
		if err != nil {
			return nil, err
		}
		a.at, a.n, a.ended = 0, n, n < len(a.page)
		if n > 0 {
			a.after = a.page[n-1].Key()
		}
	}
	if a.at == a.n {
		return nil, nil
	}
	return &a.page[a.at], nil
}

func (a *assigned) skip() { a.at++ }
