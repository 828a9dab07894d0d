package pebblestore_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

var (
	benchDevices  = flag.Int("devices", 10_000, "devices of the benchmarks")
	benchReadings = flag.Int("readings", 1_000_000, "readings that BenchmarkOpen and BenchmarkRead store first")
	benchDir      = flag.String("dir", "", "directory for the benchmarks' stores, kept and reused; a temporary one if empty")
)

// shortReadings bounds the number of readings that are stored first with -short: with the
// default flags, two of each device.
const shortReadings = 20_000

// readings returns the number of readings that are stored first.
func readings() int {
	if testing.Short() {
		return min(shortReadings, *benchReadings)
	}
	return *benchReadings
}

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
			f := newFleet(*benchDevices)
			for first := newBatcher(f, 1000); f.n < 2**benchDevices; { // every device is known
				try(b, s.Append(first.fill()))
			}
			bt := newBatcher(f, size)
			bytes, seconds, syncs := shown(b, s, "store_written_bytes_total"), shown(b, s, "store_sync_seconds_total"), shown(b, s, "store_syncs_total")
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
			b.ReportMetric(1e9*(shown(b, s, "store_sync_seconds_total")-seconds)/(shown(b, s, "store_syncs_total")-syncs), "ns/commit")
		})
	}
}

// BenchmarkOpen opens a store with many readings. The time must not depend on their
// number.
//
//	go test -run '^$' -bench Open -benchtime 5x -timeout 0 ./internal/storage/pebblestore -devices 100000 -readings 10000000
func BenchmarkOpen(b *testing.B) {
	for _, crashed := range []bool{false, true} {
		b.Run(fmt.Sprintf("crashed=%t", crashed), func(b *testing.B) {
			dir := filledDir(b, crashed)
			for b.Loop() {
				b.StopTimer()
				work := b.TempDir()
				copyDir(b, dir, work)
				b.StartTimer()
				s, err := pebblestore.Open(work, pebblestore.Options{})
				try(b, err)
				b.StopTimer()
				if n := s.DeviceCount(); n != int64(*benchDevices) {
					b.Fatalf("%d devices, want %d", n, *benchDevices)
				}
				try(b, s.Close())
				os.RemoveAll(work)
				b.StartTimer()
			}
		})
	}
}

// filledDir returns a directory with the store that the flags describe. If crashed is
// true, it is a copy made while the store was open.
func filledDir(b *testing.B, crashed bool) string {
	b.Helper()
	root := *benchDir
	if root == "" {
		root = b.TempDir()
	}
	base := filepath.Join(root, fmt.Sprintf("%d-%d", *benchDevices, readings()))
	dir := filepath.Join(base, map[bool]string{false: "closed", true: "crashed"}[crashed])
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	work := filepath.Join(base, "work")
	try(b, os.MkdirAll(work, 0o755))
	s := openBench(b, work)
	bt := newBatcher(newFleet(*benchDevices), 1000)
	start := time.Now()
	for range readings() / 1000 {
		try(b, s.Append(bt.fill()))
	}
	b.Logf("stored %d readings in %v", readings(), time.Since(start))
	idle(b, s)
	b.Logf("%.0f bytes on disk, %.0f of log, %.0f tables, %.0f to compact", shown(b, s, "store_size_bytes"), shown(b, s, "store_log_bytes"),
		shown(b, s, "store_tables"), shown(b, s, "store_compaction_debt_bytes"))
	copyDir(b, work, filepath.Join(base, "crashed"))
	try(b, s.Close())
	try(b, os.Rename(work, filepath.Join(base, "closed")))
	return dir
}

// idle waits until no compaction is running.
func idle(b *testing.B, s *pebblestore.Store) {
	pause := 2 * time.Second
	if testing.Short() { // the readings fit into a memtable: there is no compaction
		pause = 50 * time.Millisecond
	}
	for tables, bytes := 0.0, 0.0; ; {
		lastTables, lastBytes := tables, bytes
		if tables, bytes = shown(b, s, "store_tables"), shown(b, s, "store_size_bytes"); tables == lastTables && bytes == lastBytes {
			return
		}
		time.Sleep(pause)
	}
}

// copyDir copies the files of a store. It links tables, which never change.
func copyDir(b *testing.B, from, to string) {
	b.Helper()
	try(b, os.MkdirAll(to, 0o755))
	entries, err := os.ReadDir(from)
	try(b, err)
	for _, e := range entries {
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if filepath.Ext(src) == ".sst" {
			if err := os.Link(src, dst); err == nil {
				continue
			}
		}
		data, err := os.ReadFile(src)
		if os.IsNotExist(err) {
			continue // deleted by a compaction since it was listed
		}
		try(b, err)
		try(b, os.WriteFile(dst, data, 0o644))
	}
}

func openBench(b *testing.B, dir string) *pebblestore.Store {
	b.Helper()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	try(b, err)
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkRead reads from a store with many readings.
func BenchmarkRead(b *testing.B) { benchRead(b, openBench(b, filledDir(b, false))) }

// BenchmarkReadDeep reads while compactions are blocked, so that flushed tables overlap.
// Each table holds two readings of every device.
func BenchmarkReadDeep(b *testing.B) {
	for _, tables := range []int{1, 8, 12, 60} {
		b.Run(fmt.Sprintf("tables=%d", tables), func(b *testing.B) {
			gate := newTableGate(vfs.Default, "pebble-compaction")
			s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{FS: gate})
			try(b, err)
			b.Cleanup(func() {
				gate.open()
				mustClose(b, s)
			})
			bt := newBatcher(newFleet(*benchDevices), 1000)
			for n := range tables {
				for bt.fleet.n < 2*(n+1)**benchDevices {
					mustAppend(b, s, bt.fill()...)
				}
				try(b, pebblestore.Flush(s))
			}
			benchRead(b, s)
		})
	}
}

func benchRead(b *testing.B, s *pebblestore.Store) {
	names := newFleet(*benchDevices).names
	ctx := context.Background()
	i := 0
	name := func() vitals.Name { i += 7919; return names[i%len(names)] }
	b.Run("Latest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Latest(ctx, name()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Devices/page=100", func(b *testing.B) {
		page := make([]storage.Device, 100)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Devices(ctx, name(), page); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Scan/page=100", func(b *testing.B) {
		page := make([]storage.Record, 100)
		b.ReportAllocs()
		for b.Loop() {
			r := storage.Range{Device: name(), ToUnixMs: 1 << 60, Descending: true}
			if n, err := s.Scan(ctx, r, page); err != nil || n == 0 {
				b.Fatal(n, err)
			}
		}
	})
}

// BenchmarkLatestOfMany reads the latest values of a device that has many readings of one sign
// in the window.
func BenchmarkLatestOfMany(b *testing.B) {
	s := openBench(b, b.TempDir())
	name := mustName("ppg-1")
	for i := range 100 {
		group := make([]*storage.Entry, 100)
		for j := range group {
			group[j] = entry("ppg-1", int64(i*100+j+1)*1000, 70)
		}
		mustAppend(b, s, group...)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Latest(b.Context(), name); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLate settles late readings that are not stored yet. An operation is one
// reading.
func BenchmarkLate(b *testing.B) {
	s := openBench(b, filledDir(b, true))
	f := newFleet(*benchDevices)
	bt := newBatcher(f, 1000)
	shift := int64(0)
	n := 0
	for b.Loop() {
		if n%1000 == 0 {
			group := bt.fill()
			if f.n >= readings() {
				f.n, shift = 0, shift+1
			}
			for _, e := range group {
				e.Reading.TimeUnixMs += 7 + shift
			}
			try(b, s.Append(group))
		}
		n++
	}
	b.ReportMetric(shown(b, s, "store_lookups_total")/float64(n), "lookups/op")
}

// BenchmarkAggregate scans all readings of a device that has measured once a minute for
// a year, and computes count, minimum, maximum and sum of a sign for each hour. An
// operation is the whole scan. With cache=store the blocks are in the store's cache, with
// cache=system in the system's.
func BenchmarkAggregate(b *testing.B) {
	readings := 365 * 24 * 60
	if testing.Short() {
		readings = shortReadings
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
