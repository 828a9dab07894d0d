package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// fhirCommand measures Pulsegate as a FHIR server: a client reads a patient's month page by
// page, and gateways send Bundles. Every reading has one Observation, of its heart rate,
// which is the most expensive case for a search.
type fhirCommand struct {
	loads
	Readings int `default:"43200" help:"Readings of the patient whose Observations are searched, one a minute."`
}

func (c *fhirCommand) Validate() error {
	if c.Readings < 1 {
		return errors.New("--readings must be at least 1")
	}
	return c.loads.Validate()
}

func (c *fhirCommand) Run(ctx context.Context, out io.Writer) error {
	return c.with(ctx, out, c.measure, report.Own)
}

func (c *fhirCommand) measure(ctx context.Context) error {
	columns := append([]report.Column{
		{Title: "Observations/s", Figure: "rate", Format: "%.0f"},
		{Title: "CPU each, µs", Figure: "cpu", Format: "%.2f"},
		{Title: "bytes each", Figure: "bytes", Format: "%.0f", Show: report.Median},
	}, latencyColumns("%.2f")...)
	peak := report.Column{Title: "peak, MiB", Figure: "peak", Format: "%.0f"}
	searches := &report.Table{Head: "search, Observations a page", Columns: append(slices.Clone(columns), report.Column{Title: "resident before, MiB", Figure: "before", Format: "%.0f"}, peak)}
	bundles := &report.Table{Head: "Bundle", Columns: append(columns, peak)}
	if err := c.keep(ctx, ownKeeper(c.Programs), func(k *keeper) error {
		if err := c.storeMonth(ctx, k); err != nil {
			return fmt.Errorf("store readings to search: %w", err)
		}
		return compare(&c.common, searches, []int{100, 1000, 10_000}, named, func(count *int) (report.Figures, error) {
			if err := errors.Join(k.stop(), k.restart(ctx)); err != nil {
				return nil, err
			}
			return c.search(ctx, k.process, *count)
		})
	}); err != nil {
		return err
	}
	if err := compare(&c.common, bundles, []bundleKind{{"batch", 100}, {"batch", 1000}, {"transaction", 100}, {"transaction", 1000}},
		func(kind *bundleKind) (name, label string) {
			return fmt.Sprintf("%s of %d", kind.typ, kind.observations), ""
		},
		func(kind *bundleKind) (report.Figures, error) { return c.receive(ctx, kind) }); err != nil {
		return err
	}
	r := c.report("bench-fhir", "The client shares the CPUs; it counts the Observations of each page. CPU is user and system time of the server. "+
		"Every Bundle was answered after its sync, and the number of stored readings was checked. "+rounded+" Latency is that of a page or Bundle.",
		fmt.Sprintf("Search: one client reads all Observations of a patient with %d readings of heart rate, one a minute, page by page, again and again", c.Readings),
		fmt.Sprintf("Bundles: %d connections send Bundles of new Observations of one device each, and the next one after the answer", senders),
		fmt.Sprintf("Rounds: %d, in each of which a new server is started for every line and loaded for %v, for Bundles after a warm-up of %v; the order rotates by one line in each round", c.Rounds, c.duration(), c.WarmUp))
	r.Tables = []*report.Table{searches, bundles}
	for _, row := range searches.Rows {
		r.Goals = append(r.Goals, searches.Goals(report.Bar{What: "search, " + row.Name + " a page: Observations/s", Row: row.Name, Figure: "rate", AtLeast: true, Limit: 100_000, Format: "%.0f"})...)
	}
	for _, row := range bundles.Rows {
		r.Goals = append(r.Goals, bundles.Goals(report.Bar{What: row.Name + ": durable Observations/s", Row: row.Name, Figure: "rate", AtLeast: true, Limit: 20_000, Format: "%.0f"})...)
	}
	return c.write("fhir", r)
}

// A bundleKind is a kind of Bundles.
type bundleKind struct {
	typ          string
	observations int
}

// assign assigns the device of a sender to the patient of that sender.
func assign(ctx context.Context, p *process, sender int) error {
	body := fmt.Sprintf(`{"device":%q,"subject":%q,"from":"2000-01-01T00:00:00Z"}`, fhirDevice(sender), fhirPatient(sender))
	if _, err := exchange(ctx, http.MethodPost, "http://"+p.admin+"/admin/subject/assign", strings.NewReader(body), nil); err != nil {
		return fmt.Errorf("assign device: %w", err)
	}
	return nil
}

func fhirDevice(sender int) string  { return fmt.Sprintf("ppg-%06d", sender) }
func fhirPatient(sender int) string { return fmt.Sprintf("p-%d", sender) }

// storeMonth stores the readings that are searched.
func (c *fhirCommand) storeMonth(ctx context.Context, k *keeper) error {
	if err := assign(ctx, k.process, 0); err != nil {
		return err
	}
	start := time.Now().Add(-time.Duration(c.Readings) * time.Minute)
	for n := 0; n < c.Readings; {
		var lines bytes.Buffer
		for end := min(n+batchReadings, c.Readings); n < end; n++ {
			at := start.Add(time.Duration(n)*time.Minute + time.Duration(n*n%40)*time.Millisecond)
			fmt.Fprintf(&lines, `{"device":%q,"time":%q,"heart_rate_bpm":%d.%d}`+"\n", fhirDevice(0), at.UTC().Format(stampForm), 60+n%37, n%10)
		}
		if _, err := exchange(ctx, http.MethodPost, "http://"+k.process.public+path, &lines, nil); err != nil {
			return err
		}
	}
	stored, err := k.stored(ctx)
	if err == nil && stored != uint64(c.Readings) {
		err = fmt.Errorf("the server stored %d of %d readings", stored, c.Readings)
	}
	return err
}

// search searches all Observations of the patient, page by page, again and again, on a new
// server.
func (c *fhirCommand) search(ctx context.Context, p *process, count int) (report.Figures, error) {
	idle, err := memory(p.pid())
	if err != nil {
		return nil, err
	}
	before, err := cpuTime(p.pid())
	if err != nil {
		return nil, err
	}
	url := "http://" + p.public + "/fhir/Observation?patient=" + fhirPatient(0) + "&_count=" + strconv.Itoa(count)
	var page []byte
	var sent flowed
	for start := time.Now(); sent.duration < c.duration(); sent.duration = time.Since(start) {
		n := 0
		for next := url; next != ""; {
			asked := time.Now()
			if page, err = exchange(ctx, http.MethodGet, next, nil, page); err != nil {
				return nil, err
			}
			sent.answers = append(sent.answers, storedBatch{took: time.Since(asked)})
			n += bytes.Count(page, []byte(`"resource":{"resourceType":"Observation",`))
			sent.bytes += uint64(len(page))
			next = nextPage(page)
		}
		if n != c.Readings {
			return nil, fmt.Errorf("the pages have %d Observations, want %d", n, c.Readings)
		}
		sent.batches++
	}
	f, err := finish(p, before, &sent, c.Readings)
	f["before"] = report.MiB(idle.VmRSS)
	f["peak"] = max(f["peak"], f["before"]) // the kernel counts resident pages inexactly
	return f, err
}

// finish returns the figures of a server that has sent or received batches of Observations.
func finish(p *process, before time.Duration, sent *flowed, observations int) (report.Figures, error) {
	after, errCPU := cpuTime(p.pid())
	now, errMemory := memory(p.pid())
	n := sent.batches * uint64(observations)
	q := sent.quantiles(0.5, 0.99)
	f := latency(per(n, sent.duration, after-before, sent.cpu), q[0], q[1])
	f["bytes"], f["peak"] = float64(sent.bytes)/float64(n), report.MiB(now.VmHWM)
	return f, errors.Join(errCPU, errMemory)
}

// nextPage returns the URL of the page after a page of a search, or "" if it is the last.
func nextPage(page []byte) string {
	const before = `"relation":"next","url":"`
	i := bytes.LastIndex(page, []byte(before))
	if i < 0 {
		return ""
	}
	url, _, _ := bytes.Cut(page[i+len(before):], []byte(`"`))
	return string(url)
}

// receive sends Bundles of new Observations to a new server over several connections.
func (c *fhirCommand) receive(ctx context.Context, kind *bundleKind) (f report.Figures, err error) {
	own := pulsegate()
	s, err := c.start(ctx, &own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	p := s.nodes[0]
	for sender := range senders {
		if err := assign(ctx, p, sender); err != nil {
			return nil, err
		}
	}
	isStored := func(status int, answer []byte) bool {
		return status == http.StatusOK && bytes.Count(answer, []byte(`"status":"201`)) == kind.observations
	}
	var bundles uint64
	load := func(start time.Time, d time.Duration) (flowed, error) {
		all := make([]feed, senders)
		for sender := range all {
			all[sender] = feed{openHTTP(p.public, "/fhir", "Content-Type: application/fhir+json\r\n", isStored), newBundle(kind, sender).oneByOne(start)}
		}
		sent, err := post(ctx, all, d)
		bundles += sent.batches
		return sent, errors.Join(err, awaitIdle(ctx, []int{p.pid()}))
	}
	// The warm-up's times are before all others.
	if c.WarmUp > 0 {
		if _, err := load(time.Unix(1e9, 0), c.WarmUp); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	before, err := cpuTime(p.pid())
	if err != nil {
		return nil, err
	}
	sent, err := load(time.Unix(1.5e9, 0), c.duration())
	if err != nil {
		return nil, err
	}
	if f, err = finish(p, before, &sent, kind.observations); err != nil {
		return nil, err
	}
	return f, s.end(ctx, bundles*uint64(kind.observations), 0)
}

// newBundle returns a Bundle of Observations of a sender's device in the form of the Personal
// Health Device guide. Its times and the last digits of its values change.
func newBundle(kind *bundleKind, sender int) *batch {
	b := &batch{random: uint32(sender)}
	b.body = fmt.Appendf(b.body, `{"resourceType":"Bundle","type":%q,"entry":[`, kind.typ)
	for i := range kind.observations {
		if i > 0 {
			b.body = append(b.body, ',')
		}
		b.body = fmt.Appendf(b.body, `{"fullUrl":"urn:uuid:00000000-0000-4000-8000-%012x","resource":{"resourceType":"Observation",`+
			`"meta":{"profile":["http://hl7.org/fhir/uv/phd/StructureDefinition/PhdNumericObservation"]},"status":"final",`+
			`"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"vital-signs"}]}],`+
			`"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"149530"},{"system":"http://loinc.org","code":"8867-4"}]},`+
			`"subject":{"reference":"Patient/%s"},"device":{"reference":"Device/%s"},"effectiveDateTime":"`, i, fhirPatient(sender), fhirDevice(sender))
		b.stamps = append(b.stamps, len(b.body))
		b.body = append(b.body, stampForm...)
		b.number(`","valueQuantity":{"value":`, 60+i%37)
		b.body = append(b.body, `,"system":"http://unitsofmeasure.org","code":"/min"}},"request":{"method":"POST","url":"Observation"}}`...)
	}
	b.body = append(b.body, "]}"...)
	return b
}

// oneByOne returns what makes Bundles whose Observations are one second apart, beginning at start.
func (b *batch) oneByOne(start time.Time) func() []byte {
	var stamp []byte
	return func() []byte {
		b.set(start)
		for _, i := range b.stamps {
			stamp = start.UTC().AppendFormat(stamp[:0], stampForm)
			copy(b.body[i:], stamp)
			start = start.Add(time.Second)
		}
		return b.body
	}
}
