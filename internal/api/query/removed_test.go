package query_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A hooked is a store that calls hook before each scan.
type hooked struct {
	*storetest.Memory
	hook func(scan int)
	n    int
}

func (h *hooked) WalkDevices(context.Context, func([]storage.Device)) error { return nil }

func (h *hooked) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	h.n++
	h.hook(h.n)
	return h.Memory.Scan(ctx, r, dst)
}

// An answer during which its readings are removed does not look complete, whether the device is written again or not.
// It is a rejection if nothing was sent yet.
func TestRemovedMeanwhile(t *testing.T) {
	var lines []string
	for i := range 6000 {
		lines = append(lines, fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":97,"gateway":"g-%d"}`, 1000+i*1000, i))
	}
	full := fill(t, lines...)
	a, err := vitals.ParseName("a")
	try(t, err)
	removals := map[string]func(m *storetest.Memory) error{
		"erased": func(m *storetest.Memory) error { _, err := m.Erase(a); return err },
		"erased and written again": func(m *storetest.Memory) error {
			_, err := m.Erase(a)
			appendTo(t, m, `{"device":"a","time":5999000,"spo2_pct":97}`, `{"device":"a","time":1000,"spo2_pct":97}`)
			return err
		},
		"an assignment erased": func(m *storetest.Memory) error {
			as := storage.Assignment{Device: a, Subject: "p", FromUnixMs: 1_500_000, ToUnixMs: 4_500_000}
			if err := m.Assign(t.Context(), as); err != nil {
				return err
			}
			_, err := m.EraseAssignment(as)
			return err
		},
	}
	for name, remove := range removals {
		for _, tt := range []struct{ path, want string }{
			{"readings?format=ndjson", "cut"},
			{"readings?format=ndjson&order=desc", "cut"},
			{"readings?format=csv", "cut"},
			{"readings?format=omh", "cut"},
			{"readings?limit=5000", "cut"},
			{"readings?format=parquet", "500"}, // in memory until the row group is complete
			{"readings?flag=any", "500"},
			{"aggregates?format=csv&step=1s", "cut"},
			{"aggregates?format=ndjson&step=1s", "cut"},
			{"aggregates?step=1d", "500"},
		} {
			for _, coding := range []string{"identity", "gzip", "zstd"} {
				var failed []error
				store := &hooked{Memory: full.Clone(0), hook: func(scan int) {}}
				store.hook = func(scan int) {
					if scan == 2 {
						if err := remove(store.Memory); err != nil {
							t.Error(err)
						}
					}
				}
				srv := serveOptions(t, store,
					query.Options{Service: query.Service{OnError: func(err error) { failed = append(failed, err) }}}, unchanged)
				req, err := http.NewRequest("GET", srv.URL+"/v1/devices/a/"+tt.path, nil)
				try(t, err)
				req.Header.Set("Accept-Encoding", coding)
				resp, err := srv.Client().Do(req)
				try(t, err)
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				got := fmt.Sprint(resp.StatusCode)
				if resp.StatusCode == 200 && err != nil {
					got = "cut"
				}
				if coding != "identity" && tt.want == "cut" && got == "500" { // what was compressed was not sent yet
					got = "cut"
				}
				if got != tt.want ||
					got == "500" && !strings.Contains(string(text), "Readings were removed while they were read.") {
					t.Errorf("%s, %s in %s: %s, %d bytes", name, tt.path, coding, got, len(text))
				}
				if len(failed) > 0 {
					t.Errorf("%s, %s in %s: reported %v", name, tt.path, coding, failed)
				}
			}
		}
	}
}

// Readings that arrive while others are read cut nothing off.
func TestAddedMeanwhile(t *testing.T) {
	var lines []string
	for i := range 6000 {
		lines = append(lines, fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":97}`, 1000+i*1000))
	}
	for _, order := range []string{"asc", "desc"} {
		store := &hooked{Memory: fill(t, lines...), hook: func(scan int) {}}
		store.hook = func(scan int) {
			if scan == 2 {
				// On either side of the last one shown, in both orders; one completes it.
				appendTo(t, store.Memory, `{"device":"a","time":2047999,"spo2_pct":97}`,
					`{"device":"a","time":2048001,"spo2_pct":97}`,
					`{"device":"a","time":2048000,"heart_rate_bpm":60}`, `{"device":"a","time":3953001,"spo2_pct":97}`,
					`{"device":"a","time":3952999,"spo2_pct":97}`)
			}
		}
		srv := serveOptions(t, store, query.Options{}, unchanged)
		_, text := get(t, srv, "/v1/devices/a/readings?format=ndjson&order="+order)
		// Ahead of what is shown, in each order, are three of the four.
		if n := strings.Count(text, "\n"); n != 6003 {
			t.Errorf("%s: %d readings", order, n)
		}
	}
}

// A read that somebody holds up is a rejection for later.
func TestUnavailable(t *testing.T) {
	store := lockedStore{fill(t, `{"device":"a","time":1000,"spo2_pct":97}`)}
	var failed []error
	srv := serveOptions(t, store,
		query.Options{Service: query.Service{OnError: func(err error) { failed = append(failed, err) }}}, unchanged)
	for _, path := range []string{"", "/readings", "/readings?format=csv", "/aggregates?step=1d"} {
		failed = nil
		resp, err := srv.Client().Get(srv.URL + "/v1/devices/a" + path)
		try(t, err)
		text, err := io.ReadAll(resp.Body)
		try(t, err)
		resp.Body.Close()
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(text), "#unreadable") ||
			len(failed) != 1 {
			t.Errorf("%s: got %d %s, Retry-After %q, reported %v", path, resp.StatusCode, text,
				resp.Header.Get("Retry-After"), failed)
		}
	}
}

// A lockedStore is a store of which somebody has locked the readings.
type lockedStore struct{ *storetest.Memory }

func (lockedStore) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return storage.Device{}, storage.ErrUnavailable
}

func (lockedStore) Scan(context.Context, storage.Range, []storage.Record) (int, error) {
	return 0, storage.ErrUnavailable
}

func (lockedStore) Devices(context.Context, vitals.Name, []storage.Device) (int, error) {
	return 0, storage.ErrUnavailable
}
