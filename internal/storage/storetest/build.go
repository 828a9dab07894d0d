package storetest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// tb has the methods that the helpers need and that testing.TB and rapid.T share.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// endOfTime is an exclusive bound that excludes only a reading at the last
// millisecond.
const endOfTime = math.MaxInt64

// receivedUnixMs is the default time of receipt of the checks' readings.
const receivedUnixMs = 1_800_000_000_000

// A sign is one value of a reading.
type sign struct {
	sign vitals.Sign
	v    vitals.Value
}

func sys(v vitals.Value) sign  { return sign{vitals.Systolic, v} }
func dia(v vitals.Value) sign  { return sign{vitals.Diastolic, v} }
func spo2(v vitals.Value) sign { return sign{vitals.SpO2, v} }
func hr(v vitals.Value) sign   { return sign{vitals.HeartRate, v} }
func rhr(v vitals.Value) sign  { return sign{vitals.RestingHeartRate, v} }

func mustName(s string) vitals.Name {
	if s == "" {
		return vitals.Name{}
	}
	n, err := vitals.ParseName(s)
	if err != nil {
		panic(err)
	}
	return n
}

func valuesOf(signs ...sign) vitals.Values {
	var vs vitals.Values
	for _, s := range signs {
		vs.Set(s.sign, s.v)
	}
	return vs
}

// entry returns an unsettled reading.
func entry(device string, timeUnixMs int64, signs ...sign) *storage.Entry {
	return &storage.Entry{
		Reading:        &vitals.Reading{Device: mustName(device), TimeUnixMs: timeUnixMs, Values: valuesOf(signs...)},
		ReceivedUnixMs: receivedUnixMs,
	}
}

// by sets the gateway of e.
func by(gateway string, e *storage.Entry) *storage.Entry {
	e.Reading.Gateway = mustName(gateway)
	return e
}

// at sets the time of receipt of e.
func at(receivedUnixMs int64, e *storage.Entry) *storage.Entry {
	e.ReceivedUnixMs = receivedUnixMs
	return e
}

// offset sets the offset from UTC of e.
func offset(minutes int, e *storage.Entry) *storage.Entry {
	e.Reading.UTCOffset = vitals.MakeUTCOffset(minutes)
	return e
}

// recordOf returns the record that e creates if its device and time have none.
func recordOf(e *storage.Entry) storage.Record {
	r := *e.Reading
	rec := storage.Record{TimeUnixMs: r.TimeUnixMs, ReceivedUnixMs: e.ReceivedUnixMs, Values: r.Values,
		UTCOffset: r.UTCOffset}
	if !r.Gateway.IsZero() {
		rec.Gateway = &r.Gateway
	}
	return rec
}

// shared returns the record that e creates if another gateway completes it.
func shared(e *storage.Entry) storage.Record {
	r := recordOf(e)
	r.Shared = true
	return r
}

// equal reports whether a and b are equal. Their gateways are compared by name.
func equal(a, b storage.Record) bool {
	if a.Gateway != nil && b.Gateway != nil && *a.Gateway == *b.Gateway {
		a.Gateway = b.Gateway
	}
	return a == b
}

// A store is what the suite requires.
type store interface {
	storage.Store
	storage.Remover
	storage.Subjects
}

func mustOpen(t tb, open func() (storage.Store, error)) store {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s.(store)
}

// open opens the store of h and closes it at the end of the check.
func open(t testing.TB, h Harness) store {
	t.Helper()
	s := mustOpen(t, h.Open)
	t.Cleanup(func() { s.Close() })
	return s
}

// reopen closes s and opens it again.
func reopen(t tb, s storage.Store, h Harness) store {
	t.Helper()
	mustClose(t, s)
	return mustOpen(t, h.Open)
}

func mustClose(t tb, s storage.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

func mustAppend(t tb, s storage.Store, group ...*storage.Entry) {
	t.Helper()
	if err := s.Append(group); err != nil {
		t.Fatalf("Append of %d readings: %v", len(group), err)
	}
	for i := 0; i < len(group); {
		unit := group[i : i+storage.UnitLen(group[i:])]
		unset, rejected := 0, 0
		for _, e := range unit {
			switch {
			case e.Outcome == 0:
				unset++
			case e.Outcome > storage.Duplicate:
				rejected++
			}
		}
		// In a unit, one is rejected and all others are not settled, or all are stored.
		if unset+rejected > 0 && (rejected != 1 || unset != len(unit)-1) {
			t.Fatalf("the unit of entry %d has %d entries, of which %d have no outcome and %d are rejected", i, len(unit),
				unset, rejected)
		}
		i += len(unit)
	}
}

// unit makes entries a unit.
func unit(all ...*storage.Entry) []*storage.Entry {
	all[0].Unit = int32(len(all))
	return all
}

// mustSettle appends one reading and checks its outcome.
func mustSettle(t testing.TB, s storage.Store, e *storage.Entry, want storage.Outcome) {
	t.Helper()
	mustAppend(t, s, e)
	wantOutcome(t, e, want)
}

func wantOutcome(t tb, e *storage.Entry, want storage.Outcome) {
	t.Helper()
	if e.Outcome != want {
		t.Errorf("%s at %s settled as %s, want %s", e.Reading.Device, describe(recordOf(e)), OutcomeName(e.Outcome),
			OutcomeName(want))
	}
}

// settleAll appends a group and compares its outcomes with the model's.
func settleAll(t tb, s storage.Store, model records, group ...*storage.Entry) {
	t.Helper()
	settleClaims(t, s, model, noClaims, group...)
}

// settleClaims is settleAll with entries that have claims.
func settleClaims(t tb, s storage.Store, model records, claim claimer, group ...*storage.Entry) {
	t.Helper()
	mustAppend(t, s, group...)
	for i, want := range model.settleGroup(group, 0, claim) {
		if e := group[i]; e.Outcome != want.outcome || want.outcome == storage.Conflict && e.Sign != want.sign {
			t.Fatalf("reading %d, of %s at %s, settled as %s (sign %d), want %s (sign %d)", i, e.Reading.Device,
				describe(recordOf(e)),
				OutcomeName(e.Outcome), e.Sign, OutcomeName(want.outcome), want.sign)
		}
	}
}

// pages reads everything in pages of size, and calls next with the last element of each, after
// which the following page begins.
func pages[T any](t tb, size int, read func(page []T) (int, error), next func(last T)) (all []T) {
	t.Helper()
	for {
		page := make([]T, size)
		n, err := read(page)
		if err != nil {
			t.Fatalf("reading a page: %v", err)
		}
		if all = append(all, page[:n]...); n < size {
			return all
		}
		if next(page[n-1]); len(all) > 100_000 {
			t.Fatalf("the pages do not end")
		}
	}
}

// scanPages reads all of r in pages of size records.
func scanPages(t tb, s storage.Store, r storage.Range, size int) []storage.Record {
	t.Helper()
	return pages(t, size, func(page []storage.Record) (int, error) { return s.Scan(context.Background(), r, page) },
		func(last storage.Record) { r = after(r, last) })
}

// after returns the part of r that follows the record last.
func after(r storage.Range, last storage.Record) storage.Range {
	if r.Descending {
		r.ToUnixMs = last.TimeUnixMs
	} else {
		r.FromUnixMs = last.TimeUnixMs + 1
	}
	return r
}

// allOf returns the range of all records of a device.
func allOf(device string) storage.Range {
	return storage.Range{Device: mustName(device), ToUnixMs: endOfTime}
}

// devicePages reads all devices in pages of size devices.
func devicePages(t tb, s storage.Store, size int) []storage.Device {
	t.Helper()
	var after vitals.Name
	return pages(t, size, func(page []storage.Device) (int, error) { return s.Devices(context.Background(), after, page) },
		func(last storage.Device) { after = last.Name })
}

func wantRecords(t tb, what string, got, want []storage.Record) {
	t.Helper()
	wantEach(t, what, got, want, equal, describe)
}

func wantDevices(t tb, what string, got, want []storage.Device) {
	t.Helper()
	wantEach(t, what, got, want, func(a, b storage.Device) bool { return a == b }, describeDevice)
}

func wantEach[T any](t tb, what string, got, want []T, equal func(a, b T) bool, describe func(T) string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: number %d is missing, want %s", what, i, describe(want[i]))
		case i >= len(want):
			t.Fatalf("%s: number %d is %s, want none", what, i, describe(got[i]))
		case !equal(got[i], want[i]):
			t.Fatalf("%s: number %d is %s, want %s", what, i, describe(got[i]), describe(want[i]))
		}
	}
}

// wantAll compares everything in s with the model. It reads s in pages of size.
func wantAll(t tb, s storage.Store, want records, size int) {
	t.Helper()
	devices := want.devices(vitals.Name{})
	wantDevices(t, "devices", devicePages(t, s, size), devices)
	for _, d := range devices {
		wantLatest(t, s, d)
		r := allOf(d.Name.String())
		wantRecords(t, "scan of "+d.Name.String(), scanPages(t, s, r, size), want.scan(r))
	}
}

func wantLatest(t tb, s storage.Store, want storage.Device) {
	t.Helper()
	got, err := s.Latest(context.Background(), want.Name)
	if err != nil {
		t.Fatalf("Latest(%s): %v", want.Name, err)
	}
	wantDevices(t, "latest", []storage.Device{got}, []storage.Device{want})
}

// OutcomeName returns the name of o, for messages.
func OutcomeName(o storage.Outcome) string {
	names := []string{"unsettled", "stored", "completed", "duplicate", "conflict", "too many devices", "awkward name",
		"withheld", "unreadable", "unavailable", "other subject", "too many assignments", "unrecorded"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("Outcome(%d)", o)
}

// describe formats a record of a test. The values of tests are no health data.
func describe(r storage.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d{", r.TimeUnixMs)
	for s := range vitals.Sign(vitals.MaxSigns) {
		if v, ok := r.Values.Get(s); ok {
			fmt.Fprintf(&b, "%d:%d ", s, v)
		}
	}
	if r.Gateway != nil {
		fmt.Fprintf(&b, "by %q ", *r.Gateway)
	}
	if minutes, ok := r.UTCOffset.Minutes(); ok {
		fmt.Fprintf(&b, "offset %d min ", minutes)
	}
	if r.Shared {
		b.WriteString("shared ")
	}
	fmt.Fprintf(&b, "at %d", r.ReceivedUnixMs)
	if r.ChangedUnixMs != 0 {
		fmt.Fprintf(&b, ", changed %d", r.ChangedUnixMs)
	}
	b.WriteByte('}')
	return b.String()
}

func describeDevice(d storage.Device) string { return fmt.Sprintf("%+v", d) }
