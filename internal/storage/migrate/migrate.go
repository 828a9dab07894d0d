package migrate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of Run. Their texts name devices, and no values.
var (
	// ErrDiffers means that the target has what the source does not have.
	ErrDiffers = errors.New("the target differs from the source")

	// ErrIncomplete means that the run began to write and did not finish. A further run
	// continues it.
	ErrIncomplete = errors.New("the target is incomplete")
)

// A Source is a store that is moved.
type Source interface {
	storage.Store
	storage.Subjects
}

// A Target is a store to which another one is moved.
type Target interface {
	Source

	// Begin is called before the first Append. Until Publish, no node accepts the store.
	Begin() error

	// Publish makes a store that is equal to the source usable, and closes it.
	Publish() error
}

// Options configures Run.
type Options struct {
	From Source // is only read
	To   Target // is closed by Run if that succeeds; opened with the [Definitions] of From

	// Readings is the number of readings in From, counted without its list of devices.
	Readings int64

	// OnProgress is called while readings are compared or copied, with the number of those of
	// the current step so far. May be nil.
	OnProgress func(step Step, readings int64)

	// OnDevice is called for each device, by name, after its records in both stores were found
	// equal. May be nil.
	OnDevice func(Sum)
}

// A Step is a part of a run.
type Step string

// The steps.
const (
	Compare Step = "compare" // what an earlier run has copied
	Copy    Step = "copy"
	Verify  Step = "verify"
)

// A Sum is the contents of a device, in both stores.
type Sum struct {
	Device   vitals.Name
	Readings int64
	SHA256   [sha256.Size]byte // of all records, by time
}

// A Report is the result of Run.
type Report struct {
	Devices     int64
	Readings    int64
	Copied      int64             // readings that this run has written
	Assignments int64             // of devices to subjects
	SHA256      [sha256.Size]byte // of the sums of all devices, by name
}

// Run copies what the target lacks, and compares the stores. ctx ends it between groups.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.OnProgress == nil {
		o.OnProgress = func(Step, int64) {}
	}
	r := &run{Options: o}
	report, err := r.run(ctx)
	if err != nil && r.begun && !errors.Is(err, ErrDiffers) {
		err = fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	return report, err
}

type run struct {
	Options
	begun   bool // Begin was called
	numbers *numbers
}

func (r *run) run(ctx context.Context) (Report, error) {
	var err error
	if r.numbers, err = newNumbers(r.From.Signs(), r.To.Signs()); err != nil {
		return Report{}, err
	}
	report, lacking, err := r.compare(ctx, Compare)
	if err != nil {
		return report, err
	}
	assigned, unassigned, err := r.assignments(ctx, false)
	if err != nil {
		return report, err
	}
	copied := int64(0)
	if lacking != nil || unassigned > 0 {
		if err := r.To.Begin(); err != nil {
			return report, err
		}
		r.begun = true
		if copied, err = r.copy(ctx, lacking); err != nil {
			return report, err
		}
		if _, _, err = r.assignments(ctx, true); err != nil {
			return report, err
		}
		if assigned, unassigned, err = r.assignments(ctx, false); err != nil {
			return report, err
		}
	}
	if lacking != nil || r.OnDevice != nil {
		if report, _, err = r.compare(ctx, Verify); err != nil {
			return report, err
		}
	}
	report.Copied, report.Assignments = copied, assigned
	switch {
	case unassigned > 0:
		return report, fmt.Errorf("%w: it lacks assignments", ErrDiffers)
	case report.Readings != r.Readings:
		return report, fmt.Errorf("%w: the source has %d readings, but those of its devices are %d", storage.ErrCorrupt,
			r.Readings, report.Readings)
	}
	if err := r.alone(ctx); err != nil {
		return report, err
	}
	return report, r.To.Publish()
}

// alone returns an error if another process may have changed one of the stores, or if ctx has
// ended.
func (r *run) alone(ctx context.Context) error {
	for _, s := range []storage.Store{r.From, r.To} {
		if s, ok := s.(interface{ Alone(context.Context) error }); ok {
			if err := s.Alone(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
