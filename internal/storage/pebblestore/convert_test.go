package pebblestore_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// format1Stores are the stores of format 1 in testdata/format1, with their numbers of readings.
var format1Stores = map[string]int{"closed": 379, "killed": 527}

// unpack returns a disk with a store of testdata/format1.
func unpack(t testing.TB, name string) *vfs.MemFS {
	t.Helper()
	disk, err := unpacked(name)
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// unpacked is unpack for a process that is not a test.
func unpacked(name string) (*vfs.MemFS, error) {
	disk := vfs.NewCrashableMem()
	archive, err := unzipped(name + ".tar.gz")
	if err != nil {
		return nil, err
	}
	r := tar.NewReader(archive)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeDir {
			if err := disk.MkdirAll(dataDir, 0o700); err != nil {
				return nil, err
			}
			continue
		}
		f, err := disk.Create(dataDir+"/"+path.Base(h.Name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(f, r)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{dataDir, "var/lib", "var", "/"} {
		d, err := disk.OpenDir(dir)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return nil, err
		}
	}
	return disk, nil
}

func unzip(t testing.TB, name string) io.Reader {
	t.Helper()
	r, err := unzipped(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func unzipped(name string) (io.Reader, error) {
	b, err := os.ReadFile("testdata/format1/" + name)
	if err != nil {
		return nil, err
	}
	return gzip.NewReader(bytes.NewReader(b))
}

// An exported reading is a line of an export. Values are in hundredths.
type exported struct {
	Device    string      `json:"device"`
	Time      time.Time   `json:"time"`
	Systolic  json.Number `json:"systolic_mmhg"`
	Diastolic json.Number `json:"diastolic_mmhg"`
	SpO2      json.Number `json:"spo2_pct"`
	Heart     json.Number `json:"heart_rate_bpm"`
	Resting   json.Number `json:"resting_heart_rate_bpm"`
	Gateway   string      `json:"gateway"`
	Received  time.Time   `json:"received"`
}

// exports returns the readings of the export of a store in testdata/format1, as dump has them.
func exports(t testing.TB, name string) map[string][]string {
	t.Helper()
	byDevice := map[string][]string{}
	lines := bufio.NewScanner(unzip(t, name+".ndjson.gz"))
	for lines.Scan() {
		var x exported
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&x); err != nil {
			t.Fatal(err)
		}
		r := storage.Record{TimeUnixMs: x.Time.UnixMilli(), ReceivedUnixMs: x.Received.UnixMilli()}
		for sign, value := range map[vitals.Sign]json.Number{
			vitals.Systolic: x.Systolic, vitals.Diastolic: x.Diastolic, vitals.SpO2: x.SpO2, vitals.HeartRate: x.Heart, vitals.RestingHeartRate: x.Resting,
		} {
			if value == "" {
				continue
			}
			v, err := value.Float64()
			if err != nil {
				t.Fatal(err)
			}
			r.Values.Set(sign, vitals.Hundredths(math.Round(v*100)))
		}
		if x.Gateway != "" {
			gateway := mustName(x.Gateway)
			r.Gateway = &gateway
		}
		byDevice[x.Device] = append(byDevice[x.Device], string(appendRecord(nil, &r)))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return byDevice
}

// records returns all readings of a store, by device, as dump has them.
func records(t testing.TB, s storage.Store) map[string][]string {
	t.Helper()
	byDevice := map[string][]string{}
	device := ""
	for line := range strings.Lines(mustDump(t, s)) {
		line = strings.TrimSuffix(line, "\n")
		if record, ok := strings.CutPrefix(line, "\t"); ok {
			byDevice[device] = append(byDevice[device], record)
		} else {
			device, _, _ = strings.Cut(line, " ")
		}
	}
	return byDevice
}

func wantRecords(t testing.TB, when string, got, want map[string][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: there are %d devices, want %d", when, len(got), len(want))
	}
	for device := range want {
		if !slices.Equal(got[device], want[device]) {
			t.Errorf("%s: device %s has\n%s\nwant\n%s", when, device, strings.Join(got[device], "\n"), strings.Join(want[device], "\n"))
		}
	}
}

func wantChecked(t testing.TB, when string, fs vfs.FS, format, readings int) {
	t.Helper()
	r, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
	if err != nil || r.Format != format || r.Readings != int64(readings) {
		t.Errorf("%s: Check finds %d readings of format %d, %v, want %d of format %d", when, r.Readings, r.Format, err, readings, format)
	}
}

// hold blocks a conversion until the store is closed.
func hold(ctx context.Context) { <-ctx.Done() }

// awaitConverted waits until a store has no readings of format 1.
func awaitConverted(t testing.TB, s *pebblestore.Store) {
	t.Helper()
	polltest.Until(t, "the end of the conversion", func() bool { return !pebblestore.Converting(s) })
}

// TestConvert opens and converts stores that the last program of format 1 has written.
func TestConvert(t *testing.T) {
	t.Parallel()
	for name, readings := range format1Stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, want := unpack(t, name), exports(t, name)
			wantChecked(t, "before the first start", disk, 1, readings)

			s := mustOpen(t, pebblestore.Options{FS: disk, ReadOnly: true})
			wantRecords(t, "read-only", records(t, s), want)
			text := mustDump(t, s)
			mustClose(t, s)
			wantChecked(t, "after a read-only start", disk, 1, readings)

			s = mustOpen(t, pebblestore.WithConversion(pebblestore.Options{FS: disk}, 0, hold))
			wantRecords(t, "before the conversion", records(t, s), want)
			if got := mustDump(t, s); got != text {
				t.Errorf("the latest values are\n%s\nwant\n%s", got, text)
			}
			if n, err := s.EstimateReadings(context.Background()); err != nil || n == 0 {
				t.Errorf("EstimateReadings returns %d, %v", n, err)
			}
			mustClose(t, s)
			wantChecked(t, "before the conversion", disk, 2, readings)

			steps := make(chan struct{}, 5)
			some := func(ctx context.Context) {
				select {
				case steps <- struct{}{}:
				case <-ctx.Done():
				}
			}
			s = mustOpen(t, pebblestore.WithConversion(pebblestore.Options{FS: disk}, 20, some))
			polltest.Until(t, "some steps", func() bool { return shown(t, s, "store_converted_readings_total") >= 80 })
			if got := mustDump(t, s); got != text {
				t.Errorf("in mid-conversion there is\n%s\nwant\n%s", got, text)
			}
			if left := shown(t, s, "store_conversion_devices_left"); left == 0 {
				t.Error("no devices are left in mid-conversion")
			}
			mustClose(t, s)
			wantChecked(t, "in mid-conversion", disk, 2, readings)
			s = mustOpen(t, pebblestore.Options{FS: disk, ReadOnly: true})
			if got := mustDump(t, s); got != text {
				t.Errorf("in mid-conversion and read-only there is\n%s\nwant\n%s", got, text)
			}
			mustClose(t, s)

			s = mustOpen(t, pebblestore.WithConversion(pebblestore.Options{FS: disk}, 20, nil))
			awaitConverted(t, s)
			if got := mustDump(t, s); got != text {
				t.Errorf("after the conversion there is\n%s\nwant\n%s", got, text)
			}
			if left := shown(t, s, "store_conversion_devices_left"); left != 0 {
				t.Errorf("%v devices are left after the conversion", left)
			}
			mustClose(t, s)
			wantChecked(t, "after the conversion", disk, 2, readings)

			s = mustOpen(t, pebblestore.Options{FS: disk})
			if pebblestore.Converting(s) {
				t.Error("a converted store is converted again")
			}
			wantRecords(t, "after the next start", records(t, s), want)
			mustClose(t, s)
		})
	}
}

// TestConvertCrash loses power before some operations of a start that converts a store, and
// TestConvertCrashExhaustive (make exhaustive) before every one.
func TestConvertCrash(t *testing.T) {
	long(t)
	t.Parallel()
	crashConverting(t, 4)
}

func TestConvertCrashExhaustive(t *testing.T) {
	long(t)
	t.Parallel()
	crashConverting(t, 1)
}

// crashConverting tests every stride-th crash.
func crashConverting(t *testing.T, stride int) {
	for name, readings := range format1Stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := unpack(t, name)
			s := mustOpen(t, pebblestore.Options{FS: disk, ReadOnly: true})
			want := mustDump(t, s)
			mustClose(t, s)
			o := pebblestore.WithConversion(pebblestore.WithSegmentRows(pebblestore.Options{MemTableBytes: 64 << 10}, 16), 40, nil)
			convert := func(fs vfs.FS) {
				o.FS = fs
				s := mustOpen(t, o)
				awaitConverted(t, s)
				mustClose(t, s)
			}
			found := crashesOf(disk, []int{0, 50, 100}, convert)
			formats := map[int]int{}
			for i, p := range strided(t, found, stride) {
				r, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: p.fs})
				if err != nil || r.Readings != int64(readings) {
					t.Errorf("%s: Check finds %d readings, %v, want %d", p.at, r.Readings, err, readings)
					continue
				}
				formats[r.Format]++
				s, err := pebblestore.Open(dataDir, pebblestore.WithConversion(pebblestore.Options{FS: p.fs}, 0, hold))
				if err != nil {
					t.Errorf("%s: %v", p.at, err)
					continue
				}
				if got := mustDump(t, s); got != want {
					t.Errorf("%s: after the next start there is\n%s\nwant\n%s", p.at, got, want)
				}
				mustClose(t, s)
				if i%7 == 0 {
					convert(p.fs)
					s := mustOpen(t, pebblestore.Options{FS: p.fs})
					if got := mustDump(t, s); got != want {
						t.Errorf("%s: after the conversion there is\n%s\nwant\n%s", p.at, got, want)
					}
					mustClose(t, s)
					wantChecked(t, p.at+", then a conversion", p.fs, 2, readings)
				}
			}
			t.Logf("%d crashes, by format %v", len(found), formats)
			if len(found) < 100 || formats[1] == 0 || formats[2] == 0 {
				t.Errorf("%d crashes, by format %v, want more", len(found), formats)
			}
		})
	}
}

// writeFormat1 makes a store of format 1 with the content of s, as after a crash: the records of
// devices lack some of their newest readings.
func writeFormat1(t testing.TB, disk vfs.FS, s storage.Store, rng *rand.Rand) {
	t.Helper()
	mustClose(t, mustOpen(t, pebblestore.Options{FS: disk, MinFreeBytes: -1}))
	db := openRaw(t, disk)
	if err := db.DeleteRange([]byte{0}, []byte{0xff}, nil); err != nil {
		t.Fatal(err)
	}
	devices, records := make([]storage.Device, 100), make([]storage.Record, 10_000)
	n, err := s.Devices(context.Background(), vitals.Name{}, devices)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices[:n] {
		n, err := s.Scan(context.Background(), storage.Range{Device: d.Name, ToUnixMs: math.MaxInt64}, records)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range pebblestore.LegacyPairs(d.Name, records[:n], max(1, n-rng.IntN(64))) {
			if err := db.Set([]byte(key), value, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(2) == 0 {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, disk, dataDir+"/PULSEGATE", pebblestore.LegacyFormatText)
	syncAll(t, disk)
}

// syncAll syncs all files of a store.
func syncAll(t testing.TB, disk vfs.FS) {
	t.Helper()
	names, err := disk.List(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{""}, names...) {
		f, err := disk.OpenDir(disk.PathJoin(dataDir, path))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConvertDamaged damages a block with readings of format 1. The readings of its device stay,
// and those of the other devices are converted.
func TestConvertDamaged(t *testing.T) {
	long(t)
	t.Parallel()
	disk, rng, model := vfs.NewCrashableMem(), rand.New(rand.NewPCG(3, 3)), storetest.NewMemory()
	const each = 3000
	for _, device := range []string{"a", "b", "c"} {
		for i := range int64(each) {
			e := entry(device, 1000*i, vitals.Hundredths(2000+rng.IntN(20_000)))
			e.ReceivedUnixMs = 1 + rng.Int64N(1_000_000)
			mustAppend(t, model, e)
		}
	}
	writeFormat1(t, disk, model, rng)
	s := mustOpen(t, pebblestore.WithConversion(pebblestore.Options{FS: disk}, 0, hold))
	pebblestore.CompactAll(s)
	mustClose(t, s)
	table := namesWith(t, disk, ".sst")
	if len(table) != 1 {
		t.Fatalf("there are tables %v, want one", table)
	}
	flip(t, disk, table[0], size(t, disk, table[0])*45/100)
	_, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: disk})
	wantDamage(t, "Check", table[0], err)

	for _, start := range []struct {
		name      string
		converted float64
	}{{"first start", 2 * each}, {"second start", 0}} {
		s := mustOpen(t, pebblestore.Options{FS: disk})
		polltest.Until(t, "the end of what can be converted", func() bool {
			return s.Degraded() != nil && shown(t, s, "store_converted_readings_total") == start.converted && shown(t, s, "store_conversion_devices_left") == 1
		})
		if !pebblestore.Converting(s) {
			t.Errorf("%s: the conversion is said to be complete", start.name)
		}
		if err := s.Degraded(); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), path.Base(table[0])) {
			t.Errorf("%s: Degraded returns %v, want ErrCorrupt with the table", start.name, err)
		}
		late := entry("b", 1000*each*45/100+500, 1)
		mustAppend(t, s, entry("c", 1000*each, 1), entry("a", 500, 2), late)
		for device, want := range map[string]int{"a": each + 1, "c": each + 1} {
			if got := count(t, s, device); got != want {
				t.Errorf("%s: device %s has %d readings, want %d", start.name, device, got, want)
			}
		}
		n, err := s.Scan(context.Background(), storage.Range{Device: mustName("b"), ToUnixMs: 1 << 62}, make([]storage.Record, 2*each))
		if !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: a scan of the damaged device returns %d, %v, want ErrCorrupt", start.name, n, err)
		}
		if n, err := s.Scan(context.Background(), storage.Range{Device: mustName("b"), ToUnixMs: 100_000}, make([]storage.Record, 2*each)); n != 100 || err != nil {
			t.Errorf("%s: a scan before the damage returns %d, %v, want 100", start.name, n, err)
		}
		mustClose(t, s)
	}
}
