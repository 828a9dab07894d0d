package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// removable stores some readings in s.
func removable(t testing.TB, s store) (model records) {
	model = records{}
	group := []*storage.Entry{
		entry("a", 10, hr(1)), entry("a", 20, hr(2), spo2(3)), entry("a", 30, hr(4)),
		entry("a-", 15, hr(5)), entry("a-", 25, rhr(6)),
		entry("a-1", 20, hr(7)),
		entry("b", 9, hr(8)), entry("b", 10, hr(9)), entry("b", 11, hr(10), spo2(11)), entry("b", 40, hr(12)),
	}
	for i := range int64(200) { // more than a store keeps in memory per device
		group = append(group, entry("many", 1+i, hr(vitals.Value(1+i))))
	}
	for i, e := range group {
		if i%3 > 0 {
			offset(i, e)
		}
	}
	settleAll(t, s, model, group...)
	return model
}

// mustErase erases a device that has readings.
func mustErase(t testing.TB, s store, model records, device string) {
	t.Helper()
	want := storage.Erasure{Device: mustName(device), Readings: int64(len(model[mustName(device)]))}
	delete(model, mustName(device))
	got, err := s.Erase(mustName(device))
	compare(t, "Erase of "+device, got, err, want, nil)
	wantAll(t, s, model, 3)
}

func mustExpire(t testing.TB, s store, model records, before int64) {
	t.Helper()
	want := model.expire(before, math.MaxInt64)
	got, err := s.Expire(context.Background(), before, math.MaxInt64)
	compare(t, "Expire", got, err, want, nil)
	wantAll(t, s, model, 3)
}

// checkErase erases devices, among them one whose name is a prefix of others, and
// stores readings of them again.
func checkErase(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	model := removable(t, s)
	for _, device := range []string{"a", "many", "b"} {
		mustErase(t, s, model, device)
		if got, err := s.Erase(mustName(device)); !errors.Is(err, storage.ErrNotFound) && (err != nil || got.Readings != 0) {
			t.Errorf("the second Erase(%s) returned %+v, %v, want ErrNotFound or no readings", device, got, err)
		}
		settleAll(t, s, model, entry(device, 20, hr(99)), entry("a-", 15, hr(5)), entry(device, 10, spo2(1)))
		wantAll(t, s, model, 3)
	}
	s = reopen(t, s, h)
	wantAll(t, s, model, 3)
	mustClose(t, s)
}

// checkEraseValues erases values of readings that several gateways have sent, completed, and sent with several signs,
// also in segments, and stores them again.
func checkEraseValues(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	model := NewMemory()
	var group []*storage.Entry
	for ms := range int64(600) { // more than a store keeps in memory per device, and than a small segment
		group = append(group, by([]string{"g1", "g2", ""}[ms/40%3], entry("a", ms, hr(vitals.Value(1+ms)))))
		if ms%3 > 0 {
			group[len(group)-1].Reading.Values.Set([]vitals.Sign{vitals.SpO2, vitals.Systolic}[ms%2], vitals.Value(ms))
		}
		if ms%5 == 0 { // completes it, by the same gateway or another one
			group = append(group, by("g1", entry("a", ms, dia(vitals.Value(ms)))))
		}
	}
	group = append(group, by("g1", entry("a-", 15, hr(1))), by("g1", entry("a-1", 15, hr(1), spo2(2))))
	settleAll(t, s, model.records, group...)
	ctx, worn := context.Background(), assignment("a", "P", 0, storage.OpenEnd)
	if err := errors.Join(s.Assign(ctx, worn), model.Assign(ctx, worn)); err != nil {
		t.Fatal(err)
	}
	of := func(device string, from, to int64, signs uint32, gateway string, shared bool) storage.Erasure {
		return storage.Erasure{
			Device: mustName(device), FromUnixMs: from, ToUnixMs: to, Signs: signs, Gateway: mustName(gateway), Shared: shared,
		}
	}
	const beats, saturation = 1 << vitals.HeartRate, 1 << vitals.SpO2
	for i, e := range []storage.Erasure{
		of("a", 590, storage.OpenEnd, beats, "", false), // the latest values
		of("a", 10, 20, 0, "", false),
		of("a", 10, 20, 0, "", false), // nothing is left of it
		of("a", 0, 300, saturation, "g1", false),
		of("a", 30, 130, 0, "g1", false),
		of("a", 30, 130, 0, "g2", true),
		of("a", 0, storage.OpenEnd, 0, "unknown", true),
		of("a", 0, storage.OpenEnd, 1<<31, "", false),
		of("a", 599, 600, 0, "", false), // the newest reading
		of("a", 599, 600, 0, "", false),
		of("a", 0, storage.OpenEnd, beats, "", false),
		of("a-", 15, 16, beats, "g1", false), // all that the device has
		of("a-1", 0, storage.OpenEnd, 0, "g1", false),
		of("b", 0, storage.OpenEnd, 0, "", false), // an unknown one
		of("a", 20, 20, 0, "", false),
		of("a", -1, 20, 0, "", false),
		of("a", 0, storage.OpenEnd, 0, "", false),
	} {
		got, err := s.EraseValues(e)
		want, wantErr := model.EraseValues(e)
		compare(t, fmt.Sprintf("EraseValues(%+v)", e), got, err, want, wantErr)
		wantAll(t, s, model.records, 50)
		wantAssignments(t, s, model.assigned, 2)
		if h.Crash != nil && i%3 == 1 {
			h.Crash(0, uint64(i))
			s = mustOpen(t, h.Open)
			wantAll(t, s, model.records, 50)
		}
		// A value that was removed is new.
		settleAll(t, s, model.records, by("g1", entry("a", 15, spo2(77))), by("g2", entry("a", 125, hr(9))),
			by("g1", entry("a-1", 16, hr(2))))
		wantAll(t, s, model.records, 50)
	}
	wantAssignments(t, s, model.assigned, 2)
	mustClose(t, s)
}

// checkRemovedDevice checks that a removed device no longer counts towards the limit
// on devices.
func checkRemovedDevice(t testing.TB, h Harness) {
	s := mustOpen(t, func() (storage.Store, error) { return h.OpenLimited(5) })
	model := removable(t, s)
	mustSettle(t, s, entry("c", 1, hr(1)), storage.TooManyDevices) // a sixth device
	mustErase(t, s, model, "a-1")
	settleAll(t, s, model, entry("c", 100, hr(1)))
	mustExpire(t, s, model, 30) // leaves a, b, c and many
	settleAll(t, s, model, entry("d", 100, hr(1)), entry("a", 100, hr(1)), entry("many", 50, hr(50)))
	wantAll(t, s, model, 3)
	mustSettle(t, s, entry("e", 100, hr(1)), storage.TooManyDevices)
	mustClose(t, s)
}

// checkEraseDuringScans reads a device in both orders, page by page, while values, an assignment of it and then the
// device are erased: what ends without an error has all readings of a state before or after an erasure. Stores may
// erase in several steps, which a scan must not show.
func checkEraseDuringScans(t testing.TB, h Harness) {
	s := open(t, h)
	const n = 12_000
	a := storage.Assignment{Device: mustName("a"), Subject: "p", FromUnixMs: 3, ToUnixMs: n - 3}
	var group []*storage.Entry
	for i := range int64(n) {
		group = append(group, entry("a", i, hr(1)))
	}
	for range 2 {
		if err := s.Assign(context.Background(), a); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			erase func() (storage.Erasure, error)
			left  []int // numbers of readings before and after
		}{
			{func() (storage.Erasure, error) {
				return s.EraseValues(storage.Erasure{Device: a.Device, ToUnixMs: n - 6, Signs: 1 << vitals.HeartRate})
			}, []int{n, 6}},
			{func() (storage.Erasure, error) { return s.EraseAssignment(a) }, []int{n, 6}},
			{func() (storage.Erasure, error) { return s.Erase(a.Device) }, []int{n, 0}},
		} {
			mustAppend(t, s, group...)
			done := make(chan error, 1)
			go func() {
				_, err := tt.erase()
				done <- err
			}()
			for ended := false; !ended; {
				select {
				case err := <-done:
					if err != nil {
						t.Errorf("erase: %v", err)
					}
					ended = true
				default:
				}
				for _, descending := range []bool{false, true} {
					read := scanWhole(t, s, storage.Range{Device: a.Device, ToUnixMs: n, Descending: descending})
					if read >= 0 && !slices.Contains(tt.left, read) {
						t.Errorf("during an erasure, a scan (descending: %v) ended with %d readings, want one of %d", descending,
							read, tt.left)
					}
				}
			}
		}
	}
}

// scanWhole returns the number of readings of a range, or -1 if some were removed while they were read.
func scanWhole(t testing.TB, s store, r storage.Range) (n int) {
	scanner, page := storage.Scanner{Range: r}, make([]storage.Record, 1000)
	for more := true; more; {
		var records []storage.Record
		var err error
		records, more, err = scanner.Next(context.Background(), s.Scan, page)
		if errors.Is(err, storage.ErrRemoved) {
			return -1
		} else if err != nil {
			t.Error(err)
			return -1
		}
		n += len(records)
	}
	return n
}

// checkCrashAfterRemoval loses power immediately after a removal.
func checkCrashAfterRemoval(t testing.TB, h Harness) {
	needCrash(t, h)
	s := mustOpen(t, h.Open)
	model := removable(t, s)
	crash := func() {
		h.Crash(0, 1)
		s = mustOpen(t, h.Open)
		wantAll(t, s, model, 3)
	}
	mustErase(t, s, model, "a")
	crash()
	settleAll(t, s, model, entry("a", 20, hr(2)), entry("a", 21, hr(2)))
	mustExpire(t, s, model, 21)
	crash()
	mustClose(t, s)
}
