package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An assigner is a store whose assignments can be listed.
type assigner interface {
	storage.Subjects

	// AssignedDevices fills dst with the first devices with assignments whose names sort after
	// the name after, and returns their number. Devices need not have readings. A number below
	// len(dst) means that there are no more.
	AssignedDevices(ctx context.Context, after vitals.Name, dst []vitals.Name) (int, error)
}

var errNoAssigner = errors.New("migrate: the assignments of devices to subjects cannot be moved between these stores")

// assignments compares the assignments of both stores, and returns the number of the source's
// and of those that the target lacks. If copying, it adds these.
func (r *run) assignments(ctx context.Context, copying bool) (all, lacking int64, err error) {
	_, fromKeeps := r.From.(storage.Subjects)
	_, toKeeps := r.To.(storage.Subjects)
	from, fromOK := r.From.(assigner)
	to, toOK := r.To.(assigner)
	switch {
	case !fromKeeps && !toKeeps:
		return 0, 0, nil
	case fromKeeps != fromOK, toKeeps != toOK, fromOK != toOK:
		return 0, 0, errNoAssigner
	}
	err = eachAssigned(ctx, from, func(device vitals.Name, source []storage.Assignment) error {
		target, err := to.DeviceAssignments(ctx, device)
		if err != nil {
			return fmt.Errorf("read target: %w", err)
		}
		all += int64(len(source))
		for _, a := range source {
			if slices.Contains(target, a) {
				continue
			}
			lacking++
			if !copying {
				continue
			}
			if err := r.alone(ctx); err != nil {
				return err
			}
			if err := to.Assign(ctx, a); err != nil {
				return fmt.Errorf("write target: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return all, lacking, err
	}
	return all, lacking, eachAssigned(ctx, to, func(device vitals.Name, target []storage.Assignment) error {
		source, err := from.DeviceAssignments(ctx, device)
		if err != nil {
			return fmt.Errorf("read source: %w", err)
		}
		for _, a := range target {
			if !slices.Contains(source, a) {
				return fmt.Errorf("%w: it has assignments of the device %s that the source does not have", ErrDiffers, device)
			}
		}
		return nil
	})
}

// eachAssigned calls do with all assignments of each device.
func eachAssigned(ctx context.Context, s assigner, do func(vitals.Name, []storage.Assignment) error) error {
	page := make([]vitals.Name, pageDevices)
	for after := (vitals.Name{}); ; {
		n, err := s.AssignedDevices(ctx, after, page)
		if err != nil {
			return fmt.Errorf("list assignments: %w", err)
		}
		for _, device := range page[:n] {
			all, err := s.DeviceAssignments(ctx, device)
			if err != nil {
				return fmt.Errorf("list assignments: %w", err)
			}
			if err := do(device, all); err != nil {
				return err
			}
		}
		if n < len(page) {
			return nil
		}
		after = page[n-1]
	}
}
