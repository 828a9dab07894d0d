package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// subjects keeps the assignments of devices.
type subjects struct{ *reader }

// deviceLock returns the key of the advisory lock under which the assignments of a device are changed. Each node
// looks at all of them before it adds one, so that no two overlap. Devices share few keys: a group may change the
// assignments of thousands of them, and PostgreSQL has memory for some thousands of locks.
func (s *subjects) deviceLock(device *vitals.Name) int64 {
	h := fnv.New64a()
	h.Write([]byte(device.String()))
	return lockKey("assignments", s.opt.Schema) + int64(h.Sum64()%deviceLocks)
}

const deviceLocks = 1024

// Assign implements [storage.Subjects].
func (s *subjects) Assign(ctx context.Context, a storage.Assignment) error {
	err := a.Validate()
	if err == nil {
		err = s.changeAssignments(ctx, &a, func(tx pgx.Tx, all []storage.Assignment) error {
			if exists, err := a.Admit(all); exists || err != nil {
				return err
			}
			return s.put(tx, all, a)
		})
	}
	if err != nil {
		return fmt.Errorf("assign device %s: %w", a.Device, err)
	}
	return nil
}

// EndAssignment implements [storage.Subjects].
func (s *subjects) EndAssignment(ctx context.Context, a storage.Assignment) error {
	err := s.endAssignment(ctx, a)
	if errors.Is(err, storage.ErrNotAssigned) && a.Validate() == nil {
		if failed := (changelog{s.database}).recordAbsent(endedAbsent, &a); failed != nil {
			return fmt.Errorf("end assignment of device %s: %w", a.Device, failed)
		}
		err = s.endAssignment(ctx, a) // it may have come back before it was recorded
	}
	return err
}

func (s *subjects) endAssignment(ctx context.Context, a storage.Assignment) error {
	err := s.changeAssignments(ctx, &a, func(tx pgx.Tx, all []storage.Assignment) error {
		if err := a.AdmitEnd(all); err != nil || slices.ContainsFunc(all, a.Same) {
			return err
		}
		return s.put(tx, all, a)
	})
	if err != nil {
		return fmt.Errorf("end assignment of device %s: %w", a.Device, err)
	}
	return nil
}

// put puts an assignment, and adds the event.
func (s *subjects) put(tx querier, all []storage.Assignment, a storage.Assignment) error {
	events, err := putIn(s.sql, tx, all, a)
	if err == nil {
		err = s.events().add(tx, events...)
	}
	return err
}

// rememberedOthers is the number of assignments before one of which the memory has the ends as well. Another server may
// have set them, and one that is open in its place is in the way of the later ones when they are put back.
const rememberedOthers = 16

// changeAssignments calls change with the assignments of the device of a, the one that it leads to, in a transaction
// that no other change of them overlaps. It may call it again; then the previous attempt was undone, or is among the
// assignments.
func (s *subjects) changeAssignments(ctx context.Context, a *storage.Assignment,
	change func(pgx.Tx, []storage.Assignment) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.calls.RUnlock()
	t := s.try()
	k, err := s.marks.take(t)
	if err != nil {
		return err
	}
	defer s.marks.release(k)
	var refused error
	var e history.Entry
	err = t.run(func(conn *pgx.Conn) error {
		k = s.marks.attempt(k)
		err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			all, err := s.lockAssignments(tx, &a.Device)
			if err != nil {
				return err
			}
			rememberAssignment(&e, a, all)
			if err := change(tx, all); err != nil {
				return err
			}
			e.Generation, err = s.marks.set(tx, s.sql, k)
			return err
		})
		if err == nil {
			err = changelog{s.database}.keepUp(conn, e.Generation)
		}
		refused = nil
		for _, known := range []error{storage.ErrAssigned, storage.ErrNotAssigned, storage.ErrTooManyAssignments,
			storage.ErrPeriod, storage.ErrCorrupt} {
			if errors.Is(err, known) { // the outcome is known: it was rolled back
				refused, err = err, nil
			}
		}
		return err
	})
	if err == nil && refused == nil {
		s.marks.acknowledge(k, e.Generation)
		keeper{s.database}.keep(e, k, nil)
	}
	return cmp.Or(err, refused)
}

// rememberAssignment sets what an entry of the memory has of an assignment that is made or ended. all are those of
// the device.
func rememberAssignment(e *history.Entry, a *storage.Assignment, all []storage.Assignment) {
	e.Assignments = []storage.Assignment{*a}
	for _, b := range all {
		if b.Subject == "" {
			continue
		}
		if b.FromUnixMs == a.FromUnixMs && b.Subject == a.Subject {
			if b.ToUnixMs != a.ToUnixMs { // an earlier attempt may have changed it already
				e.PreviousToMs = b.ToUnixMs
			}
		} else if b.FromUnixMs < a.FromUnixMs {
			e.Assignments = append(e.Assignments, b)
		}
	}
	if n := len(e.Assignments); n > 1+rememberedOthers {
		e.Assignments = slices.Delete(e.Assignments, 1, n-rememberedOthers)
	}
}

// lockAssignments returns the assignments of a device, which nobody else changes until tx ends.
func (s *subjects) lockAssignments(tx querier, device *vitals.Name) ([]storage.Assignment, error) {
	if err := run(tx, "SELECT pg_advisory_xact_lock($1)", s.deviceLock(device)); err != nil {
		return nil, err
	}
	return s.queryAssignments(context.Background(), tx, assignmentsOfDevice, device.String())
}

// Conditions and orders of queryAssignments.
const (
	assignmentsOfDevice  = "WHERE device = $1 ORDER BY from_ms"
	assignmentsOfDevices = "WHERE device = ANY($1) ORDER BY device, from_ms"
	assignmentsOfSubject = "WHERE subject = $1 ORDER BY device, from_ms"
	assignmentsAfter     = "WHERE (device, from_ms) > ($1, $2) ORDER BY device, from_ms LIMIT $3"
)

// queryAssignments returns the assignments that a query finds.
func (s *subjects) queryAssignments(ctx context.Context, q querier, which string,
	args ...any) (all []storage.Assignment, err error) {
	err = s.visitAssignments(ctx, q, func(a *storage.Assignment) { all = append(all, *a) }, which, args...)
	return all, err
}

// visitAssignments calls visit with the assignments that a query finds.
func (s *subjects) visitAssignments(ctx context.Context, q querier, visit func(*storage.Assignment), which string,
	args ...any) error {
	rows, err := q.Query(ctx,
		s.sql.of("SELECT device, subject, from_ms, to_ms, made_by, named_ms, changed_ms FROM SCHEMA.assignments "+which),
		args...)
	if err != nil {
		return err
	}
	var device string
	var a storage.Assignment
	_, err = pgx.ForEachRow(rows, []any{&device, &a.Subject, &a.FromUnixMs, &a.ToUnixMs, &a.By, &a.NamedUnixMs,
		&a.ChangedUnixMs}, func() error {
		if a.Device, err = vitals.ParseName(device); err != nil || a.Validate() != nil {
			return fmt.Errorf("%w: an assignment is not valid", storage.ErrCorrupt)
		}
		visit(&a)
		return nil
	})
	return err
}

// DeviceAssignments implements [storage.Subjects].
func (s *subjects) DeviceAssignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error) {
	all, err := s.readAssignments(ctx, assignmentsOfDevice, device.String())
	return storage.Worn(all), err
}

// VisitAssignments implements [storage.Subjects].
func (s *subjects) VisitAssignments(ctx context.Context, devices []vitals.Name, visit func(*storage.Assignment)) error {
	names := make([]string, len(devices))
	for i := range devices {
		names[i] = devices[i].String()
	}
	err := s.reading(ctx, func(ctx context.Context) error {
		return s.visitAssignments(ctx, s.read, func(a *storage.Assignment) {
			if a.Subject != "" {
				visit(a)
			}
		}, assignmentsOfDevices, names)
	})
	if err != nil {
		return fmt.Errorf("read assignments: %w", err)
	}
	return nil
}

// SubjectAssignments implements [storage.Subjects].
func (s *subjects) SubjectAssignments(ctx context.Context, subject storage.Subject) ([]storage.Assignment, error) {
	if _, err := storage.ParseSubject(string(subject)); err != nil {
		return nil, fmt.Errorf("read assignments: %w", err)
	}
	return s.readAssignments(ctx, assignmentsOfSubject, string(subject))
}

// Assignments implements [storage.Subjects].
func (s *subjects) Assignments(ctx context.Context, after storage.AssignmentKey,
	dst []storage.Assignment) (int, error) {
	all, err := s.readAssignments(ctx, assignmentsAfter, after.Device.String(), after.FromUnixMs, len(dst))
	return copy(dst, all), err
}

func (s *subjects) readAssignments(ctx context.Context, which string, args ...any) (all []storage.Assignment,
	err error) {
	err = s.reading(ctx, func(ctx context.Context) (err error) {
		all, err = s.queryAssignments(ctx, s.read, which, args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read assignments: %w", err)
	}
	return all, nil
}
