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
	v    vitals.Hundredths
}

func sys(v vitals.Hundredths) sign  { return sign{vitals.Systolic, v} }
func dia(v vitals.Hundredths) sign  { return sign{vitals.Diastolic, v} }
func spo2(v vitals.Hundredths) sign { return sign{vitals.SpO2, v} }
func hr(v vitals.Hundredths) sign   { return sign{vitals.HeartRate, v} }
func rhr(v vitals.Hundredths) sign  { return sign{vitals.RestingHeartRate, v} }

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
	return (&record{Reading: *e.Reading, ReceivedUnixMs: e.ReceivedUnixMs}).public()
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

func mustOpen(t testing.TB, h Harness) storage.Store {
	t.Helper()
	s, err := h.Open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// open opens the store of h and closes it at the end of the check.
func open(t testing.TB, h Harness) storage.Store {
	t.Helper()
	s := mustOpen(t, h)
	t.Cleanup(func() { s.Close() })
	return s
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
	for i, e := range group {
		if e.Outcome == 0 {
			t.Fatalf("Append did not set the outcome of entry %d", i)
		}
	}
}

// mustSettle appends one reading and checks its outcome.
func mustSettle(t testing.TB, s storage.Store, e *storage.Entry, want storage.Outcome) {
	t.Helper()
	mustAppend(t, s, e)
	if e.Outcome != want {
		t.Errorf("%s at %s settled as %s, want %s", e.Reading.Device, describe(recordOf(e)), OutcomeName(e.Outcome), OutcomeName(want))
	}
}

func mustLatest(t testing.TB, s storage.Store, device string) storage.Device {
	t.Helper()
	d, err := s.Latest(context.Background(), mustName(device))
	if err != nil {
		t.Fatalf("Latest(%s): %v", device, err)
	}
	return d
}

// scanPages reads all of r in pages of size records.
func scanPages(t tb, s storage.Store, r storage.Range, size int) []storage.Record {
	t.Helper()
	var all []storage.Record
	for {
		page := make([]storage.Record, size)
		n, err := s.Scan(context.Background(), r, page)
		if err != nil {
			t.Fatalf("Scan(%+v): %v", r, err)
		}
		for _, rec := range page[:n] {
			if rec.TimeUnixMs < r.FromUnixMs || rec.TimeUnixMs >= r.ToUnixMs { // pages would not end
				t.Fatalf("Scan(%+v) returned %s", r, describe(rec))
			}
		}
		all = append(all, page[:n]...)
		if n < size {
			return all
		}
		r = after(r, page[n-1])
	}
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
	var (
		all   []storage.Device
		after vitals.Name
	)
	for {
		page := make([]storage.Device, size)
		n, err := s.Devices(context.Background(), after, page)
		if err != nil {
			t.Fatalf("Devices(after %q): %v", after, err)
		}
		for _, d := range page[:n] {
			if d.Name.Compare(&after) <= 0 { // pages would not end
				t.Fatalf("Devices(after %q) returned %s", after, d.Name)
			}
		}
		all = append(all, page[:n]...)
		if n < size {
			return all
		}
		after = page[n-1].Name
	}
}

func wantRecords(t tb, what string, got, want []storage.Record) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: record %d is missing, want %s", what, i, describe(want[i]))
		case i >= len(want):
			t.Fatalf("%s: record %d is %s, want none", what, i, describe(got[i]))
		case !equal(got[i], want[i]):
			t.Fatalf("%s: record %d is %s, want %s", what, i, describe(got[i]), describe(want[i]))
		}
	}
}

func wantDevices(t tb, what string, got, want []storage.Device) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: device %d is missing, want %+v", what, i, describeDevice(want[i]))
		case i >= len(want):
			t.Fatalf("%s: device %d is %+v, want none", what, i, describeDevice(got[i]))
		case got[i] != want[i]:
			t.Fatalf("%s: device %d is %+v, want %+v", what, i, describeDevice(got[i]), describeDevice(want[i]))
		}
	}
}

// wantAll compares everything in s with the model. It reads s in pages of size.
func wantAll(t tb, s storage.Store, want records, size int) {
	t.Helper()
	devices := want.devices(vitals.Name{})
	wantDevices(t, "devices", devicePages(t, s, size), devices)
	for _, d := range devices {
		got, err := s.Latest(context.Background(), d.Name)
		if err != nil {
			t.Fatalf("Latest(%s): %v", d.Name, err)
		}
		wantDevices(t, "latest", []storage.Device{got}, []storage.Device{d})
		r := allOf(d.Name.String())
		wantRecords(t, "scan of "+d.Name.String(), scanPages(t, s, r, size), want.scan(r))
	}
}

// OutcomeName returns the name of o, for messages.
func OutcomeName(o storage.Outcome) string {
	names := []string{"unsettled", "stored", "completed", "duplicate", "conflict", "too many devices", "awkward name", "withheld", "unreadable"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("Outcome(%d)", o)
}

// describe formats a record of a test. The values of tests are no health data.
func describe(r storage.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d{", r.TimeUnixMs)
	for s := range vitals.Sign(vitals.NumSigns) {
		if v, ok := r.Values.Get(s); ok {
			fmt.Fprintf(&b, "%s:%d ", s, v)
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
	fmt.Fprintf(&b, "at %d}", r.ReceivedUnixMs)
	return b.String()
}

func describeDevice(d storage.Device) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s newest %d{", d.Name, d.NewestUnixMs)
	for s, l := range d.Latest {
		if l.Known || l != (storage.Latest{}) {
			fmt.Fprintf(&b, "%s:%d@%d known=%t ", vitals.Sign(s), l.Value, l.TimeUnixMs, l.Known)
			if minutes, ok := l.UTCOffset.Minutes(); ok {
				fmt.Fprintf(&b, "offset %d min ", minutes)
			}
		}
	}
	b.WriteString("}")
	return b.String()
}
