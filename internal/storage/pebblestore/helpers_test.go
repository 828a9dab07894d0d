package pebblestore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestMain checks that no goroutine is left at the end: Close must wait for those of the
// store and of Pebble.
func TestMain(m *testing.M) {
	if scene, ok := scenes[os.Getenv(sceneEnv)]; ok {
		scene(os.Getenv(dirEnv))
		return
	}
	// The suite has three random checks, and runs with several settings. make exhaustive plays more.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// long skips a long test with -short. Those of crashes and damage call one store from one
// goroutine, so that the race detector would find nothing new in them.
func long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short")
	}
}

var try = polltest.Try

func mustName(s string) vitals.Name {
	n, err := vitals.ParseName(s)
	if err != nil {
		panic(err)
	}
	return n
}

// entry returns a reading with a heart rate.
func entry(device string, timeUnixMs int64, heartRate vitals.Value) *storage.Entry {
	r := &vitals.Reading{Device: mustName(device), TimeUnixMs: timeUnixMs}
	r.Values.Set(vitals.HeartRate, heartRate)
	return &storage.Entry{Reading: r, ReceivedUnixMs: 1_800_000_000_000}
}

// with adds a sign to an entry.
func with(e *storage.Entry, s vitals.Sign, v vitals.Value) *storage.Entry {
	e.Reading.Values.Set(s, v)
	return e
}

// shown returns the value of the metric pulsegate_name in a scrape of s.
func shown(t testing.TB, s *pebblestore.Store, name string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	try(t, err)
	for _, f := range families {
		if f.GetName() == "pulsegate_"+name {
			return f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue() // only one of them is set
		}
	}
	t.Fatalf("a scrape has no pulsegate_%s", name)
	return 0
}

func mustOpen(t testing.TB, o pebblestore.Options) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open(dataDir, o)
	try(t, err)
	return s
}

func mustClose(t testing.TB, s storage.Store) {
	t.Helper()
	try(t, s.Close())
}

func mustAppend(t testing.TB, s storage.Store, group ...*storage.Entry) {
	t.Helper()
	try(t, s.Append(group))
}

func wantOutcome(t testing.TB, e *storage.Entry, want storage.Outcome) {
	t.Helper()
	if e.Outcome != want {
		t.Errorf("reading at %d settled as %s, want %s", e.Reading.TimeUnixMs, storetest.OutcomeName(e.Outcome),
			storetest.OutcomeName(want))
	}
}

// count returns the number of records of a device.
func count(t testing.TB, s storage.Store, device string) int {
	t.Helper()
	n, err := s.Scan(context.Background(), storage.Range{Device: mustName(device), ToUnixMs: 1 << 62},
		make([]storage.Record, 10_000))
	try(t, err)
	return n
}

// dump returns the whole content of s as text.
func dump(s storage.Store) (string, error) {
	var b []byte
	devices, records := make([]storage.Device, 64), make([]storage.Record, 256)
	var after vitals.Name
	for {
		n, err := s.Devices(context.Background(), after, devices)
		if err != nil {
			return "", err
		}
		for _, d := range devices[:n] {
			after = d.Name
			b = fmt.Appendf(b, "%s %d %v\n", d.Name, d.NewestUnixMs, d.Latest)
			for from := int64(0); ; {
				n, err := s.Scan(context.Background(), storage.Range{Device: d.Name, FromUnixMs: from, ToUnixMs: 1 << 62}, records)
				if err != nil {
					return "", err
				}
				for i := range records[:n] {
					b = append(appendRecord(append(b, '\t'), &records[i]), '\n')
				}
				if n < len(records) {
					break
				}
				from = records[n-1].TimeUnixMs + 1
			}
		}
		if n < len(devices) {
			return string(b), nil
		}
	}
}

// appendRecord appends a record as text, without its device.
func appendRecord(b []byte, r *storage.Record) []byte {
	b = strconv.AppendInt(b, r.TimeUnixMs, 10)
	for s := range vitals.Sign(vitals.MaxSigns) {
		if v, ok := r.Values.Get(s); ok {
			b = append(append(b, ' '), s.String()...)
			b = strconv.AppendInt(append(b, '='), int64(v), 10)
		}
	}
	if minutes, ok := r.UTCOffset.Minutes(); ok {
		b = strconv.AppendInt(append(b, " offset="...), int64(minutes), 10)
	}
	if b = append(b, ' '); r.Gateway != nil {
		b = r.Gateway.AppendTo(b)
	}
	return strconv.AppendInt(append(b, ' '), r.ReceivedUnixMs, 10)
}

func mustDump(t testing.TB, s storage.Store) string {
	t.Helper()
	text, err := dump(s)
	try(t, err)
	return text
}

// isLog reports whether a path is that of a write-ahead log.
func isLog(path string) bool { return strings.HasSuffix(path, ".log") }

// inject returns fs with faults. Unlike errorfs.Wrap it also wraps the files of
// ReuseForWrite, which are mostly logs.
func inject(fs vfs.FS, in errorfs.Injector) vfs.FS {
	return injectFS{FS: errorfs.Wrap(fs, in), below: fs, in: in}
}

type injectFS struct {
	*errorfs.FS
	below vfs.FS
	in    errorfs.Injector
}

func (fs injectFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.in.MaybeError(errorfs.Op{Kind: errorfs.OpReuseForWrite, Path: oldname}); err != nil {
		return nil, err
	}
	f, err := fs.below.ReuseForWrite(oldname, newname, c)
	if err != nil {
		return nil, err
	}
	return errorfs.WrapFile(f, errorfs.InjectorFunc(func(op errorfs.Op) error {
		op.Path = newname
		return fs.in.MaybeError(op)
	})), nil
}

// lyingFS is a disk that does not sync logs, although it reports success. A store on it
// behaves like one that answers before the sync.
type lyingFS struct{ vfs.FS }

func (fs lyingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	if err == nil && isLog(name) {
		f = lyingFile{f}
	}
	return f, err
}

func (fs lyingFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, c)
	if err == nil && isLog(newname) {
		f = lyingFile{f}
	}
	return f, err
}

type lyingFile struct{ vfs.File }

func (lyingFile) Sync() error                { return nil }
func (lyingFile) SyncData() error            { return nil }
func (lyingFile) SyncTo(int64) (bool, error) { return false, nil }

// wantDegraded checks that a store reports the damage of a file.
func wantDegraded(t testing.TB, s *pebblestore.Store, file string) {
	t.Helper()
	if err := s.Degraded(); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), file) {
		t.Errorf("Degraded returns %v, want ErrCorrupt with %s", err, file)
	}
}

// copyFS returns a copy of the data directory.
func copyFS(t testing.TB, fs vfs.FS) *vfs.MemFS {
	t.Helper()
	c := vfs.NewMem()
	if ok, err := vfs.Clone(fs, c, dataDir, dataDir); err != nil || !ok {
		t.Fatalf("copy store: %t, %v", ok, err)
	}
	return c
}

// unlist removes the list of a store's files, and the marker that it has one, as an operator
// without a backup may: see docs/operations.md.
func unlist(t testing.TB, fs vfs.FS) {
	t.Helper()
	for _, name := range []string{"CHECKSUMS", "LISTED"} {
		if err := fs.Remove(dataDir + "/" + name); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func readFile(fs vfs.FS, path string) (string, error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

func writeFile(t testing.TB, fs vfs.FS, path, text string) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	try(t, err)
	_, err = io.WriteString(f, text)
	try(t, err)
	try(t, f.Close())
}
