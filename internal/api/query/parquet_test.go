package query_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// varied returns records with every combination of the first five signs, and of more at random, with and without a
// gateway and an offset, and with values of all numbers of decimals.
func varied(n int, signs *vitals.Signs, more ...vitals.Sign) *decoded {
	rnd := rand.New(rand.NewPCG(5, 6))
	gateways := []*vitals.Name{nil}
	for i := range 3 {
		name, _ := vitals.ParseName(fmt.Sprintf("bed-%d", i))
		gateways = append(gateways, &name)
	}
	src, limits := &decoded{}, signs.DefaultLimits()
	for i := range n {
		r := storage.Record{TimeUnixMs: 1_700_000_000_000 + int64(i)*997, ReceivedUnixMs: 1_800_000_000_000 + rnd.Int64N(1e9),
			Gateway: gateways[rnd.IntN(4)]}
		if rnd.IntN(2) == 0 {
			r.UTCOffset = vitals.MakeUTCOffset(rnd.IntN(2*vitals.MaxUTCOffsetMinutes) - vitals.MaxUTCOffsetMinutes)
		}
		set := func(s vitals.Sign) {
			accepted := limits.Accepted[s]
			r.Values.Set(s, accepted.Min+vitals.Value(rnd.Int64N(int64(accepted.Max)-int64(accepted.Min)+1)))
		}
		for s := range vitals.Sign(5) {
			if (i%31+1)&(1<<s) != 0 {
				set(s)
			}
		}
		for _, s := range more {
			if rnd.IntN(2) == 0 {
				set(s)
			}
		}
		src.records = append(src.records, r)
	}
	return src
}

func (d *decoded) all() query.Selection {
	name, _ := vitals.ParseName("ppg-1")
	return query.Selection{Range: storage.Range{Device: name, ToUnixMs: 1 << 62}}
}

// TestParquetTools compares a file with the CSV of the same readings, as pyarrow, pandas and DuckDB
// read it. Its columns are those of all signs, of which two are a user's own.
func TestParquetTools(t *testing.T) {
	signs := vitals.NewSigns()
	if err := signs.Define([]vitals.Definition{
		{Field: "base_excess", Label: "Base excess", Unit: "mmol/L", Decimals: 1, LOINC: []string{"11555-0"},
			Accepted: vitals.Range{Min: -300, Max: 300}},
		{Field: "tympanic_gradient", Label: "Tympanic gradient", Unit: "mV", Decimals: 3,
			Accepted: vitals.Range{Min: -2_000_000, Max: 2_000_000_000}},
	}); err != nil {
		t.Fatal(err)
	}
	var more []vitals.Sign
	for s := range signs.All() {
		if s >= 5 {
			more = append(more, s)
		}
	}
	limits := signs.DefaultFlagLimits()
	args := []string{"testdata/parquet.py"}
	for _, tt := range []struct {
		flags bool
		rows  int
	}{{false, 1000}, {true, 140_000}} {
		src := varied(tt.rows, signs, more...)
		q := src.all()
		q.NoFlags = !tt.flags
		for _, format := range []query.Format{query.Parquet, query.CSV} {
			var file bytes.Buffer
			q.Format = format
			if _, err := query.WriteReadings(context.Background(), &file, src, q, limits.Signs, &limits); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "readings")
			try(t, os.WriteFile(path, file.Bytes(), 0o600))
			args = append(args, path)
		}
	}
	if out := python(t, args...); out != "1000 rows in 1 groups\n140000 rows in 2 groups\n" {
		t.Error(out)
	}
}

// python returns the output of a program in Python, with its error, and skips the test if its packages are missing.
func python(t *testing.T, args ...string) string {
	t.Helper()
	tools, err := filepath.Abs("../../../bin/tools/python")
	try(t, err)
	cmd := exec.CommandContext(t.Context(), "python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+tools+string(filepath.ListSeparator)+os.Getenv("PYTHONPATH"),
		"PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) || bytes.Contains(out, []byte("ModuleNotFoundError")) {
		if os.Getenv("CI") != "true" {
			t.Skipf("python3 with duckdb, pandas and pyarrow: %v: run .ci/setup", err)
		}
	}
	if err != nil {
		out = fmt.Appendf(out, "%v", err)
	}
	return string(out)
}

// TestTextTools checks that tools that choose the type of a column by its first values read a value with a decimal
// after 21,000 whole ones.
func TestTextTools(t *testing.T) {
	limits, src := vitals.NewSigns().DefaultFlagLimits(), &decoded{}
	for i := range 21_001 {
		r := storage.Record{TimeUnixMs: 1_700_000_000_000 + int64(i)*60_000, ReceivedUnixMs: 1_800_000_000_000}
		if r.Values.Set(vitals.GlucoseMolar, 5_00); i == 21_000 {
			r.Values.Set(vitals.GlucoseMolar, 3_50)
		}
		src.records = append(src.records, r)
	}
	args := []string{"testdata/text.py"}
	for _, format := range []query.Format{query.CSV, query.NDJSON} {
		var file bytes.Buffer
		q := src.all()
		q.Format = format
		_, err := query.WriteReadings(t.Context(), &file, src, q, limits.Signs, &limits)
		path := filepath.Join(t.TempDir(), "readings")
		try(t, err, os.WriteFile(path, file.Bytes(), 0o600))
		args = append(args, path)
	}
	if out := python(t, args...); !strings.HasPrefix(out, "tools: DuckDB pandas pyarrow") {
		t.Error(out)
	}
}

// A limitedWriter counts what is written, and the largest piece.
type limitedWriter struct{ bytes, largest int }

func (w *limitedWriter) Write(b []byte) (int, error) {
	w.bytes, w.largest = w.bytes+len(b), max(w.largest, len(b))
	return len(b), nil
}

// Row groups are written when they are complete, in pieces that a client can read in time.
func TestParquetIsStreamed(t *testing.T) {
	if testing.Short() {
		t.Skip("sends much from one goroutine")
	}
	src, limits := varied(140_000, vitals.NewSigns()), vitals.NewSigns().DefaultFlagLimits()
	q := src.all()
	q.Format = query.Parquet
	var w limitedWriter
	written := map[int]int{} // bytes by readings
	counting := &countedScans{src, func(readings int) { written[readings] = w.bytes }, 0}
	if _, err := query.WriteReadings(context.Background(), &w, counting, q, limits.Signs, &limits); err != nil {
		t.Fatal(err)
	}
	if w.largest > 64<<10 {
		t.Errorf("a piece has %d bytes", w.largest)
	}
	if before, after := written[130_000/2048*2048], written[134_000/2048*2048]; before > 1000 || after < 100_000 {
		t.Errorf("%d bytes were written before the end of the first row group, %d after it", before, after)
	}
}

// countedScans is a Reader that calls before with the number of readings read so far.
type countedScans struct {
	query.Reader
	before   func(readings int)
	readings int
}

func (c *countedScans) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	c.before(c.readings)
	n, err := c.Reader.Scan(ctx, r, dst)
	c.readings += n
	return n, err
}

// manyGateways is a Reader of n records, each of another gateway.
type manyGateways int

func (manyGateways) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return storage.Device{}, storage.ErrNotFound
}

func (n manyGateways) Scan(_ context.Context, r storage.Range, dst []storage.Record) (int, error) {
	for i := range dst {
		ms := r.FromUnixMs + int64(i)
		if ms >= int64(n) {
			return i, nil
		}
		gateway, err := vitals.ParseName(fmt.Sprint("ward-", ms))
		if err != nil {
			return 0, err
		}
		dst[i] = storage.Record{TimeUnixMs: ms, Gateway: &gateway}
		dst[i].Values.Set(vitals.HeartRate, 6000)
	}
	return len(dst), nil
}

// A row group ends early if it has the names of many gateways, which it keeps in memory.
func TestParquetManyGateways(t *testing.T) {
	const readings = 30_000
	name, err := vitals.ParseName("ppg-1")
	try(t, err)
	var file bytes.Buffer
	q := query.Selection{Range: storage.Range{Device: name, ToUnixMs: 1 << 62}, Format: query.Parquet, NoFlags: true}
	if _, err := query.WriteReadings(t.Context(), &file, manyGateways(readings), q, vitals.NewSigns(), nil); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	try(t, err)
	for i, g := range f.RowGroups() {
		if g.NumRows() > 10_240 {
			t.Errorf("row group %d has %d rows, each with the name of another gateway", i, g.NumRows())
		}
	}
	type row struct {
		Gateway *string `parquet:"gateway"`
	}
	rows, err := parquet.Read[row](bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil || len(rows) != readings {
		t.Fatalf("%d rows, %v, want %d", len(rows), err, readings)
	}
	for i, r := range rows {
		if r.Gateway == nil || *r.Gateway != fmt.Sprint("ward-", i) {
			t.Fatalf("row %d has another gateway", i)
		}
	}
}

// A client may have half of the pages in Parquet, however many other pages it reads.
func TestParquetShares(t *testing.T) {
	src := &held{source: fill(t, one("a"), one("held")), release: make(chan struct{})}
	srv := serveOptions(t, src,
		query.Options{Service: query.Service{Bound: query.NewBound(64), Holders: new(share.Holders)}}, unchanged)
	var wg sync.WaitGroup
	release := sync.OnceFunc(func() { close(src.release); wg.Wait() })
	defer release() // first, or srv would wait for the held requests
	for i, format := range []string{"csv", "csv", "csv", "csv", "csv", "parquet"} {
		wg.Go(func() {
			if resp, text := get(t, srv, "/v1/devices/held/readings?from=now&format="+format); resp.StatusCode != 200 {
				t.Errorf("%s is answered %d %s", format, resp.StatusCode, text)
			}
		})
		polltest.Until(t, "the page is being written", func() bool { return src.asked.Load() == int64(i+1) })
	}
	if resp, _ := get(t, srv, "/v1/devices/a/readings?format=parquet"); resp.StatusCode != 200 {
		t.Errorf("a second page in Parquet is answered %d", resp.StatusCode)
	}
	wg.Go(func() { get(t, srv, "/v1/devices/held/readings?from=now&format=parquet") })
	polltest.Until(t, "half of the pages are being written", func() bool { return src.asked.Load() == 7 })
	if resp, _ := get(t, srv, "/v1/devices/a/readings?format=parquet"); resp.StatusCode != 503 {
		t.Errorf("a third page in Parquet is answered %d", resp.StatusCode)
	}
}

// At most four pages in Parquet are written at a time. Others are not affected.
func TestParquetBound(t *testing.T) {
	src := &held{source: fill(t, one("a"), one("held")), release: make(chan struct{})}
	srv := serve(t, src)
	var wg sync.WaitGroup
	release := sync.OnceFunc(func() { close(src.release); wg.Wait() })
	defer release() // first, or srv would wait for the held requests
	const path = "/readings?from=now&format="
	for range 4 {
		wg.Go(func() {
			if resp, text := get(t, srv, "/v1/devices/held"+path+"parquet"); resp.StatusCode != 200 {
				t.Errorf("answered %d %s", resp.StatusCode, text)
			}
		})
	}
	polltest.Until(t, "four pages are being written", func() bool { return src.asked.Load() == 4 })
	if resp, _ := get(t, srv, "/v1/devices/a"+path+"parquet"); resp.StatusCode != 503 ||
		resp.Header.Get("Retry-After") == "" {
		t.Errorf("the fifth is answered %d", resp.StatusCode)
	}
	if resp, _ := get(t, srv, "/v1/devices/a"+path+"csv"); resp.StatusCode != 200 {
		t.Errorf("CSV is answered %d", resp.StatusCode)
	}
	release()
	if resp, _ := get(t, srv, "/v1/devices/a"+path+"parquet"); resp.StatusCode != 200 {
		t.Errorf("after the others: %d", resp.StatusCode)
	}
}
