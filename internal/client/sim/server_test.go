package sim_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A backend is a store with injectable faults.
type backend struct {
	*storetest.Memory
	append func(next func([]*storage.Entry) error, group []*storage.Entry) error
	scan   func(device vitals.Name, records []storage.Record) []storage.Record // replaces the result of Scan
}

func (b *backend) Append(group []*storage.Entry) error {
	if b.append != nil {
		return b.append(b.Memory.Append, group)
	}
	return b.Memory.Append(group)
}

// spoilFifth makes the fifth call of Append call spoil instead.
func (b *backend) spoilFifth(spoil func(next func([]*storage.Entry) error, group []*storage.Entry) error) {
	var n atomic.Int64
	b.append = func(next func([]*storage.Entry) error, group []*storage.Entry) error {
		if n.Add(1) == 5 {
			return spoil(next, group)
		}
		return next(group)
	}
}

func (b *backend) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	n, err := b.Memory.Scan(ctx, r, dst)
	if err == nil && b.scan != nil {
		n = copy(dst, b.scan(r.Device, append([]storage.Record(nil), dst[:n]...)))
	}
	return n, err
}

// serve starts a complete server on b. wrap may modify its answers to writes.
func serve(t testing.TB, b *backend, wrap func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	core, err := ingest.New(b, problem.New(), ingest.Config{})
	try(t, err)
	reads := query.New(b, b,
		query.Options{Service: query.Service{Problems: problem.New(), Param: (*http.Request).PathValue},
			Flags: vitals.NewSigns().DefaultFlagLimits()})
	writes := core.Handler(nil)
	if wrap != nil {
		writes = wrap(writes)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/readings", writes)
	mux.HandleFunc("GET /v1/devices", reads.Devices)
	mux.HandleFunc("GET /v1/devices/{device}/readings", reads.Readings)
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		if err := core.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return srv
}

func target(t testing.TB, srv *httptest.Server) *sim.Target {
	t.Helper()
	target, err := sim.ResolveTarget(t.Context(), srv.URL, false)
	try(t, err)
	return target
}

// runLedger runs opt with a ledger and returns the report and the ledger's path.
func runLedger(t testing.TB, opt sim.Options) (*sim.Report, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger")
	var err error
	opt.Ledger, err = sim.CreateLedger(path, opt.Run, opt.Seed, vitals.NewSigns())
	try(t, err)
	report, err := sim.Run(t.Context(), opt)
	try(t, opt.Ledger.Close())
	wantSum(t, report)
	return report, path, err
}

// wantSum checks that every reading that was sent is counted once.
func wantSum(t testing.TB, r *sim.Report) {
	t.Helper()
	if sum := r.Stored + r.Duplicate + r.Rejected + r.Failed; sum != r.Sent {
		t.Errorf("%d readings sent, but %d stored + %d duplicate + %d rejected + %d failed = %d",
			r.Sent, r.Stored, r.Duplicate, r.Rejected, r.Failed, sum)
	}
}

func realMix(t testing.TB) sim.Mix {
	return mix(t, "real", map[string]string{"drop": "0.05", "malformed": "0.05", "buffer": "0.3", "forward": "0.1",
		"reorder": "0.1"})
}

// A correct server passes, whatever gateways do.
func TestCountsAddUp(t *testing.T) {
	srv := serve(t, &backend{Memory: storetest.NewMemory()}, nil)
	report, path, err := runLedger(t, sim.Options{Target: target(t, srv), Users: 20, Devices: 31, Batch: 7, Posts: 40,
		Run: "t", Seed: 9,
		Mix: realMix(t)})
	try(t, err)
	if err := report.Fault(); err != nil {
		t.Error(err)
	}
	if report.Requests != 20*40 {
		t.Errorf("%d requests were answered, want %d", report.Requests, 20*40)
	}
	for _, b := range []string{"batch", "buffer", "gzip", "drop", "forward", "reorder", "malformed"} {
		if report.Behaviours[b] == 0 {
			t.Errorf("no request with behaviour %s", b)
		}
	}
	if report.Duplicate == 0 || report.Rejected == 0 || report.Failed != 0 {
		t.Errorf("%d duplicates, %d rejected, %d failed; want some, some and none", report.Duplicate, report.Rejected,
			report.Failed)
	}
	v, err := sim.Verify(t.Context(), path, sim.VerifyOptions{Target: target(t, srv)})
	try(t, err)
	if !v.OK() || v.Acknowledged == 0 || v.Acknowledged != v.Stored || v.Unsettled != 0 {
		t.Errorf("got %+v", v)
	}
	if v.Acknowledged > report.Stored+report.Duplicate {
		t.Errorf("%d acknowledged by the ledger, %d by the report", v.Acknowledged, report.Stored+report.Duplicate)
	}
}

// Each server has one fault, which Verify detects.
func TestVerifyFinds(t *testing.T) {
	type counts struct{ missing, altered, doubled, unknown uint64 }
	for _, tt := range []struct {
		name  string
		spoil func(b *backend)
		want  counts
	}{
		{"nothing", func(*backend) {}, counts{}},
		{"a reading that is acknowledged but not stored", func(b *backend) {
			b.spoilFifth(func(next func([]*storage.Entry) error, group []*storage.Entry) error {
				group[0].Outcome = storage.Stored
				group = group[1:]
				return next(group)
			})
		}, counts{missing: 1}},
		{"a value that is changed", func(b *backend) {
			b.spoilFifth(func(next func([]*storage.Entry) error, group []*storage.Entry) error {
				changed := *group[0].Reading
				changed.Values.Set(vitals.HeartRate, 20000)
				group[0].Reading = &changed
				return next(group)
			})
		}, counts{altered: 1}},
		{"a sign that is dropped", func(b *backend) {
			b.scan = func(device vitals.Name, records []storage.Record) []storage.Record {
				for i := range records {
					if records[i].Values.Has(vitals.SpO2) && device.String() == "sim-t-000001" {
						v, _ := records[i].Values.Get(vitals.HeartRate)
						records[i].Values = vitals.Values{}
						records[i].Values.Set(vitals.HeartRate, v)
						break
					}
				}
				return records
			}
		}, counts{altered: 1}},
		{"an offset from UTC that is dropped", func(b *backend) {
			b.scan = func(device vitals.Name, records []storage.Record) []storage.Record {
				if device.String() == "sim-t-000001" && len(records) > 3 {
					records[3].UTCOffset = 0
				}
				return records
			}
		}, counts{altered: 1}},
		{"an offset from UTC that was not sent", func(b *backend) {
			b.scan = func(device vitals.Name, records []storage.Record) []storage.Record {
				if device.String() == "sim-t-000000" && len(records) > 3 {
					records[3].UTCOffset = vitals.MakeUTCOffset(0)
				}
				return records
			}
		}, counts{altered: 1}},
		{"a sign that was not sent", func(b *backend) {
			b.spoilFifth(func(next func([]*storage.Entry) error, group []*storage.Entry) error {
				more := *group[0].Reading
				more.Values.Set(vitals.RestingHeartRate, 7777)
				group[0].Reading = &more
				return next(group)
			})
		}, counts{altered: 1}},
		{"a reading that is returned twice", func(b *backend) {
			b.scan = func(device vitals.Name, records []storage.Record) []storage.Record {
				if len(records) > 3 && device.String() == "sim-t-000001" {
					records = append(records[:3], records[2:]...)
				}
				return records
			}
		}, counts{doubled: 1}},
		{"a reading that was not sent, of a device of the run", func(b *backend) {
			b.spoilFifth(func(next func([]*storage.Entry) error, group []*storage.Entry) error {
				other := *group[0].Reading
				other.TimeUnixMs = 12345
				if err := next([]*storage.Entry{{Reading: &other}}); err != nil {
					return err
				}
				return next(group)
			})
		}, counts{unknown: 1}},
		{"a reading that was not sent, of an unknown device", func(b *backend) {
			b.spoilFifth(func(next func([]*storage.Entry) error, group []*storage.Entry) error {
				other := *group[0].Reading
				other.Device, _ = vitals.ParseName("sim-t-999999")
				if err := next([]*storage.Entry{{Reading: &other}}); err != nil {
					return err
				}
				return next(group)
			})
		}, counts{unknown: 1}},
		{"a reading that was rejected but is stored", func(b *backend) {
			b.spoilFifth(func(next func([]*storage.Entry) error, group []*storage.Entry) error {
				err := next(group)
				group[0].Outcome, group[0].Sign = storage.Conflict, vitals.HeartRate
				return err
			})
		}, counts{unknown: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &backend{Memory: storetest.NewMemory()}
			srv := serve(t, b, nil)
			opt := sim.Options{Target: target(t, srv), Users: 4, Devices: 4, Posts: 20, Run: "t", Seed: 9}
			tt.spoil(b)
			_, path, err := runLedger(t, opt)
			try(t, err)
			v, err := sim.Verify(t.Context(), path, sim.VerifyOptions{Target: target(t, srv)})
			try(t, err)
			// Verifying the ledger in shares gives the same result.
			again, err := sim.Verify(t.Context(), path, sim.VerifyOptions{Target: target(t, srv)}.InShares(1000))
			if err != nil || !reflect.DeepEqual(again, v) {
				t.Errorf("in shares: got %+v, %v, want %+v", again, err, v)
			}
			if got := (counts{v.Missing, v.Altered, v.Doubled, v.Unknown}); got != tt.want {
				t.Errorf("got %+v, want %+v; %v", got, tt.want, v.Examples)
			}
			if v.OK() != (tt.want == counts{}) || (v.Fault() == nil) != v.OK() {
				t.Errorf("OK is %v, Fault is %v", v.OK(), v.Fault())
			}
			if !v.OK() && len(v.Examples) == 0 {
				t.Error("no example is given")
			}
		})
	}
}

// Readings that were sent but never acknowledged may be stored or not.
func TestVerifyUnsettled(t *testing.T) {
	b := &backend{Memory: storetest.NewMemory()}
	srv := serve(t, b, nil)
	device, err := vitals.ParseName("sim-u-000000")
	try(t, err)
	stored := vitals.Reading{Device: device, TimeUnixMs: 2000, Values: valuesOf(t, 3, 6000)}
	try(t, b.Memory.Append([]*storage.Entry{{Reading: &stored}}))
	path := writeLedger(t, "u", func(s *sim.LedgerScript) error {
		for i, at := range []int64{1000, 2000, 3000} {
			if err := s.Sent(uint64(i), 0, at, valuesOf(t, 3, 6000)); err != nil {
				return err
			}
		}
		return s.GivenUp(0)
	})
	v, err := sim.Verify(t.Context(), path, sim.VerifyOptions{Target: target(t, srv)})
	try(t, err)
	if !v.OK() || v.Unsettled != 3 || v.UnsettledStored != 1 || v.Acknowledged != 0 || v.Stored != 1 {
		t.Errorf("got %+v", v)
	}
}

// If a response is cut off during the read-back, Verify retries and continues where it
// stopped.
func TestVerifyRetries(t *testing.T) {
	b := &backend{Memory: storetest.NewMemory()}
	srv := serve(t, b, nil)
	_, path, err := runLedger(t, sim.Options{Target: target(t, srv), Users: 1, Posts: 60, Batch: 50, Run: "t", Seed: 9})
	try(t, err)
	var n atomic.Int64
	b.scan = func(_ vitals.Name, records []storage.Record) []storage.Record {
		if n.Add(1) == 4 {
			panic(http.ErrAbortHandler)
		}
		return records
	}
	v, err := sim.Verify(t.Context(), path, sim.VerifyOptions{Target: target(t, srv)})
	try(t, err)
	if !v.OK() || v.Stored != 3000 {
		t.Errorf("got %+v", v)
	}
}
