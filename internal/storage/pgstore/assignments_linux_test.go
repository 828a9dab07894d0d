package pgstore_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// The erasure of an assignment that cannot be recorded is unfinished: the assignment stays until
// repeating it has recorded it. Readings beside it stay.
func TestEraseAssignmentRecorded(t *testing.T) {
	server := sharedServer(t)
	s := open(t, options(server))
	ctx := context.Background()
	device := reading("d", 1, 1).Reading.Device
	try(t, s.Append([]*storage.Entry{reading("d", 9, 1), reading("d", 10, 1), reading("d", 19, 1), reading("d", 20, 1)}))
	a := storage.Assignment{Device: device, Subject: "P", FromUnixMs: 10, ToUnixMs: 20}
	try(t, s.Assign(ctx, a))
	failed := errors.New("the disk of the audit log is full")
	want := storage.Erasure{Device: device, Readings: 2, Subject: "P", FromUnixMs: 10, ToUnixMs: 20}
	got, err := s.EraseAssignmentRecorded(a, func(e storage.Erasure) error { return failed })
	if !errors.Is(err, storage.ErrUnfinished) || !errors.Is(err, failed) || got != want {
		t.Errorf("with a record that fails: %+v, %v", got, err)
	}
	if all, err := s.SubjectAssignments(ctx, "P"); err != nil || len(all) != 1 {
		t.Errorf("meanwhile: %v, %v", all, err)
	}
	calls := 0
	got, err = s.EraseAssignmentRecorded(a, func(storage.Erasure) error { calls++; return nil })
	if err != nil || got.Readings != 0 || calls != 1 {
		t.Errorf("repeated: %+v, %v, recorded %d times", got, err, calls)
	}
	if _, err := s.EraseAssignmentRecorded(a, func(storage.Erasure) error { calls++; return nil }); !errors.Is(err,
		storage.ErrNotAssigned) || calls != 1 {
		t.Errorf("after the erasure: %v, recorded %d times", err, calls)
	}
	page := make([]storage.Record, 9)
	if n, err := s.Scan(ctx, storage.Range{Device: device, ToUnixMs: 100}, page); err != nil || n != 2 ||
		page[0].TimeUnixMs != 9 || page[1].TimeUnixMs != 20 {
		t.Errorf("%v are left, %v", page[:n], err)
	}
}

// TestRepairAssignments puts assignments and their ends back.
func TestRepairAssignments(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	s := open(t, r.opt)
	ctx := context.Background()
	a := assignment("worn", "S-1", 10, math.MaxInt64)
	try(t, s.Assign(ctx, a))
	earlier := r.backup(t)
	for _, toMs := range []int64{30, 20} {
		a.ToUnixMs = toMs
		try(t, s.EndAssignment(ctx, a))
	}
	b := assignment("worn", "S-2", 20, 40)
	try(t, s.Assign(ctx, b))
	r.restore(t, earlier)
	awaitRepairs(t, s, 1)
	if all, err := s.DeviceAssignments(ctx, a.Device); err != nil || !slices.Equal(all, []storage.Assignment{a, b}) {
		t.Errorf("the assignments after the repair are %v, %v, want %v", all, err, []storage.Assignment{a, b})
	}
	mustNotLose(t, s)
	if n := metric(t, s, "pulsegate_postgres_contradicted_total", ""); n != 0 {
		t.Errorf("%v contradictions, want none", n)
	}
}

// TestRepairSharedAssignments lets two servers put back assignments that one has made and the other one ended, in both
// orders.
func TestRepairSharedAssignments(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"a", "b"} {
		t.Run("first "+first, func(t *testing.T) {
			t.Parallel()
			r := startReturning(t)
			a := open(t, r.opt)
			var there atomic.Value // the address for b
			there.Store(r.now.Addr())
			opt := r.opt
			opt.DSN = strings.Replace(r.now.DSN(), r.now.Addr(),
				r.sockets.Forward(t, func() string { return there.Load().(string) }), 1)
			b := open(t, opt)
			earlier := r.backup(t)
			ctx := context.Background()
			made := func(s *pgstore.Store, device, subject string, fromMs, toMs int64) {
				t.Helper()
				try(t, s.Assign(ctx, assignment(device, subject, fromMs, toMs)))
			}
			ended := func(s *pgstore.Store, device, subject string, fromMs, toMs int64) {
				t.Helper()
				try(t, s.EndAssignment(ctx, assignment(device, subject, fromMs, toMs)))
			}
			want := map[string][]storage.Assignment{}
			made(a, "ended", "S-1", 10, math.MaxInt64)
			ended(b, "ended", "S-1", 10, 30)
			want["ended"] = []storage.Assignment{assignment("ended", "S-1", 10, 30)}

			made(a, "handed", "S-1", 10, math.MaxInt64) // on to the next patients
			ended(b, "handed", "S-1", 10, 25)
			made(b, "handed", "S-2", 30, 40)
			made(a, "handed", "S-3", 50, math.MaxInt64)
			ended(b, "handed", "S-3", 50, 60)
			want["handed"] = []storage.Assignment{assignment("handed", "S-1", 10, 25), assignment("handed", "S-2", 30, 40),
				assignment("handed", "S-3", 50, 60)}

			made(a, "erased", "S-1", 10, math.MaxInt64)
			ended(b, "erased", "S-1", 10, 20)
			_, err := b.Erase(modelNames("erased")[0])
			try(t, err)
			made(b, "erased", "S-1", 10, math.MaxInt64)
			ended(a, "erased", "S-1", 10, 30)
			want["erased"] = []storage.Assignment{assignment("erased", "S-1", 10, 30)}

			made(a, "gone", "S-1", 10, math.MaxInt64)
			ended(b, "gone", "S-1", 10, 30)
			_, err = a.EraseAssignment(assignment("gone", "S-1", 10, 30))
			try(t, err)
			want["gone"] = nil
			generation := queryValue[int64](t, r.now, "SELECT generation FROM "+r.opt.Schema+".state")
			polltest.Until(t, "both know the erasures", func() bool {
				return pgstore.Learned(a) == generation &&
					pgstore.Learned(b) == generation
			})

			there.Store("")
			r.stop()
			earlier.Restart(t)
			stores := []*pgstore.Store{a, b}
			if first == "a" {
				r.use(earlier)
				awaitRepairs(t, a, 1)
				there.Store(earlier.Addr())
			} else {
				there.Store(earlier.Addr())
				awaitRepairs(t, b, 1)
				r.use(earlier)
			}
			for _, s := range stores {
				awaitRepairs(t, s, 1)
				if n := metric(t, s, "pulsegate_postgres_contradicted_total", ""); n != 0 {
					t.Errorf("%v contradictions, want none", n)
				}
				mustNotLose(t, s)
			}
			for device, want := range want {
				if got, err := a.DeviceAssignments(ctx, modelNames(device)[0]); err != nil || !slices.Equal(got, want) {
					t.Errorf("the assignments of %s are %v, %v, want %v", device, got, err, want)
				}
			}
		})
	}
}

func assignment(device, subject string, fromMs, toMs int64) storage.Assignment {
	name, err := vitals.ParseName(device)
	if err != nil {
		panic(err)
	}
	return storage.Assignment{Device: name, Subject: storage.Subject(subject), FromUnixMs: fromMs, ToUnixMs: toMs}
}
