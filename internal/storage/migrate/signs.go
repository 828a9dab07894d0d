package migrate

import (
	"context"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Definitions returns the definitions of the signs of a user's own in the source, with which the target
// is to be opened. It has the signs that are retired there too, since the source may have values of them.
func Definitions(from *vitals.Signs) (own []vitals.Definition) {
	for _, d := range from.All() {
		if d.Own() {
			own = append(own, *d)
		}
	}
	return own
}

// numbers has the numbers in the target of the source's signs.
type numbers struct {
	of      [vitals.MaxSigns]vitals.Sign
	changed uint32 // bits of the signs that have another number in the target
}

func newNumbers(from, to *vitals.Signs) (*numbers, error) {
	n := &numbers{}
	for sg, d := range from.All() {
		other, known := to.Named(d.Field)
		if !known {
			return nil, fmt.Errorf("the target lacks the definition of the sign %s", d.Field)
		}
		if o := to.Of(other); o.Unit != d.Unit || o.Decimals != d.Decimals {
			return nil, fmt.Errorf("the sign %s is in %s with %d decimals in the source, and in %s with %d in the target",
				d.Field, d.Unit, d.Decimals, o.Unit, o.Decimals)
		}
		if n.of[sg] = other; other != sg {
			n.changed |= 1 << sg
		}
	}
	return n, nil
}

// renumber gives the signs of values the numbers of the target.
func (n *numbers) renumber(values *vitals.Values) {
	if values.Present()&n.changed == 0 {
		return
	}
	var renumbered vitals.Values
	for sg, v := range values.All() {
		renumbered.Set(n.of[sg], v)
	}
	*values = renumbered
}

// sourceRecords reads records of the source, with the target's numbers of signs.
func (r *run) sourceRecords() *records {
	rs := newRecords(source, r.From)
	read := rs.fill
	rs.fill = func(ctx context.Context, last *storage.Record, dst []storage.Record) (int, error) {
		n, err := read(ctx, last, dst)
		for i := range dst[:n] {
			r.numbers.renumber(&dst[i].Values)
		}
		return n, err
	}
	return rs
}
