package pgstore

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A device that was registered before another node deleted devices is not noted as registered: if it
// was, its row would never be written again, and its readings would be of an unknown device.
//
// Seen to fail when add did not look at the generation.
func TestRegistryGenerations(t *testing.T) {
	r := registry{known: map[vitals.Name]*known{}, generation: 1}
	var reading vitals.Reading
	var err error
	if reading.Device, err = vitals.ParseName("d"); err != nil {
		t.Fatal(err)
	}
	reading.Values.Set(vitals.HeartRate, 1)
	group := []*storage.Entry{{Reading: &reading}}
	wanted, generation := r.missing(group)
	if len(wanted) != 1 || generation != 1 {
		t.Fatalf("missing returns %v, %d", wanted, generation)
	}
	r.renew(2) // another lane has read the new generation meanwhile
	r.add(wanted, generation)
	if wanted, generation = r.missing(group); len(wanted) != 1 || generation != 2 {
		t.Fatalf("after the devices were deleted, missing returns %v, %d", wanted, generation)
	}
	r.add(wanted, generation)
	if wanted, _ = r.missing(group); wanted != nil {
		t.Errorf("after add, missing returns %v", wanted)
	}
}

// What a server sends as its SQLSTATE becomes a label only if it is one.
func TestStateLabel(t *testing.T) {
	for code, want := range map[string]string{"40001": "40001", "XX000": "XX000", "\xff\xfe": otherState,
		"d-7 at 9": otherState, "": otherState} {
		if got := sqlState(&pgconn.PgError{Code: code}); got != want {
			t.Errorf("sqlState of %q is %q, want %q", code, got, want)
		}
	}
}
