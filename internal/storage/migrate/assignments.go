package migrate

import (
	"context"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// assignments compares the assignments of both stores, with the spans of nobody, joined. It returns the number of the
// source's without these spans, and the number of all that the target lacks. If copying, it adds these.
func (r *run) assignments(ctx context.Context, copying bool) (all, lacking int64, err error) {
	from, to := &joined{all: assigned(source, r.From)}, &joined{all: assigned(target, r.To)}
	for {
		s, t, err := both(ctx, from, to)
		if err != nil {
			return all, lacking, err
		}
		switch {
		case s == nil && t == nil:
			return all, lacking, nil
		case s != nil && t != nil && s.Same(*t): // a store may not keep when it was changed
			to.skip()
		case t != nil && (s == nil || compareKeys(t, s) <= 0):
			return all, lacking, fmt.Errorf("%w: it has assignments of the device %s that the source does not have",
				ErrDiffers, t.Device)
		default:
			lacking++
			if copying {
				if err := r.alone(ctx); err != nil {
					return all, lacking, err
				}
				if err := r.To.Assign(ctx, *s); err != nil {
					return all, lacking, fmt.Errorf("write target: %w", err)
				}
			}
		}
		if s.Subject != "" {
			all++
		}
		from.skip()
	}
}

// A joined reads assignments, and joins spans of nobody between which an assignment was erased: one store has joined
// them, and another one will with the next change of the device.
type joined struct {
	all *cursor[storage.Assignment]
	one storage.Assignment
	has bool // one was read, and not skipped
}

func (j *joined) peek(ctx context.Context) (*storage.Assignment, error) {
	if j.has {
		return &j.one, nil
	}
	a, err := j.all.next(ctx)
	if a == nil || err != nil {
		return nil, err
	}
	j.one, j.has = *a, true
	for {
		b, err := j.all.peek(ctx)
		if err != nil {
			return nil, err
		}
		if b == nil || !j.one.Join(b) {
			return &j.one, nil
		}
		j.all.skip()
	}
}

func (j *joined) skip() { j.has = false }

func compareKeys(a, b *storage.Assignment) int {
	x, y := a.Key(), b.Key()
	return x.Compare(&y)
}
