package pgstore_test

import (
	"context"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// claimed returns a reading that says who wears its device, as a message of HL7 does.
func claimed(device string, timeUnixMs int64, subject storage.Subject) *storage.Entry {
	e := reading(device, timeUnixMs, 1)
	e.Claim, e.Recorded = &storage.Claim{Subject: subject, Assign: true}, true
	return e
}

// TestClaimsOfTwoServers sends a reading of nobody's while another server has named the patient at a later time, and has not committed: the
// assignment does not end before that time.
func TestClaimsOfTwoServers(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	mustStore(t, s, claimed("d", 10, "P-1"))
	ctx := context.Background()
	other, watch := connect(t, server), connect(t, server)
	defer other.Close(ctx)
	defer watch.Close(ctx)
	tx, err := other.Begin(ctx)
	try(t, err)
	mustExecute(t, tx, "UPDATE "+o.Schema+".assignments SET named_ms = 30 WHERE device = 'd'")
	nobody := claimed("d", 20, "")
	done := make(chan error, 1)
	go func() { done <- s.Append([]*storage.Entry{nobody}) }()
	polltest.Until(t, "the group waits", func() (waits bool) {
		try(t, watch.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = 'transactionid')").Scan(&waits))
		return waits
	})
	try(t, tx.Commit(ctx))
	try(t, <-done)
	all, err := s.DeviceAssignments(ctx, nobody.Reading.Device)
	want := storage.Assignment{Device: nobody.Reading.Device, Subject: "P-1", FromUnixMs: 10, ToUnixMs: storage.OpenEnd, By: storage.ByHL7, NamedUnixMs: 30}
	if err != nil || len(all) != 1 || all[0] != want || nobody.Outcome != storage.Stored {
		t.Errorf("the reading got %s, the assignments are %v, %v, want %v", outcomeName(nobody.Outcome), all, err, want)
	}
}

// A device of which the only reading is another patient's takes no place of --max-devices for ever.
func TestOtherSubjectOfNewDevice(t *testing.T) {
	s := open(t, options(sharedServer(t)))
	ctx := context.Background()
	try(t, s.Assign(ctx, assignment("d", "P-1", 1, storage.OpenEnd)))
	for _, want := range []int64{0, 1} { // the first time, of what earlier runs have left
		x, err := s.Expire(ctx, 1, 100)
		if err != nil || int64(x.Devices) != want {
			t.Errorf("Expire removed %d devices, %v, want %d", x.Devices, err, want)
		}
		e := claimed("d", 5, "P-2")
		if try(t, s.Append([]*storage.Entry{e})); e.Outcome != storage.OtherSubject {
			t.Errorf("the reading got outcome %d, want OtherSubject", e.Outcome)
		}
	}
}
