package pgstore_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// claimed returns a reading that says who wears its device, as a message of HL7 does.
func claimed(device string, timeUnixMs int64, subject storage.Subject) *storage.Entry {
	e := reading(device, timeUnixMs, 1)
	e.Claim, e.Recorded = &storage.Claim{Subject: subject, Assign: true}, true
	return e
}

// TestClaimsOfTwoServers sends a reading of nobody's while another server has named the patient at a later time, and
// has not committed: the assignment does not end before that time. And it sends one of a patient's while another server
// has a later reading of nobody's: the assignment does not reach that time.
func TestClaimsOfTwoServers(t *testing.T) {
	const end = storage.OpenEnd
	t.Run("nobody", func(t *testing.T) {
		claimBeforeAnother(t, "P-1", "", storage.Assignment{FromUnixMs: 10, ToUnixMs: end, NamedUnixMs: 30})
	})
	t.Run("a patient", func(t *testing.T) {
		claimBeforeAnother(t, "", "P-1", storage.Assignment{FromUnixMs: 20, ToUnixMs: 21, NamedUnixMs: 20})
	})
}

// claimBeforeAnother stores a claim of subject of time 10, and one of then of time 20 while another server has one of
// subject of time 30. It compares the assignment of P-1.
func claimBeforeAnother(t *testing.T, subject, then storage.Subject, want storage.Assignment) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	mustStore(t, s, claimed("d", 10, subject))
	ctx := context.Background()
	other, watch := connect(t, server), connect(t, server)
	defer other.Close(ctx)
	defer watch.Close(ctx)
	tx, err := other.Begin(ctx)
	try(t, err)
	mustExecute(t, tx, "UPDATE "+o.Schema+".assignments SET named_ms = 30 WHERE device = 'd'")
	e := claimed("d", 20, then)
	done := make(chan error, 1)
	go func() { done <- s.Append([]*storage.Entry{e}) }()
	polltest.Until(t, "the group waits", func() (waits bool) {
		try(t, watch.QueryRow(ctx,
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = "+
				"'transactionid')").Scan(&waits))
		return waits
	})
	try(t, tx.Commit(ctx))
	try(t, <-done)
	all, err := s.DeviceAssignments(ctx, e.Reading.Device)
	want.Device, want.Subject, want.By = e.Reading.Device, "P-1", storage.ByHL7
	if err != nil || len(all) != 1 || !all[0].Same(want) || e.Outcome != storage.Stored {
		t.Errorf("the reading got %s, the assignments are %v, %v, want %v", outcomeName(e.Outcome), all, err, want)
	}
}

// A device of which no reading was accepted takes no place of --max-devices, whether the claim or a partition is the
// reason. If a reading of it is accepted later, it does.
func TestNewDeviceOfRejectedReadings(t *testing.T) {
	const nowMs = 30 * 24 * 60 * minuteMs // begins partition 1; 0 is the one of the past
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	ctx := context.Background()
	mustStore(t, s, reading("known", 5, 1), reading("known", nowMs, 1))
	admin := connect(t, server)
	defer admin.Close(ctx)
	want := func(devices int) {
		t.Helper()
		var rows, counted int
		try(t, admin.QueryRow(ctx, "SELECT devices, (SELECT count(*) FROM "+o.Schema+".devices) FROM "+o.Schema+".state").
			Scan(&counted, &rows))
		if counted != devices || rows != devices {
			t.Errorf("%d devices are counted, and there are %d, want %d", counted, rows, devices)
		}
	}
	try(t, s.Assign(ctx, assignment("d", "P-1", 1, storage.OpenEnd)))
	other, unrecorded, unavailable := claimed("d", 5, "P-2"), claimed("e", 5, "P-1"), reading("f", 5, 1)
	unrecorded.Recorded = false
	try(t, s.Append([]*storage.Entry{other, unrecorded, reading("known", nowMs+1, 1)}))
	want(1)
	mustExecute(t, admin, "ALTER TABLE "+o.Schema+".readings DETACH PARTITION "+o.Schema+".readings_p0")
	try(t, s.Append([]*storage.Entry{reading("known", 6, 1)})) // finds it closed
	try(t, s.Append([]*storage.Entry{unavailable}))
	want(1)
	if other.Outcome != storage.OtherSubject || unrecorded.Outcome != storage.Unrecorded ||
		unavailable.Outcome != storage.Unavailable {
		t.Errorf("the outcomes are %s, %s and %s", outcomeName(other.Outcome), outcomeName(unrecorded.Outcome),
			outcomeName(unavailable.Outcome))
	}
	mustStore(t, s, claimed("d", nowMs, "P-1"), claimed("e", nowMs, "P-1"))
	want(3)
}

// A group ends an assignment with a reading without values, and then has a reading of the next patient. A server that
// does not know the device settles it like one that does.
func TestEndThenNextPatient(t *testing.T) {
	for _, known := range []bool{true, false} {
		o := options(sharedServer(t))
		a := open(t, o)
		mustStore(t, a, claimed("d", 10, "P-1"))
		s := a
		if !known {
			s = open(t, o)
		}
		end := claimed("d", 20, "")
		end.Reading.Values = vitals.Values{}
		next := claimed("d", 30, "P-2")
		try(t, s.Append([]*storage.Entry{end, next}))
		if end.Outcome != storage.Duplicate || next.Outcome != storage.Stored {
			t.Errorf("known %t: outcomes %d, %d, want duplicate, stored", known, end.Outcome, next.Outcome)
		}
	}
}

// A second erasure of an assignment removes no readings of nobody's, or of another patient's, who has the device from
// the same time on since the first.
func TestErasedThenAnother(t *testing.T) {
	for _, then := range []storage.Subject{"", "P-3"} {
		s := open(t, options(sharedServer(t)))
		mustStore(t, s, claimed("d", 10, "P-1"), claimed("d", 20, ""), claimed("d", 30, "P-2"), reading("d", 5, 1))
		d := modelNames("d")[0]
		a := storage.Assignment{Device: d, Subject: "P-1", FromUnixMs: 10}
		if _, err := s.EraseAssignmentRecorded(a, func(storage.Erasure) error {
			if _, err := s.EraseAssignment(a); err != nil {
				t.Error(err)
			}
			mustStore(t, s, claimed("d", 10, then))
			return nil
		}); err != nil {
			t.Errorf("then %q: %v", then, err)
		}
		got := scanned(t, s, storage.Range{Device: d, ToUnixMs: math.MaxInt64}, 10)
		all, err := s.DeviceAssignments(context.Background(), d)
		if err != nil || !slices.ContainsFunc(all, func(a storage.Assignment) bool { return a.Subject == "P-2" }) ||
			then != "" && !slices.ContainsFunc(all, func(a storage.Assignment) bool { return a.Subject == then }) {
			t.Errorf("then %q: the assignments are %v, %v", then, all, err)
		}
		for _, ms := range []int64{5, 10, 20, 30} {
			if !slices.ContainsFunc(got, func(r storage.Record) bool { return r.TimeUnixMs == ms }) {
				t.Errorf("then %q: the reading of %d is gone", then, ms)
			}
		}
	}
}

// An erasure removes no reading of another patient's to whom the device was assigned, after an earlier end of the
// assignment, while it was about to remove the readings of the later one.
func TestErasedWhileEnded(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	ctx := context.Background()
	d := modelNames("d")[0]
	try(t, s.Assign(ctx, assignment("d", "P-1", 10, 50)))
	mustStore(t, s, reading("d", 10, 1), reading("d", 30, 1))
	other, watch := connect(t, server), connect(t, server)
	defer other.Close(ctx)
	defer watch.Close(ctx)
	tx, err := other.Begin(ctx)
	try(t, err)
	mustExecute(t, tx, "UPDATE "+o.Schema+".assignments SET to_ms = 20 WHERE device = 'd'")
	done := make(chan error, 1)
	go func() {
		e, err := s.EraseAssignment(storage.Assignment{Device: d, Subject: "P-1", FromUnixMs: 10})
		if err == nil && e.Readings != 1 {
			t.Errorf("the erasure has removed %d readings, want 1", e.Readings)
		}
		done <- err
	}()
	polltest.Until(t, "the erasure waits", func() (waits bool) {
		try(t, watch.QueryRow(ctx,
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = "+
				"'transactionid')").Scan(&waits))
		return waits
	})
	try(t, tx.Commit(ctx))
	try(t, <-done)
	got := scanned(t, s, storage.Range{Device: d, ToUnixMs: math.MaxInt64}, 10)
	if len(got) != 1 || got[0].TimeUnixMs != 30 {
		t.Errorf("%v are left, want the reading of 30", got)
	}
}

// TestErasedWithAssignment erases a device while an erasure of its assignment has not ended, or after it could not be
// recorded: nothing of it is left, and what is stored since can be read.
func TestErasedWithAssignment(t *testing.T) {
	server := sharedServer(t)
	device := modelNames("d")[0]
	for _, inside := range []bool{false, true} {
		o := options(server)
		s := open(t, o)
		try(t, s.Assign(t.Context(), assignment("d", "P", 1, 5)))
		mustStore(t, s, reading("d", 2, 1), reading("d", 6, 1))
		erase := func() error {
			_, err := s.Erase(device)
			return err
		}
		_, err := s.EraseAssignmentRecorded(assignment("d", "P", 1, 0), func(storage.Erasure) error {
			if inside {
				return erase()
			}
			return errors.New("the audit log is full")
		})
		if inside {
			try(t, err)
		} else {
			try(t, erase())
		}
		if n := queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".erasing"); n != 0 {
			t.Errorf("the device was erased, inside of the other erasure: %t: %d erasures are left", inside, n)
		}
		mustStore(t, s, reading("d", 2, 2))
		mustHave(t, s, "d", 0, 2)
	}
}
