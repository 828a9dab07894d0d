package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

func assignment(device, subject string, from, to int64) storage.Assignment {
	return storage.Assignment{Device: mustName(device), Subject: storage.Subject(subject), FromUnixMs: from, ToUnixMs: to}
}

// sameAssignments reports whether all are equal, whenever they were changed.
func sameAssignments(got, want []storage.Assignment) bool {
	return slices.EqualFunc(got, want, func(a, b storage.Assignment) bool { return a.Same(b) })
}

// wantAssignments compares the assignments of s with the model's, in all ways in which they can
// be read.
func wantAssignments(t tb, s storage.Subjects, want *assignments, size int) {
	t.Helper()
	ctx := context.Background()
	compare := func(what string, got []storage.Assignment, err error, keep func(*storage.Assignment) bool) {
		t.Helper()
		if want := want.of(keep); err != nil || !sameAssignments(got, want) {
			t.Fatalf("%s: %v, %v, want %v", what, got, err, want)
		}
	}
	var after storage.AssignmentKey
	all := pages(t, size, func(page []storage.Assignment) (int, error) { return s.Assignments(ctx, after, page) },
		func(last storage.Assignment) { after = last.Key() })
	compare("pages of all", all, nil, func(*storage.Assignment) bool { return true })
	for _, device := range randomDevices {
		got, err := s.DeviceAssignments(ctx, mustName(device))
		compare("those of "+device, got, err, func(a *storage.Assignment) bool {
			return a.Device == mustName(device) && a.Subject != ""
		})
	}
	some := []vitals.Name{mustName(randomDevices[0]), mustName("none"), mustName(randomDevices[1])}
	visited := &assignments{}
	err := s.VisitAssignments(ctx, some, func(a *storage.Assignment) {
		if !slices.Contains(visited.all, *a) {
			visited.all = append(visited.all, *a)
		}
	})
	ofSome := func(a *storage.Assignment) bool { return slices.Contains(some, a.Device) && a.Subject != "" }
	compare("those of some devices", visited.of(func(*storage.Assignment) bool { return true }), err, ofSome)
	for _, subject := range randomSubjects {
		got, err := s.SubjectAssignments(ctx, subject)
		compare("those of subject "+string(subject), got, err,
			func(a *storage.Assignment) bool { return a.Subject == subject })
	}
}

// checkAssign adds assignments that touch, overlap and equal each other, and ends them.
func checkAssign(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	ctx := context.Background()
	model := &assignments{}
	for _, tt := range []struct {
		a    storage.Assignment
		want error
	}{
		{assignment("a", "P", 10, 20), nil},
		{assignment("a", "P", 10, 20), nil}, // the same again
		{assignment("a", "P-1", 10, 20), storage.ErrAssigned},
		{assignment("a", "P", 10, 21), storage.ErrAssigned},
		{assignment("a", "P", 19, 30), storage.ErrAssigned},
		{assignment("a", "P-", 20, 30), nil}, // begins where the first ends
		{assignment("a", "P-", 9, 11), storage.ErrAssigned},
		{assignment("a", "P-", 0, 10), nil}, // ends where it begins
		{assignment("a", "P", 12, 18), storage.ErrAssigned},
		{assignment("a", "P", 29, storage.OpenEnd), storage.ErrAssigned},
		{assignment("a", "P", 30, storage.OpenEnd), nil},
		{assignment("a", "P", 50, 51), storage.ErrAssigned},
		{assignment("a-", "P", 10, 20), nil}, // another device
		{assignment("b", "P", 10, 10), storage.ErrPeriod},
		{assignment("b", "P", 11, 10), storage.ErrPeriod},
		{assignment("b", "P", -1, 10), storage.ErrPeriod},
		{assignment("b", "", 1, 10), storage.ErrSubject},
		{assignment("b", "P_1", 1, 10), storage.ErrSubject},
	} {
		if err := s.Assign(ctx, tt.a); !errors.Is(err, tt.want) {
			t.Errorf("Assign(%v) returned %v, want %v", tt.a, err, tt.want)
		}
		if err := model.assign(tt.a); !errors.Is(err, tt.want) {
			t.Fatalf("the model returned %v for %v", err, tt.a)
		}
		wantAssignments(t, s, model, 2)
	}
	for _, tt := range []struct {
		a    storage.Assignment
		want error
	}{
		{assignment("a", "P", 10, 21), storage.ErrAssigned},
		{assignment("a", "P-", 10, 19), storage.ErrNotAssigned}, // of another subject
		{assignment("a", "P", 10, 19), nil},
		{assignment("a", "P", 10, 20), nil}, // again
		{assignment("a", "P", 10, 10), storage.ErrPeriod},
		{assignment("a", "P", 11, 20), storage.ErrNotAssigned},
		{assignment("a-1", "P", 10, 20), storage.ErrNotAssigned},
		{assignment("a", "P", 30, 40), nil},
		{assignment("a", "P", 30, storage.OpenEnd), nil},
		{assignment("a-", "P", 10, storage.OpenEnd), nil},
	} {
		if err := s.EndAssignment(ctx, tt.a); !errors.Is(err, tt.want) {
			t.Errorf("EndAssignment(%v) returned %v, want %v", tt.a, err, tt.want)
		}
		if err := model.end(tt.a); !errors.Is(err, tt.want) {
			t.Fatalf("the model returned %v for %v", err, tt.a)
		}
		wantAssignments(t, s, model, 3)
	}
	mustClose(t, s)
	wantAssignments(t, open(t, h), model, 2)
}

// checkEraseAssignment erases assignments that touch others: what was measured one millisecond
// before and after must stay, and be settled and summarized as before.
func checkEraseAssignment(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	ctx := context.Background()
	model := NewMemory()
	var group []*storage.Entry
	for ms := range int64(200) { // more than a store keeps in memory per device
		group = append(group,
			by(fmt.Sprintf("g%d", ms/50), entry("a", ms, hr(vitals.Value(1+ms)), []sign{spo2(1), sys(2), dia(3)}[ms%3])))
	}
	group = append(group, entry("a", 15, rhr(1)), entry("a-", 15, hr(1)), entry("a-1", 15, hr(1)))
	for i, e := range group {
		if i%5 > 0 {
			offset(i, e)
		}
	}
	settleAll(t, s, model.records, group...)
	for _, a := range []storage.Assignment{
		assignment("a", "P", 10, 20), assignment("a", "P-", 20, 30), assignment("a", "P", 30, 31),
		assignment("a", "P-1", 100, storage.OpenEnd),
		assignment("a-", "P", 10, 20), assignment("a-1", "P", 15, 16), assignment("b", "P", 0, storage.OpenEnd),
	} {
		if err := errors.Join(s.Assign(ctx, a), model.Assign(ctx, a)); err != nil {
			t.Fatalf("Assign(%v): %v", a, err)
		}
	}
	for i, a := range []storage.Assignment{
		assignment("a", "P-", 20, 0), assignment("a", "P", 21, 0), assignment("a", "P-", 30, 0), assignment("a", "P", 30, 0),
		assignment("a", "P", 10, 0),
		assignment("a", "P-1", 100, 0), assignment("a", "P-1", 100, 0), assignment("a-1", "P", 15, 0),
		assignment("b", "Q", 0, 0), assignment("b", "P", 0, 0), assignment("c", "P", 0, 0),
	} {
		got, err := s.EraseAssignment(a)
		want, wantErr := model.EraseAssignment(a)
		compare(t, fmt.Sprintf("EraseAssignment(%v)", a), got, err, want, wantErr)
		wantAll(t, s, model.records, 50)
		wantAssignments(t, s, model.assigned, 2)
		if i%4 == 1 && h.Crash != nil {
			h.Crash(0, uint64(i))
			s = mustOpen(t, h.Open)
			wantAll(t, s, model.records, 50)
			wantAssignments(t, s, model.assigned, 2)
		}
		// A reading that was erased is new.
		settleAll(t, s, model.records, entry("a", 25, hr(1)), entry("a", 150, hr(1)), entry("a", 9, hr(10)),
			entry("a-1", 16, hr(2)))
		wantAll(t, s, model.records, 50)
	}
	// Erasing the device removes its other assignments.
	if err := s.Assign(ctx, assignment("a", "P", 10, 20)); err != nil {
		t.Errorf("Assign: %v", err)
	}
	for _, device := range []string{"a", "a-"} {
		if _, err := s.Erase(mustName(device)); err != nil {
			t.Errorf("Erase(%s): %v", device, err)
		}
	}
	wantAssignments(t, s, &assignments{}, 2)
	// So does erasing a device that has nothing else.
	if err := s.Assign(ctx, assignment("b", "P", 10, 20)); err != nil {
		t.Errorf("Assign: %v", err)
	}
	if got, err := s.Erase(mustName("b")); err != nil || got != (storage.Erasure{Device: mustName("b")}) {
		t.Errorf("Erase(b) returned %+v, %v", got, err)
	}
	wantAssignments(t, s, &assignments{}, 2)
	mustClose(t, s)
}

// checkEraseAgain erases an assignment whose time another patient, or nobody, has since its erasure: nothing is
// removed.
func checkEraseAgain(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	defer mustClose(t, s)
	ctx := context.Background()
	erased := assignment("a", "P", 10, 50)
	for _, then := range []storage.Assignment{assignment("a", "Q", 10, 50), assignment("a", "Q", 5, 60),
		assignment("a", "P", 20, 40), assignment("a", "Q", 70, 80)} {
		if err := s.Assign(ctx, erased); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, s, entry("a", 30, hr(1)))
		if e, err := s.EraseAssignment(erased); err != nil || e.Readings != 1 {
			t.Errorf("then %v: the first erasure returned %+v, %v", then, e, err)
		}
		if err := s.Assign(ctx, then); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, s, entry("a", 30, hr(2)))
		if e, err := s.EraseAssignment(erased); !errors.Is(err, storage.ErrNotAssigned) {
			t.Errorf("then %v: the second erasure returned %+v, %v, want ErrNotAssigned", then, e, err)
		}
		all, err := s.DeviceAssignments(ctx, mustName("a"))
		records := scanPages(t, s, allOf("a"), 7)
		if err != nil || len(all) != 1 || !all[0].Same(then) || len(records) != 1 {
			t.Errorf("then %v: %d readings and %v are left, %v", then, len(records), all, err)
		}
		if _, err := s.Erase(mustName("a")); err != nil {
			t.Fatal(err)
		}
	}
}

// checkManyAssignments assigns a device as often as is permitted: nearly always by the claims of one group, since a
// transaction for each assignment takes a hundred times as long, then by hand, and then by further claims.
func checkManyAssignments(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	ctx := context.Background()
	claimed := func(ms int64, subject storage.Subject) *storage.Entry {
		e := entry("a", ms, hr(1))
		e.Recorded, e.Claim = true, &storage.Claim{Subject: subject, Assign: true}
		return e
	}
	const few, most = 5, int64(storage.MaxAssignments)
	for i := most - few + 1; i <= most; i++ {
		if err := s.Assign(ctx, assignment("a", "P", 10*i, 10*i+10)); err != nil {
			t.Fatalf("assignment %d: %v", i, err)
		}
	}
	var group []*storage.Entry
	for i := most - few; i > 0; i-- { // each ends where the one before it in the group begins
		group = append(group, claimed(10*i, "P"))
	}
	mustAppend(t, s, group...)
	if err := s.Assign(ctx, assignment("a", "P", 1_000_000, 1_000_002)); !errors.Is(err, storage.ErrTooManyAssignments) {
		t.Errorf("one more returned %v, want ErrTooManyAssignments", err)
	}
	for _, i := range []int64{1, most} { // of a claim, and by hand
		if err := s.Assign(ctx, assignment("a", "P", 10*i, 10*i+10)); err != nil {
			t.Errorf("number %d again: %v", i, err)
		}
	}
	mustSettle(t, s, claimed(11, "P"), storage.Stored)
	mustSettle(t, s, claimed(5, "P"), storage.TooManyAssignments)
	// Spans of nobody are not counted, and assignments within them have a room of their own.
	for _, ms := range []int64{1_000_000, 2_000_000, 1_500_000} {
		mustSettle(t, s, claimed(ms, map[bool]storage.Subject{true: "Q"}[ms == 1_500_000]), storage.Stored)
	}
	if _, err := s.EraseAssignment(assignment("a", "P", 10, 20)); err != nil {
		t.Error(err)
	}
	mustSettle(t, s, claimed(15, "P"), storage.Stored)
	if all, err := s.DeviceAssignments(ctx, mustName("a")); err != nil || len(all) != storage.MaxAssignments+1 ||
		all[0].FromUnixMs != 15 || all[0].ToUnixMs != 20 {
		t.Errorf("%d assignments, %v, the first is %v", len(all), err, all[0])
	}
	// One by hand leaves both parts of a span: what was nobody's stays so.
	if _, err := s.EraseAssignment(assignment("a", "P", 15, 20)); err != nil {
		t.Error(err)
	}
	if err := s.Assign(ctx, assignment("a", "R", 1_600_000, 1_700_000)); err != nil {
		t.Error(err)
	}
	if _, err := s.EraseAssignment(assignment("a", "P", 20, 30)); err != nil {
		t.Error(err)
	}
	mustSettle(t, s, claimed(1_900_000, "Q"), storage.Stored)
	all, err := s.DeviceAssignments(ctx, mustName("a"))
	if last := all[len(all)-1]; err != nil || last.FromUnixMs != 1_900_000 || last.ToUnixMs != 1_900_001 {
		t.Errorf("%v, the last is %v", err, last)
	}
	page := make([]storage.Assignment, storage.MaxStoredAssignments)
	n, err := s.Assignments(ctx, storage.AssignmentKey{}, page)
	if err != nil || n != len(all)+4 {
		t.Fatalf("%d assignments with spans, %v, want %d", n, err, len(all)+4)
	}
	for i := n - 8; i < n; i++ { // pages of one: spans and assignments between them
		next := make([]storage.Assignment, 1)
		m, err := s.Assignments(ctx, page[i].Key(), next)
		if want := page[i+1 : min(i+2, n)]; err != nil || !slices.Equal(next[:m], want) {
			t.Errorf("after %v: %v, %v, want %v", page[i], next[:m], err, want)
		}
	}
	mustClose(t, s)
}

// checkAssignRace assigns one device to several subjects at the same time, through two nodes if
// the store has them: of assignments that overlap, exactly one is made.
func checkAssignRace(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	defer mustClose(t, s)
	stores := []store{s, s}
	if h.OpenNode != nil {
		stores[1] = openNode(t, h)
	}
	const rounds, calls = 10, 4
	for round := range int64(rounds) {
		var made, refused atomic.Int64
		begin := make(chan struct{})
		var running sync.WaitGroup
		for i := range int64(calls) {
			running.Go(func() {
				<-begin
				a := assignment("a", fmt.Sprintf("P-%d", i), 100*round+i, 100*round+50+i)
				switch err := stores[i%2].Assign(context.Background(), a); {
				case err == nil:
					made.Add(1)
				case errors.Is(err, storage.ErrAssigned):
					refused.Add(1)
				default:
					t.Errorf("Assign: %v", err)
				}
			})
		}
		close(begin)
		running.Wait()
		if made.Load() != 1 || refused.Load() != calls-1 {
			t.Fatalf("round %d: %d overlapping assignments were made, %d rejected", round, made.Load(), refused.Load())
		}
		for _, s := range stores {
			if all, err := s.DeviceAssignments(context.Background(), mustName("a")); err != nil || int64(len(all)) != round+1 {
				t.Fatalf("round %d: %d assignments, %v", round, len(all), err)
			}
		}
	}
}
