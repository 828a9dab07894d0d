package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A calendar is the model of the assignments of one device: who wears it in each millisecond.
type calendar struct {
	worn  [calendarMs]int             // id of an assignment; 0 means nobody. What holds in the last one holds for ever.
	bare  [calendarMs]bool            // in a span of nobody, until the last time that was claimed
	known map[int]*storage.Assignment // subject, maker and the time at which it was named
	made  map[int]*storage.Claim      // by claims of the group
}

const calendarMs = 40

func newCalendar() *calendar { return &calendar{known: map[int]*storage.Assignment{}} }

// fill makes nobody's time from a time on that of an assignment, until another one begins.
func (c *calendar) fill(id int, fromMs, toMs int64) {
	for ms := fromMs; ms < toMs && c.worn[ms] == 0; ms++ {
		c.worn[ms], c.bare[ms] = id, false
	}
}

// claimed returns the end of an assignment that a claim makes: a span of nobody ends it, too.
func (c *calendar) claimed(fromMs int64) int64 {
	for ms := fromMs + 1; ms < calendarMs; ms++ {
		if c.bare[ms] {
			return ms
		}
	}
	return calendarMs
}

// leave joins a time to the times of nobody between two assignments.
func (c *calendar) leave(e *storage.Entry) {
	if e.Reading.Values.IsZero() {
		return
	}
	t := e.Reading.TimeUnixMs
	for _, step := range []int64{-1, 1} {
		end := t
		for ms := t; ms >= 0 && ms < calendarMs && c.worn[ms] == 0; ms += step {
			if c.bare[ms] {
				end = ms
				break
			}
		}
		for ms := t; ms != end; ms += step {
			c.bare[ms] = true
		}
	}
	c.bare[t] = true
}

// claim settles the claim of an entry.
func (c *calendar) claim(e *storage.Entry, change bool) storage.Outcome {
	claim, t := e.Claim, e.Reading.TimeUnixMs
	id := c.worn[t]
	if a := c.known[id]; id != 0 {
		switch {
		case claim.Unknown || claim.Subject != "" && claim.Subject != a.Subject:
			return storage.OtherSubject
		case !claim.Assign || a.By == storage.ByHand:
		case claim.Subject != "" && change:
			a.NamedUnixMs = max(a.NamedUnixMs, t)
		case claim.Subject == "" && t > a.NamedUnixMs && !e.Recorded:
			return storage.Unrecorded
		case claim.Subject == "" && t > a.NamedUnixMs && change:
			for ms := t; ms < calendarMs && c.worn[ms] == id; ms++ {
				c.worn[ms] = 0
			}
			c.leave(e)
		}
		return 0
	}
	if claim.Assign && claim.Subject == "" && !claim.Unknown && change {
		c.leave(e)
	}
	if !claim.Assign || claim.Subject == "" || t < claim.SinceUnixMs {
		return 0
	}
	for ms := t; ms < calendarMs && (ms == t || !c.bare[ms]); ms++ {
		if later := c.worn[ms]; later != 0 {
			if c.made[later] == claim {
				id = later // it begins earlier
			}
			break
		}
	}
	if id == 0 && !e.Recorded {
		return storage.Unrecorded
	}
	if change {
		if id == 0 {
			id = len(c.known) + 1
			c.known[id] = &storage.Assignment{Device: e.Reading.Device, Subject: claim.Subject, By: storage.ByHL7,
				NamedUnixMs: t}
			c.made[id] = claim
		}
		c.fill(id, t, c.claimed(t))
	}
	return 0
}

// nobody returns the times of spans of nobody.
func nobody(all []storage.Assignment) (bare [calendarMs]bool) {
	for _, a := range all {
		for ms := a.FromUnixMs; a.Subject == "" && ms <= a.NamedUnixMs; ms++ {
			bare[ms] = true
		}
	}
	return bare
}

// assignments returns the assignments by beginning.
func (c *calendar) assignments() (all []storage.Assignment) {
	last := 0
	for ms, id := range c.worn {
		if id != last && last != 0 {
			all[len(all)-1].ToUnixMs = int64(ms)
		}
		if id != last && id != 0 {
			a := *c.known[id]
			a.FromUnixMs, a.ToUnixMs = int64(ms), storage.OpenEnd
			all = append(all, a)
		}
		last = id
	}
	return all
}

// checkClaims settles random messages that name a patient, another one, nobody or somebody unknown, in any order of
// their times, several in a group, between assignments by hand, and compares everything with the model. Readings
// contradict others, and devices have reserved names: a rejected reading changes no assignment. There are twice as many
// rounds as -rapid.checks says.
func checkClaims(t testing.TB, h Harness) {
	checks, err := strconv.ParseUint(flag.Lookup("rapid.checks").Value.String(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range 2 * checks {
		checkRandomClaims(t, h, rand.New(rand.NewPCG(seed, 54)), fmt.Sprintf("s%d-", seed))
	}
}

func checkRandomClaims(t testing.TB, h Harness, r *rand.Rand, prefix string) {
	s := mustOpen(t, h.Open)
	defer func() { mustClose(t, s) }()
	ctx := context.Background()
	devices := []string{prefix + "a", prefix + "b", "-" + prefix}
	model, calendars := records{}, map[vitals.Name]*calendar{}
	for _, d := range devices {
		calendars[mustName(d)] = newCalendar()
	}
	claim := func(e *storage.Entry, change bool) storage.Outcome {
		if e.Claim == nil {
			return 0
		}
		return calendars[e.Reading.Device].claim(e, change)
	}
	subjects, page := []storage.Subject{"P", "P", "Q", ""}, make([]storage.Assignment, 4*calendarMs)
	for step := range 30 {
		switch device := mustName(devices[r.IntN(2)]); r.IntN(5) {
		case 0: // by hand
			c, a := calendars[device], storage.Assignment{Device: device, Subject: subjects[r.IntN(3)],
				FromUnixMs: r.Int64N(calendarMs)}
			a.ToUnixMs = a.FromUnixMs + 1 + r.Int64N(calendarMs-a.FromUnixMs)
			want := error(nil)
			if slices.ContainsFunc(c.worn[a.FromUnixMs:a.ToUnixMs], func(id int) bool { return id != 0 }) {
				want = storage.ErrAssigned
			}
			end := a.ToUnixMs
			if end == calendarMs {
				a.ToUnixMs = storage.OpenEnd
			}
			for _, known := range c.assignments() { // one that HL7 has made becomes that of the hand
				if known.By = storage.ByHand; known.FromUnixMs == a.FromUnixMs && known.ToUnixMs == a.ToUnixMs &&
					known.Subject == a.Subject {
					id := c.worn[a.FromUnixMs]
					want, c.known[id].By, c.known[id].NamedUnixMs = nil, storage.ByHand, 0
					end = a.FromUnixMs
				}
			}
			if err := s.Assign(ctx, a); !errors.Is(err, want) {
				t.Fatalf("%s step %d: Assign(%v) returned %v, want %v", prefix, step, a, err, want)
			}
			if want == nil && end > a.FromUnixMs {
				id := len(c.known) + 1
				c.known[id] = &storage.Assignment{Device: device, Subject: a.Subject}
				c.fill(id, a.FromUnixMs, end)
			}
		case 1: // an end by hand
			c := calendars[device]
			all := c.assignments()
			if len(all) == 0 {
				continue
			}
			a := all[r.IntN(len(all))]
			id := c.worn[a.FromUnixMs]
			a.ToUnixMs, a.By, a.NamedUnixMs = a.FromUnixMs+1+r.Int64N(calendarMs-a.FromUnixMs), storage.ByHand, 0
			if a.ToUnixMs == calendarMs ||
				slices.ContainsFunc(c.worn[a.FromUnixMs:a.ToUnixMs], func(other int) bool { return other != 0 && other != id }) {
				continue
			}
			if err := s.EndAssignment(ctx, a); err != nil {
				t.Fatalf("%s step %d: EndAssignment(%v): %v", prefix, step, a, err)
			}
			for ms := range c.worn {
				if c.worn[ms] == id {
					c.worn[ms] = 0
				}
			}
			c.known[id].By, c.known[id].NamedUnixMs = storage.ByHand, 0
			c.fill(id, a.FromUnixMs, a.ToUnixMs)
		default:
			var group []*storage.Entry
			for range 1 + r.IntN(3) {
				c := &storage.Claim{Subject: subjects[r.IntN(4)], Assign: r.IntN(8) > 0, SinceUnixMs: r.Int64N(10)}
				if r.IntN(10) == 0 {
					c.Subject, c.Unknown = "", true
				}
				recorded := r.IntN(6) > 0
				for range 1 + r.IntN(4) {
					e := entry(devices[r.IntN(20)*len(devices)/20], r.Int64N(calendarMs), hr(vitals.Value(60+r.IntN(20)/19)))
					if e.Recorded = recorded; r.IntN(12) > 0 {
						e.Claim = c
					}
					if c.Subject == "" && !c.Unknown && e.Claim != nil && r.IntN(3) == 0 { // nothing was measured
						e.Reading.Values = vitals.Values{}
					}
					group = append(group, e)
				}
			}
			if r.IntN(3) == 0 { // entries without a claim may be a unit
				group = append(group, unit(entry(devices[0], r.Int64N(calendarMs), hr(60)),
					entry(devices[1], r.Int64N(calendarMs), hr(60)))...)
			}
			for _, c := range calendars {
				c.made = map[int]*storage.Claim{}
			}
			settleClaims(t, s, model, claim, group...)
		}
		for device, c := range calendars {
			got, err := s.DeviceAssignments(ctx, device)
			if want := c.assignments(); err != nil || !sameAssignments(got, want) {
				t.Fatalf("%s step %d: the assignments of %s are %v, %v, want %v", prefix, step, device, got, err, want)
			}
			if step%10 < 9 {
				continue
			}
			n, err := s.Assignments(ctx, storage.AssignmentKey{Device: device, FromUnixMs: -1}, page)
			all := slices.DeleteFunc(slices.Clone(page[:n]), func(a storage.Assignment) bool { return a.Device != device })
			if err != nil || nobody(all) != c.bare {
				t.Fatalf("%s step %d: the spans of %s are in %v, %v, want %v", prefix, step, device, all, err, c.bare)
			}
		}
		if r.IntN(15) == 0 {
			s = reopen(t, s, h)
		}
	}
	for device := range model {
		wantRecords(t, "records of "+device.String(), scanPages(t, s, allOf(device.String()), 7),
			model.scan(allOf(device.String())))
	}
}

// checkClaimOrder settles the claims of a patient and of nobody in random orders. The result is that of the order of
// their times: each reading belongs to whom its claim names. Only a claim of nobody that is settled when a later
// reading has named the patient of its time changes nothing.
func checkClaimOrder(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	defer func() { mustClose(t, s) }()
	type round struct {
		entries []*storage.Entry // in the order in which they are settled
		late    map[*storage.Entry]bool
		all     []storage.Assignment
	}
	r := rand.New(rand.NewPCG(1, 54))
	rounds := make([]round, 300)
	for i := range rounds {
		rounds[i].late = map[*storage.Entry]bool{}
		for _, ms := range r.Perm(2 + r.IntN(7)) {
			e := entry(fmt.Sprint("d", i), 10*int64(ms), hr(60))
			e.Claim, e.Recorded = &storage.Claim{Subject: []storage.Subject{"", "P"}[r.IntN(2)], Assign: true}, true
			rounds[i].entries = append(rounds[i].entries, e)
		}
	}
	for n := range 8 {
		var group []*storage.Entry
		for i := range rounds {
			if x := &rounds[i]; n < len(x.entries) {
				e := x.entries[n]
				a := storage.SpanAt(x.all, e.Reading.TimeUnixMs)
				x.late[e] = e.Claim.Subject == "" && a.Subject != "" && a.NamedUnixMs > e.Reading.TimeUnixMs
				group = append(group, e)
			}
		}
		mustAppend(t, s, group...)
		for i := range rounds {
			x := &rounds[i]
			var err error
			if x.all, err = s.DeviceAssignments(context.Background(), x.entries[0].Reading.Device); err != nil {
				t.Fatal(err)
			}
			for _, e := range x.entries[:min(n+1, len(x.entries))] {
				of := storage.SubjectAt(x.all, e.Reading.TimeUnixMs)
				if e.Outcome != storage.Stored || of != e.Claim.Subject && !x.late[e] {
					for _, e := range x.entries[:n+1] {
						t.Logf("%d: %q", e.Reading.TimeUnixMs, e.Claim.Subject)
					}
					t.Fatalf("round %d: %d belongs to %q: %v", i, e.Reading.TimeUnixMs, of, x.all)
				}
			}
		}
	}
}

// checkClaimRace claims devices for several subjects at the same time, through two nodes if the store has them, and
// assigns them by hand meanwhile: of those that contradict each other, one is made.
func checkClaimRace(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	defer mustClose(t, s)
	stores := []store{s, s}
	if h.OpenNode != nil {
		stores[1] = openNode(t, h)
	}
	var alone sync.Mutex
	devices := []string{"a", "b", "c"}
	for round := range int64(8) {
		group := make([][]*storage.Entry, 4)
		var running sync.WaitGroup
		begin := make(chan struct{})
		for i := range group {
			c := &storage.Claim{Subject: storage.Subject(fmt.Sprint("P-", i)), Assign: true}
			for n := range devices { // in different orders
				e := entry(devices[(n+i)%len(devices)], 100*round+int64(i), hr(60))
				e.Claim, e.Recorded = c, true
				group[i] = append(group[i], e)
			}
			running.Go(func() {
				<-begin
				if !h.Concurrent {
					alone.Lock()
					defer alone.Unlock()
				}
				if err := stores[i%2].Append(group[i]); err != nil {
					t.Errorf("Append: %v", err)
				}
			})
		}
		running.Go(func() {
			<-begin
			err := stores[1].Assign(context.Background(), assignment(devices[0], "P-0", 100*round, 100*round+50))
			if err != nil && !errors.Is(err, storage.ErrAssigned) {
				t.Errorf("Assign: %v", err)
			}
		})
		close(begin)
		running.Wait()
		for _, device := range devices {
			all, err := s.DeviceAssignments(context.Background(), mustName(device))
			if err != nil {
				t.Fatal(err)
			}
			for i := range all[min(1, len(all)):] {
				if all[i].ToUnixMs > all[i+1].FromUnixMs {
					t.Fatalf("round %d: assignments of %s overlap: %v", round, device, all)
				}
			}
			for i := range group { // what is stored belongs to the subject that its claim named
				for _, e := range group[i] {
					of := storage.SubjectAt(all, e.Reading.TimeUnixMs)
					if e.Reading.Device == mustName(device) && (e.Outcome == storage.Stored) != (of == e.Claim.Subject) {
						t.Fatalf("round %d: %s claimed %s and got %s, but %q wears it: %v", round, e.Claim.Subject, device,
							OutcomeName(e.Outcome), of, all)
					}
				}
			}
			// End the last one, so that the next round begins with nobody.
			last := all[len(all)-1]
			last.ToUnixMs, last.By, last.NamedUnixMs = 100*round+60, storage.ByHand, 0
			if err := s.EndAssignment(context.Background(), last); err != nil {
				t.Fatal(err)
			}
		}
	}
}
