package pgstore_test

import (
	"errors"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// An erasure that cannot be recorded is unfinished: repeating it records it, although no readings
// are left. Afterwards the device is unknown.
func TestEraseRecorded(t *testing.T) {
	server := sharedServer(t)
	s := open(t, options(server))
	e := reading("d", 1, 1)
	try(t, s.Append([]*storage.Entry{e, reading("d", 2, 1)}))
	device := e.Reading.Device
	recorded := storage.Erasure{}
	failed := errors.New("the disk of the audit log is full")
	got, err := s.EraseRecorded(device, func(e storage.Erasure) error { recorded = e; return failed })
	if want := (storage.Erasure{Device: device, Readings: 2}); !errors.Is(err, storage.ErrUnfinished) || !errors.Is(err, failed) || got != want || recorded != want {
		t.Errorf("with a record that fails: %+v, %v, recorded %+v", got, err, recorded)
	}
	calls := 0
	got, err = s.EraseRecorded(device, func(storage.Erasure) error { calls++; return nil })
	if err != nil || got.Readings != 0 || calls != 1 {
		t.Errorf("repeated: %+v, %v, recorded %d times", got, err, calls)
	}
	if _, err := s.EraseRecorded(device, func(storage.Erasure) error { calls++; return nil }); !errors.Is(err, storage.ErrNotFound) || calls != 1 {
		t.Errorf("after the erasure: %v, recorded %d times", err, calls)
	}
}
