package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// The erasure of an assignment that cannot be recorded is unfinished: the assignment stays until
// repeating it has recorded it. Readings beside it stay.
func TestEraseAssignmentRecorded(t *testing.T) {
	server := sharedServer(t)
	s := open(t, options(server))
	ctx := context.Background()
	device := reading("d", 1, 1).Reading.Device
	if err := s.Append([]*storage.Entry{reading("d", 9, 1), reading("d", 10, 1), reading("d", 19, 1), reading("d", 20, 1)}); err != nil {
		t.Fatal(err)
	}
	a := storage.Assignment{Device: device, Subject: "P", FromUnixMs: 10, ToUnixMs: 20}
	if err := s.Assign(ctx, a); err != nil {
		t.Fatal(err)
	}
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
	if _, err := s.EraseAssignmentRecorded(a, func(storage.Erasure) error { calls++; return nil }); !errors.Is(err, storage.ErrNotAssigned) || calls != 1 {
		t.Errorf("after the erasure: %v, recorded %d times", err, calls)
	}
	page := make([]storage.Record, 9)
	if n, err := s.Scan(ctx, storage.Range{Device: device, ToUnixMs: 100}, page); err != nil || n != 2 || page[0].TimeUnixMs != 9 || page[1].TimeUnixMs != 20 {
		t.Errorf("%v are left, %v", page[:n], err)
	}
}
