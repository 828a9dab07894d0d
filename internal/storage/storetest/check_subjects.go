package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A subjectStore is a store that keeps assignments.
type subjectStore interface {
	storage.Store
	storage.Remover
	storage.Subjects
}

func openSubjects(t testing.TB, open func() (storage.Store, error)) (subjectStore, bool) {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	ss, ok := s.(subjectStore)
	if !ok {
		_ = s.Close()
	}
	return ss, ok
}

func assignment(device, subject string, from, to int64) storage.Assignment {
	return storage.Assignment{Device: mustName(device), Subject: storage.Subject(subject), FromUnixMs: from, ToUnixMs: to}
}

// lastMs is the last time that assignmentModel looks at: all times of the checks are before, and
// an open end is after it.
const lastMs = 60

// An assignmentModel is the list of all assignments. Whether one is admitted is decided
// millisecond by millisecond.
type assignmentModel []storage.Assignment

// assign returns the error that Assign must return, and adds the assignment if that is nil.
func (m *assignmentModel) assign(a storage.Assignment) error {
	if a.FromUnixMs < 0 || a.FromUnixMs >= a.ToUnixMs {
		return storage.ErrPeriod
	}
	if slices.Contains(*m, a) {
		return nil
	}
	if m.taken(a, nil) {
		return storage.ErrAssigned
	}
	*m = append(*m, a)
	return nil
}

// taken reports whether an assignment other than but includes a millisecond of a.
func (m *assignmentModel) taken(a storage.Assignment, but *storage.Assignment) bool {
	for ms := a.FromUnixMs; ms < a.ToUnixMs && ms <= lastMs; ms++ {
		for i := range *m {
			if b := &(*m)[i]; b != but && b.Device == a.Device && b.FromUnixMs <= ms && ms < b.ToUnixMs {
				return true
			}
		}
	}
	return false
}

// end returns what EndAssignment must return, and sets the end unless that is an error.
func (m *assignmentModel) end(ended storage.Assignment) error {
	i := slices.IndexFunc(*m, func(a storage.Assignment) bool { return a.Key() == ended.Key() && a.Subject == ended.Subject })
	if i < 0 {
		return storage.ErrNotAssigned
	}
	if ended.ToUnixMs <= ended.FromUnixMs {
		return storage.ErrPeriod
	}
	if m.taken(ended, &(*m)[i]) {
		return storage.ErrAssigned
	}
	(*m)[i] = ended
	return nil
}

// erase removes an assignment, and from readings those during it. It returns what EraseAssignment
// must return.
func (m *assignmentModel) erase(readings records, device vitals.Name, subject storage.Subject, from int64) (e storage.Erasure, err error) {
	i := slices.IndexFunc(*m, func(a storage.Assignment) bool {
		return a.Device == device && a.Subject == subject && a.FromUnixMs == from
	})
	if i < 0 {
		return e, storage.ErrNotAssigned
	}
	a := (*m)[i]
	*m = slices.Delete(*m, i, i+1)
	e = storage.Erasure{Device: device, Subject: a.Subject, FromUnixMs: a.FromUnixMs, ToUnixMs: a.ToUnixMs}
	for ms := range readings[device] {
		if a.FromUnixMs <= ms && ms < a.ToUnixMs {
			delete(readings[device], ms)
			e.Readings++
		}
	}
	if len(readings[device]) == 0 {
		delete(readings, device)
	}
	return e, nil
}

// sorted returns those assignments for which keep is true, by device and beginning.
func (m assignmentModel) sorted(keep func(storage.Assignment) bool) []storage.Assignment {
	found := slices.DeleteFunc(slices.Clone(m), func(a storage.Assignment) bool { return !keep(a) })
	slices.SortFunc(found, func(a, b storage.Assignment) int {
		if c := a.Device.Compare(&b.Device); c != 0 {
			return c
		}
		return int(a.FromUnixMs - b.FromUnixMs)
	})
	return found
}

// wantAssignments compares the assignments of s with the model's, in all ways in which they can
// be read.
func wantAssignments(t tb, s storage.Subjects, want assignmentModel, size int) {
	t.Helper()
	ctx := context.Background()
	compare := func(what string, got []storage.Assignment, err error, keep func(storage.Assignment) bool) {
		t.Helper()
		if want := want.sorted(keep); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: %v, %v, want %v", what, got, err, want)
		}
	}
	var all []storage.Assignment
	var after storage.AssignmentKey
	for {
		page := make([]storage.Assignment, size)
		n, err := s.Assignments(ctx, after, page)
		if err != nil {
			t.Fatalf("Assignments: %v", err)
		}
		if all = append(all, page[:n]...); n < size {
			break
		}
		if k := page[n-1].Key(); k.Compare(&after) <= 0 { // pages would not end
			t.Fatalf("Assignments(after %v) returned %v", after, page[n-1])
		}
		after = page[n-1].Key()
	}
	compare("pages of all", all, nil, func(storage.Assignment) bool { return true })
	for _, device := range randomDevices {
		got, err := s.DeviceAssignments(ctx, mustName(device))
		compare("those of "+device, got, err, func(a storage.Assignment) bool { return a.Device == mustName(device) })
	}
	for _, subject := range randomSubjects {
		got, err := s.SubjectAssignments(ctx, subject)
		compare("those of subject "+string(subject), got, err, func(a storage.Assignment) bool { return a.Subject == subject })
	}
}

// randomSubjects has subjects that are prefixes of others, and one that is the name of a device.
var randomSubjects = []storage.Subject{"P", "P-", "P-1", "a"}

// checkAssign adds assignments that touch, overlap and equal each other, and ends them.
func checkAssign(t testing.TB, h Harness) {
	s, ok := openSubjects(t, h.Open)
	if !ok {
		return
	}
	ctx := context.Background()
	var model assignmentModel
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
		err := s.Assign(ctx, tt.a)
		if !errors.Is(err, tt.want) {
			t.Errorf("Assign(%v) returned %v, want %v", tt.a, err, tt.want)
		}
		if tt.want == nil {
			if err := model.assign(tt.a); err != nil {
				t.Fatalf("the model returned %v for %v", err, tt.a)
			}
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
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Assign(ended, assignment("c", "P", 1, 2)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context, Assign returned %v", err)
	}
	mustClose(t, s)
	if err := s.Assign(ctx, assignment("c", "P", 1, 2)); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close, Assign returned %v, want ErrClosed", err)
	}
	if _, err := s.SubjectAssignments(ctx, "P"); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close, SubjectAssignments returned %v, want ErrClosed", err)
	}
	again, _ := openSubjects(t, h.Open)
	wantAssignments(t, again, model, 2)
	mustClose(t, again)
}

// checkEraseAssignment erases assignments that touch others: what was measured one millisecond
// before and after must stay, and be settled and summarized as before.
func checkEraseAssignment(t testing.TB, h Harness) {
	s, ok := openSubjects(t, h.Open)
	if !ok {
		return
	}
	ctx := context.Background()
	model, assigned := records{}, assignmentModel{}
	var group []*storage.Entry
	for ms := range int64(200) { // more than a store keeps in memory per device
		group = append(group, by(fmt.Sprintf("g%d", ms/50), entry("a", ms, hr(vitals.Hundredths(1+ms)), []sign{spo2(1), sys(2), dia(3)}[ms%3])))
	}
	group = append(group, entry("a", 15, rhr(1)), entry("a-", 15, hr(1)), entry("a-1", 15, hr(1)))
	for i, e := range group {
		if i%5 > 0 {
			offset(i, e)
		}
	}
	settleAll(t, s, model, group)
	for _, a := range []storage.Assignment{
		assignment("a", "P", 10, 20), assignment("a", "P-", 20, 30), assignment("a", "P", 30, 31), assignment("a", "P-1", 100, storage.OpenEnd),
		assignment("a-", "P", 10, 20), assignment("a-1", "P", 15, 16), assignment("b", "P", 0, storage.OpenEnd),
	} {
		if err := s.Assign(ctx, a); err != nil {
			t.Fatalf("Assign(%v): %v", a, err)
		}
		assigned = append(assigned, a)
	}
	for i, tt := range []struct {
		device  string
		subject storage.Subject
		from    int64
	}{
		{"a", "P-", 20}, {"a", "P", 21}, {"a", "P-", 30}, {"a", "P", 30}, {"a", "P", 10}, {"a", "P-1", 100}, {"a", "P-1", 100}, {"a-1", "P", 15}, {"b", "Q", 0}, {"b", "P", 0}, {"c", "P", 0},
	} {
		got, err := s.EraseAssignment(assignment(tt.device, string(tt.subject), tt.from, storage.OpenEnd))
		want, wantErr := assigned.erase(model, mustName(tt.device), tt.subject, tt.from)
		if !errors.Is(err, wantErr) || err == nil && got != want {
			t.Errorf("EraseAssignment(%s, %s, %d) returned %+v, %v, want %+v, %v", tt.device, tt.subject, tt.from, got, err, want, wantErr)
		}
		wantAll(t, s, model, 50)
		wantAssignments(t, s, assigned, 2)
		if i%4 == 1 && h.Crash != nil {
			h.Crash(0, uint64(i))
			s, _ = openSubjects(t, h.Open)
			wantAll(t, s, model, 50)
			wantAssignments(t, s, assigned, 2)
		}
		// A reading that was erased is new.
		settleAll(t, s, model, []*storage.Entry{entry("a", 25, hr(1)), entry("a", 150, hr(1)), entry("a", 9, hr(10)), entry("a-1", 16, hr(2))})
		wantAll(t, s, model, 50)
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
	wantAssignments(t, s, nil, 2)
	// So does erasing a device that has nothing else.
	if err := s.Assign(ctx, assignment("b", "P", 10, 20)); err != nil {
		t.Errorf("Assign: %v", err)
	}
	if got, err := s.Erase(mustName("b")); err != nil || got != (storage.Erasure{Device: mustName("b")}) {
		t.Errorf("Erase(b) returned %+v, %v", got, err)
	}
	wantAssignments(t, s, nil, 2)
	mustClose(t, s)
	if _, err := s.EraseAssignment(assignment("a", "P", 10, 20)); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close, EraseAssignment returned %v, want ErrClosed", err)
	}
}

// checkManyAssignments assigns a device as often as is permitted.
func checkManyAssignments(t testing.TB, h Harness) {
	s, ok := openSubjects(t, h.Open)
	if !ok {
		return
	}
	ctx := context.Background()
	for i := range int64(storage.MaxAssignments) {
		if err := s.Assign(ctx, assignment("a", "P", 10*i, 10*i+10)); err != nil {
			t.Fatalf("assignment %d: %v", i, err)
		}
	}
	if err := s.Assign(ctx, assignment("a", "P", 1_000_000, 1_000_001)); !errors.Is(err, storage.ErrTooManyAssignments) {
		t.Errorf("one more returned %v, want ErrTooManyAssignments", err)
	}
	if err := s.Assign(ctx, assignment("a", "P", 0, 10)); err != nil {
		t.Errorf("the first one again: %v", err)
	}
	if all, err := s.DeviceAssignments(ctx, mustName("a")); err != nil || len(all) != storage.MaxAssignments {
		t.Errorf("%d assignments, %v", len(all), err)
	}
	mustClose(t, s)
}

// checkAssignRace assigns one device to several subjects at the same time, through two nodes if
// the store has them: of assignments that overlap, exactly one is made.
func checkAssignRace(t testing.TB, h Harness) {
	s, ok := openSubjects(t, h.Open)
	if !ok {
		return
	}
	defer mustClose(t, s)
	stores := []subjectStore{s, s}
	if h.OpenNode != nil {
		stores[1] = openNode(t, h).(subjectStore)
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

// checkRandomSubjects compares random changes of assignments and removals of readings with the
// model.
func checkRandomSubjects(t testing.TB, open func(testing.TB) Harness) {
	rapid.Check(t, func(rt *rapid.T) {
		h := open(t)
		s, ok := openSubjects(t, h.Open)
		if !ok {
			return
		}
		m := &subjectMachine{machine: machine{h: h, s: s, model: records{}}}
		defer func() { _ = m.s.Close() }()
		actions := map[string]func(*rapid.T){
			"append":  m.append,
			"assign":  m.assign,
			"assign+": m.assign, // twice as often as the others
			"end":     m.end,
			"erase":   m.erase,
			"erase a": m.eraseAssignment,
			"expire":  m.expire,
			"reopen":  m.reopen,
			"":        func(t *rapid.T) { wantAssignments(t, m.subjects(), m.assigned, 3) },
		}
		if h.Crash != nil {
			actions["crash"] = m.crash
		}
		rt.Repeat(actions)
		wantAll(rt, m.s, m.model, 4)
	})
}

// A subjectMachine is a machine with assignments.
type subjectMachine struct {
	machine
	assigned assignmentModel
}

func (m *subjectMachine) subjects() subjectStore { return m.s.(subjectStore) }

// drawMs draws the time of an assignment or of a reading.
func drawMs(t *rapid.T) int64 { return rapid.Int64Range(20, 40).Draw(t, "ms") }

func drawEnd(t *rapid.T) int64 {
	if rapid.IntRange(0, 3).Draw(t, "open") == 0 {
		return storage.OpenEnd
	}
	return drawMs(t)
}

func drawDevice(t *rapid.T) vitals.Name {
	return mustName(rapid.SampledFrom(randomDevices).Draw(t, "device"))
}

func (m *subjectMachine) append(t *rapid.T) {
	device := drawDevice(t)
	var group []*storage.Entry
	for range rapid.IntRange(1, 20).Draw(t, "readings") {
		ms := drawMs(t)
		e := entry(device.String(), ms, []sign{hr(vitals.Hundredths(ms)), spo2(1), rhr(2)}[ms%3])
		e.Reading.Gateway = mustName(rapid.SampledFrom(randomGateways).Draw(t, "gateway"))
		group = append(group, e)
	}
	if err := m.s.Append(group); err != nil {
		t.Fatalf("Append: %v", err)
	}
	for _, e := range group {
		m.model.settle(e, 0)
	}
}

func (m *subjectMachine) assign(t *rapid.T) {
	a := storage.Assignment{
		Device: drawDevice(t), Subject: rapid.SampledFrom(randomSubjects).Draw(t, "subject"),
		FromUnixMs: drawMs(t), ToUnixMs: drawEnd(t),
	}
	want := m.assigned.assign(a)
	if err := m.subjects().Assign(context.Background(), a); !errors.Is(err, want) {
		t.Fatalf("Assign(%v) returned %v, want %v", a, err, want)
	}
}

// drawAssignment mostly draws an assignment that there is, sometimes with another subject.
func (m *subjectMachine) drawAssignment(t *rapid.T) storage.Assignment {
	subject := rapid.SampledFrom(randomSubjects).Draw(t, "subject")
	if len(m.assigned) == 0 || rapid.IntRange(0, 4).Draw(t, "unknown") == 0 {
		return storage.Assignment{Device: drawDevice(t), Subject: subject, FromUnixMs: drawMs(t)}
	}
	a := rapid.SampledFrom(m.assigned).Draw(t, "assignment")
	if rapid.IntRange(0, 3).Draw(t, "its subject") == 0 {
		a.Subject = subject
	}
	return a
}

func (m *subjectMachine) end(t *rapid.T) {
	a := m.drawAssignment(t)
	a.ToUnixMs = drawEnd(t)
	want := m.assigned.end(a)
	if err := m.subjects().EndAssignment(context.Background(), a); !errors.Is(err, want) {
		t.Fatalf("EndAssignment(%v) returned %v, want %v", a, err, want)
	}
}

// erase erases a device in one of four calls: an erasure may take a store long.
func (m *subjectMachine) erase(t *rapid.T) {
	device := drawDevice(t)
	if rapid.IntRange(0, 3).Draw(t, "erase") > 0 {
		return
	}
	got, err := m.subjects().Erase(device)
	want := int64(len(m.model[device]))
	assigned := len(m.assigned)
	delete(m.model, device)
	m.assigned = slices.DeleteFunc(m.assigned, func(a storage.Assignment) bool { return a.Device == device })
	unknown := want == 0 && len(m.assigned) == assigned && errors.Is(err, storage.ErrNotFound)
	if !unknown && (err != nil || got != storage.Erasure{Device: device, Readings: want}) {
		t.Fatalf("Erase(%s) returned %+v, %v, want %d readings", device, got, err, want)
	}
}

// eraseAssignment erases an assignment in one of four calls, with the readings during it.
func (m *subjectMachine) eraseAssignment(t *rapid.T) {
	a := m.drawAssignment(t)
	if rapid.IntRange(0, 3).Draw(t, "erase") > 0 {
		return
	}
	got, err := m.subjects().EraseAssignment(a)
	want, wantErr := m.assigned.erase(m.model, a.Device, a.Subject, a.FromUnixMs)
	if !errors.Is(err, wantErr) || err == nil && got != want {
		t.Fatalf("EraseAssignment(%v) returned %+v, %v, want %+v, %v", a, got, err, want, wantErr)
	}
	wantAll(t, m.s, m.model, 4)
}

func (m *subjectMachine) expire(t *rapid.T) {
	before := drawMs(t)
	got, err := m.subjects().Expire(context.Background(), before, 1<<40)
	if want := m.model.expire(before, 1<<40); err != nil || got != want {
		t.Fatalf("Expire(%d) returned %+v, %v, want %+v", before, got, err, want)
	}
}
