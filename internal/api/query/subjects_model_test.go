package query_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A wornStore is a store of readings and assignments.
type wornStore interface {
	source
	query.Assigner
	query.SubjectAssigner
	Append(group []*storage.Entry) error
	Assign(ctx context.Context, a storage.Assignment) error
}

// modelUnixMs is the time of the first reading, a whole hour.
const modelUnixMs = 1_795_010_400_000

// A modelReading is a reading of a device, as a page of the device in NDJSON has it.
type modelReading struct {
	line    string
	device  string
	subject string
	unixMs  int64
	values  map[string]float64
}

// A subjectModel has all readings of a store, of which it finds those of a subject slowly.
type subjectModel struct {
	rng      *rand.Rand
	store    wornStore
	srv      *httptest.Server
	devices  []string
	assigned []storage.Assignment
}

// newSubjectModel fills a store with readings of devices that begin with a prefix, and with assignments.
func newSubjectModel(t *testing.T, seed uint64, store wornStore, prefix string) *subjectModel {
	t.Helper()
	m := &subjectModel{rng: rand.New(rand.NewPCG(seed, 7)), store: store}
	rng := m.rng
	for d := range 1 + rng.IntN(4) {
		device := fmt.Sprint(prefix, "d", d)
		m.devices = append(m.devices, device)
		m.fill(t, name(t, device), 1+rng.IntN(60))
		for from := rng.Int64N(4000); from < 12_000; {
			a := storage.Assignment{
				Device: name(t, device), Subject: storage.Subject(prefix + []string{"P-1", "P-2", "P-3"}[rng.IntN(3)]),
				FromUnixMs: modelUnixMs + from, ToUnixMs: modelUnixMs + from + 1 + rng.Int64N(4000),
			}
			if rng.IntN(6) == 0 {
				a.ToUnixMs = storage.OpenEnd
			}
			try(t, store.Assign(t.Context(), a))
			m.assigned = append(m.assigned, a)
			if a.ToUnixMs == storage.OpenEnd {
				break
			}
			if from = a.ToUnixMs - modelUnixMs; rng.IntN(2) == 0 {
				from += rng.Int64N(2000)
			}
		}
	}
	m.srv = serveOptions(t, store, query.Options{Service: query.Service{Subjects: store}}, unchanged)
	return m
}

// fill stores readings of a device. Devices have readings of the same times, and not all signs.
func (m *subjectModel) fill(t *testing.T, device vitals.Name, n int) {
	t.Helper()
	signs := m.rng.IntN(8)
	var group []*storage.Entry
	for ms := int64(0); len(group) < n; ms += 100 * (1 + m.rng.Int64N(6)) {
		r := vitals.Reading{Device: device, TimeUnixMs: modelUnixMs + ms}
		set := func(s vitals.Sign, v int64) { r.Values.Set(s, vitals.Value(v)) }
		set(vitals.HeartRate, 6000+m.rng.Int64N(2000))
		if signs&1 != 0 && m.rng.IntN(3) == 0 {
			set(vitals.SpO2, 8500+m.rng.Int64N(1500))
		}
		if signs&2 != 0 && m.rng.IntN(10) == 0 {
			set(vitals.Systolic, 12_000+m.rng.Int64N(1000))
			set(vitals.Diastolic, 8000+m.rng.Int64N(1000))
		}
		if signs&4 != 0 && m.rng.IntN(20) == 0 {
			set(vitals.BodyTemperature, 3600+m.rng.Int64N(300))
		}
		group = append(group, &storage.Entry{Reading: &r, ReceivedUnixMs: r.TimeUnixMs + 1000})
	}
	try(t, m.store.Append(group))
}

// of returns the readings of a subject in order: by time, then by device.
func (m *subjectModel) of(t *testing.T, subject string, params url.Values) (all []modelReading) {
	t.Helper()
	params = maps.Clone(params)
	params.Set("format", "ndjson")
	for _, device := range m.devices {
		_, text := get(t, m.srv, "/v1/devices/"+device+"/readings?"+params.Encode())
		for line := range strings.Lines(text) {
			var r struct {
				Time    time.Time
				Subject string
			}
			try(t, json.Unmarshal([]byte(line), &r))
			if r.Subject != subject {
				continue
			}
			values := map[string]any{}
			try(t, json.Unmarshal([]byte(line), &values))
			found := modelReading{line, device, subject, r.Time.UnixMilli(), map[string]float64{}}
			for field, v := range values {
				if number, ok := v.(float64); ok && field != "utc_offset_minutes" {
					found.values[field] = number
				}
			}
			all = append(all, found)
		}
	}
	slices.SortFunc(all, func(a, b modelReading) int {
		byTime := cmp.Compare(a.unixMs, b.unixMs)
		if params.Get("order") == "desc" {
			byTime = -byTime
		}
		return cmp.Or(byTime, cmp.Compare(a.device, b.device))
	})
	return all
}

// ask sends a request about a subject.
func (m *subjectModel) ask(t *testing.T, what, subject, cursor string, params url.Values) (*http.Response, string) {
	t.Helper()
	body := fmt.Sprintf(`{"subject":%q,"cursor":%q}`, subject, cursor)
	if cursor == "" {
		body = fmt.Sprintf(`{"subject":%q}`, subject)
	}
	resp, text := post(t, m.srv, "/v1/subjects/"+what+"?"+params.Encode(), body)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s of %s, %s: %d %s", what, subject, params.Encode(), resp.StatusCode, text)
	}
	return resp, text
}

// with returns parameters with one more.
func with(params url.Values, name, value string) url.Values {
	params = maps.Clone(params)
	params.Set(name, value)
	return params
}

// check compares what the server has of a subject with the model.
func (m *subjectModel) check(t *testing.T, subject string) {
	t.Helper()
	params := url.Values{}
	if m.rng.IntN(2) == 0 {
		from := modelUnixMs + m.rng.Int64N(10_000)
		params.Set("from", fmt.Sprint(from))
		params.Set("to", fmt.Sprint(from+m.rng.Int64N(10_000)))
	}
	if m.rng.IntN(4) == 0 {
		params.Set("received_from", fmt.Sprint(modelUnixMs+m.rng.Int64N(10_000)))
	}
	m.checkAggregates(t, subject, params)
	m.checkLatest(t, subject)
	if m.rng.IntN(2) == 0 {
		params.Set("order", "desc")
	}
	if m.rng.IntN(4) == 0 {
		params.Set("flag", "any")
	}
	m.checkReadings(t, subject, params)
}

func (m *subjectModel) checkReadings(t *testing.T, subject string, params url.Values) {
	t.Helper()
	var want, rows strings.Builder
	all := m.of(t, subject, params)
	for _, r := range all {
		want.WriteString(r.line)
		fmt.Fprintf(&rows, "%s %d %s\n", r.device, r.unixMs, r.subject)
	}
	if _, got := m.ask(t, "readings", subject, "", with(params, "format", "ndjson")); got != want.String() {
		t.Fatalf("readings of %s, %s:\n%s\nwant\n%s", subject, params.Encode(), got, want.String())
	}
	limit, paged := fmt.Sprint(1+m.rng.IntN(20)), ""
	for cursor, more := "", true; more; more = cursor != "" {
		resp, text := m.ask(t, "readings", subject, cursor, with(with(params, "format", "ndjson"), "limit", limit))
		paged, cursor = paged+text, resp.Trailer.Get("Pulsegate-Next-Cursor")
	}
	if paged != want.String() {
		t.Fatalf("pages of %s of %s, %s:\n%s\nwant\n%s", limit, subject, params.Encode(), paged, want.String())
	}
	_, text := m.ask(t, "readings", subject, "", with(params, "limit", "1000"))
	var page struct {
		Readings []struct{ Device, Subject string }
	}
	try(t, json.Unmarshal([]byte(text), &page))
	_, text = m.ask(t, "readings", subject, "", with(params, "format", "csv"))
	inCSV := strings.Count(text, ","+subject+",")
	if len(page.Readings) != len(all) || inCSV != len(all) || strings.Count(text, "\r\n") != len(all)+1 {
		t.Fatalf("%s, %s has %d readings as JSON, and as CSV\n%s\nwant %d", subject, params.Encode(),
			len(page.Readings), text, len(all))
	}
	if m.rng.IntN(4) > 0 { // a file takes long
		return
	}
	_, file := m.ask(t, "readings", subject, "", with(params, "format", "parquet"))
	if got := parquetRows(t, file); got != rows.String() {
		t.Fatalf("Parquet of %s, %s:\n%s\nwant\n%s", subject, params.Encode(), got, rows.String())
	}
}

// parquetRows returns device, time and subject of each row of a file.
func parquetRows(t *testing.T, file string) string {
	t.Helper()
	type row struct {
		Device  string `parquet:"device"`
		Time    int64  `parquet:"time,timestamp(millisecond)"`
		Subject string `parquet:"subject,optional"`
	}
	var rows strings.Builder
	for r := parquet.NewGenericReader[row](bytes.NewReader([]byte(file))); ; {
		some := make([]row, 16)
		n, err := r.Read(some)
		for _, row := range some[:n] {
			fmt.Fprintf(&rows, "%s %d %s\n", row.Device, row.Time, row.Subject)
		}
		if err == io.EOF {
			return rows.String()
		}
		try(t, err)
	}
}

// checkAggregates compares the buckets with those of the model, a line for each.
func (m *subjectModel) checkAggregates(t *testing.T, subject string, params url.Values) {
	t.Helper()
	steps := map[string]int64{"1s": 1000, "2s": 2000, "5s": 5000, "1m": 60_000, "1h": 3_600_000}
	step := slices.Sorted(maps.Keys(steps))[m.rng.IntN(len(steps))]
	type summary struct {
		count                       int
		min, max, sum, first, last  int64 // hundredths
		firstUnixMs, lastUnixMs, at int64
	}
	buckets := map[string]*summary{}
	for _, r := range m.of(t, subject, params) {
		at := r.unixMs - r.unixMs%steps[step]
		for field, number := range r.values {
			v := int64(math.Round(number * 100))
			key := fmt.Sprint(at, " ", field)
			s := buckets[key]
			if s == nil {
				s = &summary{min: v, max: v, first: v, firstUnixMs: r.unixMs, at: at}
				buckets[key] = s
			}
			s.count, s.sum, s.min, s.max = s.count+1, s.sum+v, min(s.min, v), max(s.max, v)
			s.last, s.lastUnixMs = v, r.unixMs
		}
	}
	instant := func(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format("2006-01-02T15:04:05.000Z") }
	whole := func(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format(time.RFC3339) }
	decimal := func(v int64) string {
		return strings.TrimSuffix(fmt.Sprintf("%d.%02d", v/100, v%100), "0")
	}
	var want []string
	for key, s := range buckets {
		_, field, _ := strings.Cut(key, " ")
		mean := (2*s.sum + int64(s.count)) / int64(2*s.count)
		want = append(want, strings.Join([]string{
			whole(s.at), whole(s.at + steps[step]), subject, field, fmt.Sprint(s.count),
			decimal(s.min), decimal(s.max), decimal(mean),
			instant(s.firstUnixMs), decimal(s.first), instant(s.lastUnixMs), decimal(s.last),
		}, ","))
	}
	slices.Sort(want)
	const head = "from,to,subject,sign,count,min,max,mean,first_time,first,last_time,last\r\n"
	params = with(with(params, "step", step), "format", "csv")
	compare := func(text string) {
		t.Helper()
		got := strings.Split(strings.TrimSuffix(text, "\r\n"), "\r\n")
		if text == "" {
			got = nil
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("buckets of %s, %s:\n%s\nwant\n%s", subject, params.Encode(),
				strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	_, text := m.ask(t, "aggregates", subject, "", params)
	rows, ok := strings.CutPrefix(text, head)
	if compare(rows); !ok {
		t.Fatalf("the header is %.200s", text)
	}
	paged := ""
	for cursor, more := "", true; more; more = cursor != "" {
		resp, text := m.ask(t, "aggregates", subject, cursor, with(params, "limit", fmt.Sprint(1+m.rng.IntN(3))))
		paged, cursor = paged+strings.TrimPrefix(text, head), resp.Trailer.Get("Pulsegate-Next-Cursor")
	}
	compare(paged)
}

// checkLatest compares the latest values and the assignments with those of the model.
func (m *subjectModel) checkLatest(t *testing.T, subject string) {
	t.Helper()
	type latest struct {
		Value  float64
		Time   time.Time
		Device string
	}
	type assignment struct {
		Device   string
		From, To time.Time
	}
	var got struct {
		Subject     string
		Latest      map[string]latest
		Assignments []assignment
	}
	_, text := m.ask(t, "latest", subject, "", nil)
	try(t, json.Unmarshal([]byte(text), &got))
	want := map[string]latest{}
	for _, r := range m.of(t, subject, url.Values{}) { // later ones replace earlier ones
		for field, v := range r.values {
			want[field] = latest{v, time.UnixMilli(r.unixMs).UTC(), r.device}
		}
	}
	var spans []assignment
	for _, a := range m.assigned { // by device and beginning
		if string(a.Subject) != subject {
			continue
		}
		span := assignment{Device: a.Device.String(), From: time.UnixMilli(a.FromUnixMs).UTC()}
		if a.ToUnixMs != storage.OpenEnd {
			span.To = time.UnixMilli(a.ToUnixMs).UTC()
		}
		spans = append(spans, span)
	}
	if got.Subject != subject || !maps.Equal(got.Latest, want) || !slices.Equal(got.Assignments, spans) {
		t.Fatalf("the latest values of %s: %s\nwant %v and %v", subject, text, want, spans)
	}
}

// checkSubjects compares stores that were filled at random with the model.
func checkSubjects(t *testing.T, rounds int, open func(prefix string) wornStore) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	for round := range uint64(rounds) {
		prefix := fmt.Sprintf("r%d.", round)
		m := newSubjectModel(t, seed+round, open(prefix), prefix)
		for _, subject := range []string{"P-1", "P-2", "P-3", "nobody"} {
			m.check(t, prefix+subject)
		}
		m.srv.Close()
		if t.Failed() {
			t.Fatalf("seed %d", seed+round)
		}
	}
}

// The readings, aggregates and latest values of a subject are those that were measured during its assignments.
func TestSubjectsModel(t *testing.T) {
	checkSubjects(t, 20, func(string) wornStore { return storetest.NewMemory() })
}

// As TestSubjectsModel, with the embedded store.
func TestSubjectsModelEmbedded(t *testing.T) {
	db, err := pebblestore.Open(t.TempDir(), pebblestore.Options{MinFreeBytes: -1})
	try(t, err)
	t.Cleanup(func() { try(t, db.Close()) })
	checkSubjects(t, 5, func(string) wornStore { return db })
}
