package pebblestore_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// benchDevices is the number of devices that BenchmarkAppend stores readings of.
const benchDevices = 10_000

// A fleet generates readings: one per minute of each device, with the values of a
// monitor.
type fleet struct {
	names []vitals.Name
	n     int
	rng   *rand.Rand
}

func newFleet(devices int) *fleet {
	f := &fleet{rng: rand.New(rand.NewPCG(1, 2))}
	for i := range devices {
		f.names = append(f.names, mustName(fmt.Sprintf("ppg-%06d", i)))
	}
	return f
}

const fleetStartUnixMs = 1_790_000_000_000

func (f *fleet) next(r *vitals.Reading) {
	device, minute := f.n%len(f.names), int64(f.n/len(f.names))
	f.n++
	*r = vitals.Reading{Device: f.names[device], TimeUnixMs: fleetStartUnixMs + minute*60_000 + int64(device)%1000}
	r.Values.Set(vitals.HeartRate, vitals.Value(6000+f.rng.IntN(4000)))
	r.Values.Set(vitals.SpO2, vitals.Value(9400+100*f.rng.IntN(6)))
	if minute%15 == 0 {
		r.Values.Set(vitals.Systolic, vitals.Value(100*(110+f.rng.IntN(40))))
		r.Values.Set(vitals.Diastolic, vitals.Value(100*(60+f.rng.IntN(30))))
	}
	if minute%60 == 0 {
		r.Values.Set(vitals.RestingHeartRate, vitals.Value(100*(50+f.rng.IntN(20))))
	}
}

// A batcher fills groups with the readings of a fleet. It reuses its memory.
type batcher struct {
	fleet    *fleet
	readings []vitals.Reading
	entries  []storage.Entry
	group    []*storage.Entry
}

func newBatcher(f *fleet, size int) *batcher {
	b := &batcher{fleet: f, readings: make([]vitals.Reading, size), entries: make([]storage.Entry, size)}
	for i := range b.entries {
		b.entries[i].Reading = &b.readings[i]
		b.group = append(b.group, &b.entries[i])
	}
	return b
}

func (b *batcher) fill() []*storage.Entry {
	for i := range b.entries {
		b.fleet.next(&b.readings[i])
		b.entries[i].ReceivedUnixMs = b.readings[i].TimeUnixMs + 1500
	}
	return b.group
}

// BenchmarkAppend stores new readings of a fleet on a real disk. An operation is one
// reading.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("group=%d", size), func(b *testing.B) {
			s := openBench(b, b.TempDir())
			f := newFleet(benchDevices)
			for first := newBatcher(f, 1000); f.n < 2*benchDevices; { // every device is known
				try(b, s.Append(first.fill()))
			}
			bt := newBatcher(f, size)
			bytes, seconds, syncs := shown(b, s, "store_written_bytes_total"), shown(b, s, "store_sync_seconds_total"),
				shown(b, s, "store_syncs_total")
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n%size == 0 {
					try(b, s.Append(bt.fill()))
				}
				n++
			}
			if lookups := shown(b, s, "store_lookups_total"); lookups != 0 {
				b.Fatalf("%v look-ups", lookups)
			}
			b.ReportMetric((shown(b, s, "store_written_bytes_total")-bytes)/float64(n), "logB/op")
			b.ReportMetric(1e9*(shown(b, s, "store_sync_seconds_total")-seconds)/(shown(b, s, "store_syncs_total")-syncs),
				"ns/commit")
		})
	}
}

// idle waits until no compaction is running.
func idle(b *testing.B, s *pebblestore.Store) {
	pause := 2 * time.Second
	if testing.Short() { // the readings fit into a memtable: there is no compaction
		pause = 50 * time.Millisecond
	}
	for tables, bytes := 0.0, 0.0; ; {
		lastTables, lastBytes := tables, bytes
		if tables, bytes = shown(b, s, "store_tables"), shown(b, s, "store_size_bytes"); tables == lastTables &&
			bytes == lastBytes {
			return
		}
		time.Sleep(pause)
	}
}

func openBench(b *testing.B, dir string) *pebblestore.Store {
	b.Helper()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	try(b, err)
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkAggregate scans all readings of a device that has measured once a minute for
// a year, and computes count, minimum, maximum and sum of a sign for each hour. An
// operation is the whole scan. With cache=store the blocks are in the store's cache, with
// cache=system in the system's.
func BenchmarkAggregate(b *testing.B) {
	readings := 365 * 24 * 60
	if testing.Short() {
		readings = 20_000
	}
	dir := b.TempDir()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	try(b, err)
	f := newFleet(1)
	for n := 0; n < readings; {
		size := min(1000, readings-n)
		mustAppend(b, s, newBatcher(f, size).fill()...)
		n += size
	}
	idle(b, s)
	mustClose(b, s)
	for _, cache := range []struct {
		name  string
		bytes int64
	}{{"store", 256 << 20}, {"system", 1}} {
		b.Run("cache="+cache.name, func(b *testing.B) {
			s, err := pebblestore.Open(dir, pebblestore.Options{CacheBytes: cache.bytes})
			try(b, err)
			defer mustClose(b, s)
			idle(b, s) // Open has flushed the log
			page := make([]storage.Record, 1024)
			aggregate(b, s, f.names[0], page, readings) // fills the cache
			for b.Loop() {
				aggregate(b, s, f.names[0], page, readings)
			}
			b.ReportMetric(float64(readings)*float64(b.N)/b.Elapsed().Seconds(), "readings/s")
		})
	}
}

// A bucket is the aggregate of a sign in a span of time.
type bucket struct {
	count, sum int64
	min, max   vitals.Value
}

// aggregate computes the buckets of a device, with pages of the length of page, and
// checks the number of its readings.
func aggregate(b *testing.B, s *pebblestore.Store, device vitals.Name, page []storage.Record, want int) {
	const bucketMs = 3_600_000
	buckets := make([]bucket, 0, want/60+2)
	r := storage.Range{Device: device, ToUnixMs: 1 << 60}
	got, startMs := 0, int64(-1)
	for n := len(page); n == len(page); {
		var err error
		if n, err = s.Scan(context.Background(), r, page); err != nil {
			b.Fatal(err)
		}
		for i := range page[:n] {
			one := &page[i]
			if one.TimeUnixMs-startMs >= bucketMs || startMs < 0 {
				startMs = one.TimeUnixMs - one.TimeUnixMs%bucketMs
				buckets = append(buckets, bucket{})
			}
			v, ok := one.Values.Get(vitals.HeartRate)
			if !ok {
				continue
			}
			last := &buckets[len(buckets)-1]
			if last.count == 0 {
				last.min, last.max = v, v
			}
			last.count++
			last.sum += int64(v)
			last.min, last.max = min(last.min, v), max(last.max, v)
		}
		if n > 0 {
			r.FromUnixMs = page[n-1].TimeUnixMs + 1
		}
		got += n
	}
	if got != want {
		b.Fatalf("%d readings, want %d", got, want)
	}
}

// changesReadings is the number of readings in the store of BenchmarkChanges.
var changesReadings = flag.Int("changes.readings", 1_000_000, "number of readings in the store of BenchmarkChanges")

// BenchmarkChanges reads changes as a consumer does, from a store whose readings are in segments: a copy of all of
// them, and a pass after 1,000 of them were completed. An operation of the latter is the whole pass.
func BenchmarkChanges(b *testing.B) {
	const completed, devices = 1000, 10_000
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{ChangesKeep: time.Hour})
	try(b, err)
	b.Cleanup(func() { s.Close() })
	bt := newBatcher(newFleet(devices), min(1000, *changesReadings))
	for n := 0; n < *changesReadings; n += len(bt.group) {
		try(b, s.Append(bt.fill()))
	}
	last := bt.readings[0]
	last.TimeUnixMs += 1 << 40 // changed later than all others, so that no pass after it has them again
	try(b, s.Append([]*storage.Entry{{Reading: &last, ReceivedUnixMs: bt.entries[0].ReceivedUnixMs + 60_000}}))
	try(b, pebblestore.Seal(s))
	idle(b, s)
	read := func(c *storage.ChangeCursor) (readings int) {
		for {
			page, caughtUp, err := storage.NextChanges(b.Context(), s, c, &storage.ChangeFilter{}, 1024)
			try(b, err)
			for i := range page {
				if page[i].Kind == storage.ChangedReading {
					readings++
				}
			}
			if caughtUp {
				return readings
			}
		}
	}
	var after storage.ChangeCursor
	b.Run("copy", func(b *testing.B) {
		n := 0
		for b.Loop() {
			after = storage.ChangeCursor{}
			n += read(&after)
		}
		if n < b.N**changesReadings {
			b.Fatalf("%d readings of %d", n, b.N**changesReadings)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "readings/s")
	})
	again := newFleet(devices)
	late := newBatcher(again, completed)
	late.fill()
	for i := range late.readings {
		late.readings[i].Values = vitals.Values{}
		late.readings[i].Values.Set(vitals.BodyTemperature, 3700)
		late.entries[i].ReceivedUnixMs = bt.entries[0].ReceivedUnixMs + 120_000
	}
	try(b, s.Append(late.group), pebblestore.Seal(s))
	idle(b, s)
	b.Run("few", func(b *testing.B) {
		for b.Loop() {
			c := after
			if n := read(&c); n != completed+1 { // and the last one again
				b.Fatalf("%d readings, want %d", n, completed+1)
			}
		}
	})
}

// quietReadings is the number of readings that BenchmarkQuiet loads.
var quietReadings = flag.Int("quiet.readings", 1_000_000, "number of readings that BenchmarkQuiet loads")

// BenchmarkQuiet stores the readings of a fleet in groups of 1,000, and leaves the store alone for two minutes, as a
// server does. It reports the bytes of tables and logs a reading, and how many times as large as after a full
// compaction the directory is; tables-x is the same of the tables alone.
func BenchmarkQuiet(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		s := openBench(b, dir)
		bt := newBatcher(newFleet(10_000), 1000)
		end := tidied(s)
		for n := 0; n < *quietReadings; n += len(bt.group) {
			try(b, s.Append(bt.fill()))
		}
		quiet := 2 * time.Minute
		if testing.Short() {
			quiet = 0
		}
		time.Sleep(quiet)
		end()
		measure := func() (tables, logs float64) {
			try(b, filepath.WalkDir(dir, func(path string, f fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := f.Info()
				switch filepath.Ext(path) {
				case ".sst":
					tables += float64(info.Size())
				case ".log":
					logs += float64(info.Size())
				}
				return err
			}))
			return tables, logs
		}
		idle(b, s)
		tables, logs := measure()
		dead := shown(b, s, "store_dead_bytes")
		pebblestore.CompactAll(s)
		idle(b, s)
		least, leastLogs := measure()
		b.ReportMetric(tables/float64(*quietReadings), "tableB/reading")
		b.ReportMetric(logs/1e6, "logs-MB")
		b.ReportMetric(dead/1e6, "dead-MB")
		b.ReportMetric(leastLogs/1e6, "compacted-logs-MB")
		b.ReportMetric(tables/least, "tables-x")
		b.ReportMetric((tables+logs)/(least+leastLogs), "directory-x")
		try(b, s.Close())
	}
}
