package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

func checkUnknownDevice(t testing.TB, h Harness) {
	s := open(t, h)
	mustSettle(t, s, entry("dev-1", 5, hr(5)), storage.Stored)
	for _, device := range []string{"dev", "dev-", "dev-0", "dev-10", "dev-2", ""} {
		if _, err := s.Latest(context.Background(), mustName(device)); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Latest(%q) returned %v, want ErrNotFound", device, err)
		}
		wantRecords(t, "scan of "+device, scanPages(t, s, allOf(device), 10), nil)
	}
}

func checkRange(t testing.TB, h Harness) {
	s := open(t, h)
	model := records{}
	for _, ms := range []int64{0, 10, 20, 30, 255, 256, 65535, 65536} {
		settleAll(t, s, model, entry("d", ms, hr(vitals.Value(ms%100))))
	}
	bounds := []int64{-1 << 63, -1, 0, 1, 9, 10, 11, 20, 30, 31, 255, 256, 257, 65536, 65537, endOfTime}
	for _, from := range bounds {
		for _, to := range bounds {
			for _, descending := range []bool{false, true} {
				r := storage.Range{Device: mustName("d"), FromUnixMs: from, ToUnixMs: to, Descending: descending}
				wantRecords(t, fmt.Sprintf("%+v", r), scanPages(t, s, r, 100), model.scan(r))
			}
		}
	}
	n, err := s.Scan(context.Background(), allOf("d"), nil)
	if n != 0 || err != nil {
		t.Errorf("Scan into an empty slice returned %d, %v, want 0, nil", n, err)
	}
}

// checkPagesDuringWrites writes before, into and after a range while it is read in
// pages. No record may be returned twice, and every record that was stored at the
// start must be returned.
func checkPagesDuringWrites(t testing.TB, h Harness) {
	s := open(t, h)
	for _, descending := range []bool{false, true} {
		device := fmt.Sprintf("d-%t", descending)
		model := records{}
		put := func(ms int64, signs ...sign) {
			settleAll(t, s, model, entry(device, ms, signs...))
		}
		for i := range int64(20) {
			put(100+10*i, hr(1))
		}
		initial := model.scan(allOf(device))
		r := allOf(device)
		r.Descending = descending
		var got []int64
		rng := rand.New(rand.NewPCG(1, 2))
		read := func(page []storage.Record) (int, error) {
			n, err := s.Scan(context.Background(), r, page)
			want := model.scan(r)
			wantRecords(t, "page", page[:n], want[:min(len(want), len(page))])
			for _, rec := range page[:n] {
				got = append(got, rec.TimeUnixMs)
			}
			if n == len(page) {
				put(int64(len(got)), hr(1))                // before all
				put(101+rng.Int64N(190)/10*10, hr(2))      // between
				put(1000+int64(len(got)), hr(3))           // after all
				put(100+10*rng.Int64N(20), spo2(9))        // completes
				put(page[0].TimeUnixMs, rhr(1))            // completes the page's first record
				put(page[0].TimeUnixMs+1, hr(1))           // immediately after the first record
				put(max(page[n-1].TimeUnixMs-1, 0), hr(1)) // immediately before the last record
			}
			return n, err
		}
		pages(t, 3, read, func(last storage.Record) { r = after(r, last) })
		sorted := slices.Clone(got)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != len(got) {
			t.Errorf("descending %t: a record was returned twice: %v", descending, got)
		}
		for _, rec := range initial {
			if !slices.Contains(got, rec.TimeUnixMs) {
				t.Errorf("descending %t: the record at %d is missing: %v", descending, rec.TimeUnixMs, got)
			}
		}
	}
}

func checkDevices(t testing.TB, h Harness) {
	s := open(t, h)
	wantDevices(t, "devices of an empty store", devicePages(t, s, 10), nil)
	model := records{}
	for i := range int64(37) {
		settleAll(t, s, model, entry(fmt.Sprintf("dev-%d", i*7%37), i, hr(vitals.Value(i))))
	}
	for size := 1; size <= 38; size++ {
		wantDevices(t, fmt.Sprintf("pages of %d", size), devicePages(t, s, size), model.devices(vitals.Name{}))
	}
	// A page may start after a name that no device has.
	for _, after := range []string{"A", "dev-", "dev-1", "dev-11111", "dev-2.", "dev-36", "dev-9", "z"} {
		got := make([]storage.Device, 50)
		n, err := s.Devices(context.Background(), mustName(after), got)
		if err != nil {
			t.Fatalf("Devices: %v", err)
		}
		wantDevices(t, "devices after "+after, got[:n], model.devices(mustName(after)))
	}
	if n, err := s.Devices(context.Background(), vitals.Name{}, nil); n != 0 || err != nil {
		t.Errorf("Devices into an empty slice returned %d, %v, want 0, nil", n, err)
	}
}

func checkDevicesDuringWrites(t testing.TB, h Harness) {
	s := open(t, h)
	for i := range 20 {
		mustSettle(t, s, entry(fmt.Sprintf("m-%02d", i), 1, hr(1)), storage.Stored)
	}
	var got []string
	after := vitals.Name{}
	read := func(page []storage.Device) (int, error) {
		n, err := s.Devices(context.Background(), after, page)
		for _, d := range page[:n] {
			got = append(got, d.Name.String())
		}
		if k := len(got); n == len(page) {
			mustAppend(t, s,
				entry(fmt.Sprintf("a-%02d", k), 1, hr(1)),
				entry(fmt.Sprintf("m-%02d-", k%20), 1, hr(1)),
				entry(fmt.Sprintf("m-%02d", (k+7)%20), int64(k), hr(1)))
		}
		return n, err
	}
	pages(t, 3, read, func(last storage.Device) { after = last.Name })
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("devices are out of order, or one was returned twice: %v", got)
	}
	for i := range 20 {
		if name := fmt.Sprintf("m-%02d", i); !slices.Contains(got, name) {
			t.Errorf("device %s is missing: %v", name, got)
		}
	}
}

func checkEndedContext(t testing.TB, h Harness) {
	s := open(t, h)
	mustSettle(t, s, entry("d", 1, hr(1)), storage.Stored)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantRefused(t, ctx, s, context.Canceled)
}

// wantRefused checks that every read of s returns an error.
func wantRefused(t testing.TB, ctx context.Context, s store, want error) {
	t.Helper()
	for call, read := range map[string]func() error{
		"Latest":            func() error { _, err := s.Latest(ctx, mustName("d")); return err },
		"Scan":              func() error { _, err := s.Scan(ctx, allOf("d"), make([]storage.Record, 1)); return err },
		"Devices":           func() error { _, err := s.Devices(ctx, vitals.Name{}, make([]storage.Device, 1)); return err },
		"DeviceAssignments": func() error { _, err := s.DeviceAssignments(ctx, mustName("d")); return err },
		"Assign":            func() error { return s.Assign(ctx, assignment("d", "P", 1, 2)) },
		"EndAssignment":     func() error { return s.EndAssignment(ctx, assignment("d", "P", 1, 2)) },
		"Expire":            func() error { _, err := s.Expire(ctx, 10, math.MaxInt64); return err },
	} {
		if err := read(); !errors.Is(err, want) {
			t.Errorf("%s returned %v, want %v", call, err, want)
		}
	}
}
