package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/migrate"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A target is a store in memory that can be killed.
type target struct {
	*storetest.Memory
	begun, published bool

	// left is the number of readings after which the process is killed, in the middle of a
	// group. Negative: never.
	left int
	lost error // of Alone
}

var errKilled = errors.New("killed")

func newTarget(records *storetest.Memory) *target { return &target{Memory: records, left: -1} }

func (s *target) Begin() error                { s.begun = true; return nil }
func (s *target) Publish() error              { s.published = true; return nil }
func (s *target) Alone(context.Context) error { return s.lost }

func (s *target) Append(group []*storage.Entry) error {
	if s.left < 0 {
		return s.Memory.Append(group)
	}
	n := min(s.left, len(group))
	if err := s.Memory.Append(group[:n]); err != nil {
		return err
	}
	if s.left -= n; n < len(group) {
		return errKilled
	}
	return nil
}

func (s *target) Assign(ctx context.Context, a storage.Assignment) error {
	if s.left == 0 {
		return errKilled
	}
	if s.left > 0 {
		s.left--
	}
	return s.Memory.Assign(ctx, a)
}

func name(text string) vitals.Name {
	n, err := vitals.ParseName(text)
	if err != nil {
		panic(err)
	}
	return n
}

// all returns the contents of a store as text, and their number.
func all(t rapid.TB, s migrate.Source) (lines []string) {
	devices := make([]storage.Device, 1000)
	n, err := s.Devices(context.Background(), vitals.Name{}, devices)
	try(t, err)
	for _, d := range devices[:n] {
		line := fmt.Sprint(d.Name, d.NewestUnixMs)
		for _, sg := range byField(s.Signs()) {
			if l := d.Latest[sg]; l.Known {
				line += fmt.Sprint(" ", s.Signs().Field(sg), l)
			}
		}
		lines = append(lines, line)
		records := make([]storage.Record, 20_000)
		n, err := s.Scan(context.Background(), storage.Range{Device: d.Name, ToUnixMs: math.MaxInt64}, records)
		try(t, err)
		for _, r := range records[:n] {
			line := fmt.Sprint(d.Name, r.TimeUnixMs, r.ReceivedUnixMs, r.ChangedUnixMs, r.UTCOffset, r.Shared, r.Gateway)
			for _, sg := range byField(s.Signs()) {
				if v, ok := r.Values.Get(sg); ok {
					line += fmt.Sprint(" ", s.Signs().Field(sg), v)
				}
			}
			lines = append(lines, line)
		}
	}
	for _, a := range assignments(t, s) {
		lines = append(lines, fmt.Sprint(a))
	}
	return lines
}

// byField returns signs in an order that does not depend on their numbers.
func byField(signs *vitals.Signs) (all []vitals.Sign) {
	for sg := range signs.All() {
		all = append(all, sg)
	}
	slices.SortFunc(all, func(a, b vitals.Sign) int { return strings.Compare(signs.Field(a), signs.Field(b)) })
	return all
}

// assignments returns the assignments of a store.
func assignments(t rapid.TB, s migrate.Source) []storage.Assignment {
	found := make([]storage.Assignment, 1000)
	n, err := s.Assignments(context.Background(), storage.AssignmentKey{}, found)
	try(t, err)
	return found[:n]
}

// assign adds assignments of devices, one of which has no readings.
func assign(t *rapid.T, s migrate.Source) {
	for _, device := range []string{"a", "b", "no-readings"} {
		at := int64(0)
		for range rapid.IntRange(0, 3).Draw(t, "assignments") {
			a := storage.Assignment{Device: name(device), FromUnixMs: at,
				ToUnixMs: at + rapid.Int64Range(1, 9).Draw(t, "length")}
			a.Subject = rapid.SampledFrom([]storage.Subject{"P-1", "P-2", ""}).Draw(t, "subject")
			if a.Subject == "" { // a span of nobody
				a.By = storage.ByHL7
			}
			if at = a.ToUnixMs; rapid.IntRange(0, 3).Draw(t, "open") == 0 {
				at, a.ToUnixMs = -1, storage.OpenEnd
			}
			try(t, s.Assign(context.Background(), a))
			if at < 0 {
				break
			}
		}
	}
}

// count returns the number of readings of a store.
func count(t rapid.TB, s migrate.Source) int64 {
	devices := make([]storage.Device, 1000)
	n, err := s.Devices(context.Background(), vitals.Name{}, devices)
	try(t, err)
	return int64(len(all(t, s)) - n - len(assignments(t, s)))
}

// draw returns a group of readings with some of the first signs, many of which complete each other.
func draw(t *rapid.T, signs vitals.Sign) (group []*storage.Entry) {
	received := rapid.Int64Range(1, 1<<40).Draw(t, "received") // of the group; a store keeps the time of a later one
	for range rapid.IntRange(0, 60).Draw(t, "readings") {
		r := &vitals.Reading{
			Device:     name(rapid.SampledFrom([]string{"a", "a-1", "b", "c.d"}).Draw(t, "device")),
			TimeUnixMs: rapid.Int64Range(0, 6).Draw(t, "time"),
			UTCOffset: rapid.SampledFrom([]vitals.UTCOffset{0, vitals.MakeUTCOffset(0), vitals.MakeUTCOffset(-210)}).
				Draw(t, "offset"),
		}
		if gateway := rapid.SampledFrom([]string{"", "g1", "g2"}).Draw(t, "gateway"); gateway != "" {
			r.Gateway = name(gateway)
		}
		present := rapid.Uint32Range(1, 1<<signs-1).Draw(t, "signs")
		for sg := range signs {
			v := vitals.Value(40_000 + int(sg))
			if sg > vitals.RestingHeartRate {
				v *= -50
			}
			if present&(1<<sg) != 0 {
				r.Values.Set(sg, v)
			}
		}
		group = append(group, &storage.Entry{Reading: r, ReceivedUnixMs: received})
	}
	return group
}

func equal(t rapid.TB, from, to migrate.Source) {
	t.Helper()
	if got, want := all(t, to), all(t, from); !slices.Equal(got, want) {
		t.Fatalf("the target has\n%q\nand the source\n%q", got, want)
	}
}

// A run that is killed again and again, also between the two readings of a record, and then
// repeated, ends with an equal store.
func TestKilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := storetest.NewMemory()
		try(t, from.Append(draw(t, vitals.NumBuiltIn)))
		assign(t, from)
		o := migrate.Options{From: from, Readings: count(t, from)}
		to := newTarget(storetest.NewMemory())
		for {
			to = newTarget(to.Memory)
			to.left = rapid.IntRange(-1, 20).Draw(t, "killed after")
			o.To = to
			report, err := migrate.Run(t.Context(), o)
			if err == nil {
				if !to.published {
					t.Fatal("the target was not published")
				}
				n := int64(len(storage.Worn(assignments(t, from))))
				if report.Readings != o.Readings || report.Assignments != n {
					t.Fatalf("the report has %d readings and %d assignments, want %d and %d", report.Readings, report.Assignments,
						o.Readings, n)
				}
				break
			}
			if !errors.Is(err, errKilled) || !errors.Is(err, migrate.ErrIncomplete) || to.published {
				t.Fatalf("published %v, %v", to.published, err)
			}
		}
		equal(t, from, to)
	})
}

// Stores with the same records have the same checksums, whatever the order in which they were
// stored, and each difference changes them.
func TestSums(t *testing.T) {
	one := entry("a", 1, 60)
	sums := map[[32]byte]string{}
	for what, change := range map[string]func(*storage.Entry){
		"nothing":  func(*storage.Entry) {},
		"device":   func(e *storage.Entry) { e.Reading.Device = name("b") },
		"time":     func(e *storage.Entry) { e.Reading.TimeUnixMs++ },
		"received": func(e *storage.Entry) { e.ReceivedUnixMs++ },
		"value":    func(e *storage.Entry) { e.Reading.Values.Set(vitals.HeartRate, 61) },
		"sign":     func(e *storage.Entry) { e.Reading.Values.Set(vitals.SpO2, 61) },
		"offset":   func(e *storage.Entry) { e.Reading.UTCOffset = vitals.MakeUTCOffset(0) },
		"gateway":  func(e *storage.Entry) { e.Reading.Gateway = name("g") },
	} {
		e, r := *one, *one.Reading
		e.Reading = &r
		change(&e)
		from := stored(t, &e)
		report, err := migrate.Run(t.Context(), migrate.Options{From: from, To: newTarget(storetest.NewMemory()),
			Readings: 1})
		try(t, err)
		if other, ok := sums[report.SHA256]; ok {
			t.Errorf("the checksums are equal after changing %s and %s", what, other)
		}
		sums[report.SHA256] = what
	}
}

// entry returns a reading with a heart rate.
func entry(device string, timeUnixMs int64, v vitals.Value) *storage.Entry {
	r := &vitals.Reading{Device: name(device), TimeUnixMs: timeUnixMs}
	r.Values.Set(vitals.HeartRate, v)
	return &storage.Entry{Reading: r, ReceivedUnixMs: 1_800_000_000_000}
}

func stored(t *testing.T, group ...*storage.Entry) *storetest.Memory {
	t.Helper()
	m := storetest.NewMemory()
	try(t, m.Append(group))
	return m
}

// A target with anything that the source does not have is refused before anything is written.
func TestRefused(t *testing.T) {
	by := func(gateway string, e *storage.Entry) *storage.Entry {
		e.Reading.Gateway = name(gateway)
		return e
	}
	spo2 := func(e *storage.Entry) *storage.Entry {
		e.Reading.Values = vitals.Values{}
		e.Reading.Values.Set(vitals.SpO2, 9800)
		return e
	}
	received := func(e *storage.Entry) *storage.Entry { e.ReceivedUnixMs++; return e }
	offset := func(e *storage.Entry) *storage.Entry { e.Reading.UTCOffset = vitals.MakeUTCOffset(60); return e }
	source := []*storage.Entry{entry("a", 1, 6000), entry("b", 1, 6000), entry("b", 3, 6000),
		by("g1", entry("c", 1, 6000)), by("g2", spo2(entry("c", 1, 6000)))}
	for _, tt := range []struct {
		what   string
		target []*storage.Entry
		want   string
	}{
		{"another device", []*storage.Entry{entry("aa", 1, 6000)}, "device aa,"},
		{"a device after all", []*storage.Entry{entry("d", 1, 6000)}, "device d,"},
		{"another value", []*storage.Entry{entry("b", 1, 6100)}, "device b"},
		{"another sign", []*storage.Entry{spo2(entry("b", 1, 6100))}, "device b"},
		{"another time", []*storage.Entry{entry("b", 2, 6000)}, "device b"},
		{"a time after all", []*storage.Entry{entry("b", 4, 6000)}, "device b"},
		{"another time of receipt", []*storage.Entry{received(entry("b", 3, 6000))}, "device b"},
		{"another offset", []*storage.Entry{offset(entry("b", 3, 6000))}, "device b"},
		{"a gateway", []*storage.Entry{by("g", entry("b", 3, 6000))}, "device b"},
		{"a record of one gateway", []*storage.Entry{by("g1", entry("c", 1, 6000)), by("g1", spo2(entry("c", 1, 6000)))},
			"device c"},
		{"a part of a record", []*storage.Entry{by("g1", entry("c", 1, 6000))}, "device c"},
	} {
		to := newTarget(stored(t, tt.target...))
		before := all(t, to)
		_, err := migrate.Run(t.Context(), migrate.Options{From: stored(t, source...), To: to, Readings: 4})
		if !errors.Is(err, migrate.ErrDiffers) || !contains(err, tt.want) || contains(err, "6") {
			t.Errorf("a target with %s: %v", tt.what, err)
		}
		if to.begun || to.published || !slices.Equal(all(t, to), before) {
			t.Errorf("a target with %s was changed", tt.what)
		}
	}
}

func contains(err error, text string) bool {
	return err != nil && strings.Contains(err.Error(), text)
}

// A target with other assignments is refused.
func TestRefusedAssignments(t *testing.T) {
	of := func(device string, subject storage.Subject, from, to int64) storage.Assignment {
		return storage.Assignment{Device: name(device), Subject: subject, FromUnixMs: from, ToUnixMs: to}
	}
	for _, a := range []storage.Assignment{of("aa", "P-1", 0, 1), of("b", "P-1", 0, 1), of("b", "P-2", 5, 9),
		of("b", "P-1", 5, 8), of("c", "P-1", 0, 1)} {
		from, to := stored(t, entry("b", 1, 6000)), newTarget(storetest.NewMemory())
		try(t, from.Assign(t.Context(), of("b", "P-1", 5, 9)), to.Assign(t.Context(), a))
		_, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Readings: 1})
		if !errors.Is(err, migrate.ErrDiffers) || !contains(err, "device "+a.Device.String()) ||
			contains(err, string(a.Subject)) || to.begun {
			t.Errorf("a target with %v: %v", a, err)
		}
	}
}

// Spans of nobody between which an assignment was erased are the same as the one that the target makes of them.
func TestErasedBetweenSpans(t *testing.T) {
	var group []*storage.Entry
	for i, subject := range []storage.Subject{"", "P", "", "P", "", "P"} {
		e := entry("a", int64(10*i), 6000)
		e.Recorded, e.Claim = true, &storage.Claim{Subject: subject, Assign: true}
		group = append(group, e)
	}
	from, to := stored(t, group...), newTarget(storetest.NewMemory())
	for _, ms := range []int64{10, 30} {
		_, err := from.EraseAssignment(storage.Assignment{Device: name("a"), Subject: "P", FromUnixMs: ms})
		try(t, err)
	}
	if n := len(assignments(t, from)); n != 4 {
		t.Fatalf("the source has %d assignments, want 4", n)
	}
	for _, copied := range []int64{4, 0} { // the second run finds that nothing is lacking
		to.begun = false
		report, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Readings: 4})
		if err != nil || report.Copied != copied || report.Assignments != 1 || to.begun != (copied > 0) {
			t.Errorf("%+v, %v, begun: %t; want %d copied", report, err, to.begun, copied)
		}
		got := assignments(t, to)
		want := storage.Assignment{Device: name("a"), ToUnixMs: 50, By: storage.ByHL7, NamedUnixMs: 40}
		if len(got) != 2 || !got[0].Same(want) || got[1].FromUnixMs != 50 {
			t.Errorf("the target has %v", got)
		}
	}
}

// A run ends without writing when its context has ended, and when a store is not its own.
func TestEnds(t *testing.T) {
	from := stored(t, entry("a", 1, 6000))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	to := newTarget(storetest.NewMemory())
	if _, err := migrate.Run(ended, migrate.Options{From: from, To: to, Readings: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	to.lost = errors.New("lost")
	if _, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Readings: 1}); !errors.Is(err, to.lost) {
		t.Errorf("a lost lock: %v", err)
	}
	if n := count(t, to); n != 0 || to.published {
		t.Errorf("%d readings were written, published: %v", n, to.published)
	}
	// The source's count includes a reading that its list of devices does not lead to.
	to = newTarget(storetest.NewMemory())
	if _, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Readings: 2}); !errors.Is(err,
		storage.ErrCorrupt) || to.published {
		t.Errorf("a source with a lost device: %v", err)
	}
}

// TestSigns moves signs of a user's own between stores that number them differently.
func TestSigns(t *testing.T) {
	own := storetest.OwnSigns()[:3]
	from := storetest.NewMemory()
	try(t, from.Signs().Define(own))
	var group []*storage.Entry
	for i := range own {
		e := entry("a", int64(i%2), 6000)
		e.Reading.Values.Set(vitals.OwnSign(i), vitals.Value(-1_000_000*i))
		e.Reading.Gateway = name(fmt.Sprintf("g%d", i)) // the first record is shared
		group = append(group, e)
	}
	if err := errors.Join(from.Append(group), from.Signs().Define(own[:1])); err != nil { // the others are retired
		t.Fatal(err)
	}
	want := all(t, from)

	for _, there := range [][]vitals.Definition{nil, own[2:], {own[2], own[0]}, {own[1], own[2]}, own} {
		to := newTarget(storetest.NewMemory())
		try(t, to.Signs().Define(there), to.Signs().Define(migrate.Definitions(from.Signs())))
		for range 2 { // the second run finds that nothing is lacking
			report, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Readings: 2})
			if err != nil || report.Readings != 2 {
				t.Fatalf("%d signs in the target: %v", len(there), err)
			}
			if got := all(t, to); !slices.Equal(got, want) {
				t.Errorf("%d signs in the target: it has\n%q\nwant\n%q", len(there), got, want)
			}
		}
	}

	decimals := slices.Clone(own)
	decimals[1].Decimals++
	unit := slices.Clone(own)
	unit[2].Unit = "kg"
	for field, there := range map[string][]vitals.Definition{own[0].Field: nil, own[1].Field: decimals,
		own[2].Field: unit} {
		to := newTarget(storetest.NewMemory())
		try(t, to.Signs().Define(there))
		if _, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Readings: 2}); !contains(err, field) ||
			to.begun {
			t.Errorf("a target in which %s differs: %v", field, err)
		}
	}
}

// try ends the test if one of errs is not nil.
func try(t rapid.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
