package pgstore_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestColumnHeld opens a server with a new sign while somebody keeps the table of readings from getting its column: it
// rejects readings with the sign until it has got it, and stores others, as servers do that run already.
func TestColumnHeld(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	other := open(t, o)
	mustStore(t, other, reading("d", 1, 7200))
	long := connect(t, server)
	defer long.Close(context.Background())
	mustExecute(t, long, "BEGIN")
	mustExecute(t, long, "SELECT FROM "+o.Schema+".readings")
	o.Signs, o.Timeout = ownSigns(), time.Second
	s := open(t, o)
	own := vitals.OwnSign(0)
	group := func(ms int64) []*storage.Entry {
		return []*storage.Entry{with(reading("d", ms, 7200), own, 5), reading("d", ms+1, 7200)}
	}
	held := group(10)
	polltest.Until(t, "a group is stored in a second", func() bool { return s.Append(held) == nil })
	if held[0].Outcome != storage.Unavailable || held[1].Outcome > storage.Duplicate {
		t.Errorf("readings with and without the sign got %s and %s, want unavailable and stored",
			outcomeName(held[0].Outcome), outcomeName(held[1].Outcome))
	}
	mustStore(t, other, reading("d", 20, 7200))
	mustExecute(t, long, "ROLLBACK")
	polltest.Until(t, "readings with the sign are stored", func() bool {
		again := group(30)
		return s.Append(again) == nil && (again[0].Outcome == storage.Stored || again[0].Outcome == storage.Duplicate)
	})
	mustStore(t, other, reading("d", 40, 7200))
	for i, node := range []*pgstore.Store{s, other} {
		if got := records(t, node, "d"); len(got) != 6 ||
			!slices.ContainsFunc(got, func(v vitals.Values) bool { return v.Has(own) }) {
			t.Errorf("server %d reads %v", i, got)
		}
	}
}

// TestSealedSigns seals readings with several signs, one of which is a user's own with three decimals: all but the
// newest are sealed, and read back equal. With -test.v, it reports the bytes of a value.
func TestSealedSigns(t *testing.T) {
	const readings, group = 40_000, 2000
	server := sharedServer(t)
	o := options(server)
	o.Signs, o.SealAtLeast = []vitals.Definition{storetest.OwnSigns()[3]}, 1 // three decimals
	s := open(t, o)
	own := vitals.OwnSign(0)
	walk := func(i, low, high, step int64) vitals.Value { // up and down
		n := (high - low) / step
		at := i % (2 * n)
		return vitals.Value(low + step*min(at, 2*n-at))
	}
	var want []storage.Record
	for from := int64(0); from < readings; from += group {
		var all []*storage.Entry
		for i := from; i < from+group; i++ {
			e := with(reading("monitor", sealStart+i*1000, walk(i, 60_00, 110_00, 100)), vitals.RespiratoryRate,
				walk(i/3, 12_00, 24_00, 100))
			e = with(with(e, vitals.BodyTemperature, walk(i/60, 36_50, 38_50, 10)), own, walk(i, -1000, 30_000, 7))
			e.ReceivedUnixMs = e.Reading.TimeUnixMs + 100 + i%7
			all, want = append(all, e), append(want, storage.RecordOf(e))
		}
		mustStore(t, s, all...)
	}
	const last = sealStart + (readings-1)*1000
	if n := seal(t, s, last+1); n != readings-1 {
		t.Errorf("%d readings were sealed, want all but the newest", n)
	}
	got := make([]storage.Record, readings+1)
	n, err := s.Scan(context.Background(), storage.Range{Device: reading("monitor", 0, 0).Reading.Device,
		ToUnixMs: math.MaxInt64}, got)
	if err != nil || !sameRecords(got[:n], want) {
		t.Errorf("Scan returned %d records, %v, and others than were stored", n, err)
	}
	added := func(sg vitals.Sign) (sum int64) {
		for _, r := range want {
			v, _ := r.Values.Get(sg)
			sum += int64(v)
		}
		return sum
	}
	for sg, d := range s.Signs().All() {
		field := d.Field
		if sum := queryValue[int64](t, server,
			fmt.Sprintf("SELECT coalesce(sum(%q * 10 ^ %d), 0)::bigint FROM %s.all_readings", field, d.Decimals,
				o.Schema)); sum != added(sg) {
			t.Errorf("SQL adds the values of %s up to %d, want %d", field, sum, added(sg))
		}
	}
	text := queryValue[string](t, server,
		fmt.Sprintf(
			`SELECT concat_ws(' ', heart_rate_bpm, respiratory_rate_bpm, body_temperature_c, %q) FROM %s.all_readings WHERE `+
				`time_ms = %d`, o.Signs[0].Field, o.Schema, sealStart+5000))
	if text != "65.00 13.00 36.50 -0.965" {
		t.Errorf("SQL returns %s", text)
	}
	execute(t, server, "VACUUM FULL "+o.Schema+".segments")
	bytes := queryValue[int64](t, server, "SELECT pg_total_relation_size('"+o.Schema+".segments')")
	t.Logf("%.2f bytes a value", float64(bytes)/readings/4)
}

// TestLatestReadsLate locks a partition of long ago: the latest values of devices that have sent since are read without
// it.
func TestLatestReadsLate(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	mustStore(t, s, with(reading("d", 1, 7200), vitals.SpO2, 9700))
	for i := range int64(64) { // the row of the device gets the times of its signs once more
		mustStore(t, s, with(reading("d", sealStart+i, 7200), vitals.SpO2, 9700))
	}
	admin := connect(t, server)
	defer admin.Close(context.Background())
	mustExecute(t, admin, "BEGIN")
	mustExecute(t, admin, "LOCK TABLE "+o.Schema+".readings_p0 IN ACCESS EXCLUSIVE MODE")
	ctx := context.Background()
	if d, err := s.Latest(ctx, reading("d", 0, 0).Reading.Device); err != nil || d.NewestUnixMs != sealStart+63 ||
		d.Latest[vitals.SpO2].TimeUnixMs != sealStart+63 {
		t.Errorf("Latest returned %+v, %v", d, err)
	}
	if n, err := s.Devices(ctx, vitals.Name{}, make([]storage.Device, 2)); n != 1 || err != nil {
		t.Errorf("Devices returned %d, %v", n, err)
	}
	mustExecute(t, admin, "ROLLBACK")

	// A hint after the latest reading, such as of one that was removed.
	execute(t, server, "UPDATE "+o.Schema+".devices SET heart_rate_bpm_ms = $1", int64(sealStart+5000))
	if d, err := s.Latest(ctx, reading("d", 0, 0).Reading.Device); err != nil ||
		d.Latest[vitals.HeartRate].TimeUnixMs != sealStart+63 || d.NewestUnixMs != sealStart+63 {
		t.Errorf("after the reading of a hint was removed, Latest returned %+v, %v", d, err)
	}
}
