package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
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

func (c *fhirCommand) Run(ctx context.Context, out io.Writer) (err error) {
	setting := c.setting("bench-fhir")
	work, remove, err := c.prepare(ctx, report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := &fhirRun{c, work, out}
	columns := append([]report.Column{
		{Title: "Observations/s", Figure: "rate", Format: "%.0f"},
		{Title: "CPU each, µs", Figure: "cpu", Format: "%.2f"},
		{Title: "bytes each", Figure: "bytes", Format: "%.0f", Show: report.Median},
	}, latencyColumns("%.2f")...)
	peak := report.Column{Title: "peak, MiB", Figure: "peak", Format: "%.0f"}
	searches := &report.Table{Head: "search, Observations a page", Columns: append(slices.Clone(columns), report.Column{Title: "resident before, MiB", Figure: "before", Format: "%.0f"}, peak)}
	bundles := &report.Table{Head: "Bundle", Columns: append(columns, peak)}
	counts := []int{100, 1000, 10_000}
	kinds := []struct {
		typ          string
		observations int
	}{{"batch", 100}, {"batch", 1000}, {"transaction", 100}, {"transaction", 1000}}
	month := filepath.Join(work, "month")
	if err := b.store(ctx, month); err != nil {
		return fmt.Errorf("store readings to search: %w", err)
	}
	for round := range c.Rounds {
		for i := range counts {
			count := counts[(i+round)%len(counts)]
			f, err := b.search(ctx, month, count)
			if err != nil {
				return fmt.Errorf("measure search: %w", err)
			}
			searches.Add(out, round, strconv.Itoa(count), "", f)
		}
		for i := range kinds {
			kind := kinds[(i+round)%len(kinds)]
			f, err := b.receive(ctx, filepath.Join(work, fmt.Sprintf("in-%d-%d", round, i)), kind.typ, kind.observations)
			if err != nil {
				return fmt.Errorf("measure Bundles: %w", err)
			}
			bundles.Add(out, round, fmt.Sprintf("%s of %d", kind.typ, kind.observations), "", f)
		}
	}
	r := report.Report{
		Setting: setting,
		Notes: []string{
			fmt.Sprintf("Search: one client reads all Observations of a patient with %d readings of heart rate, one a minute, page by page, again and again", c.Readings),
			fmt.Sprintf("Bundles: %d connections send Bundles of new Observations of one device each, and the next one after the answer", senders),
			fmt.Sprintf("Rounds: %d, in each of which a new server is started for every line and loaded for %v, for Bundles after a warm-up of %v; the order rotates by one line in each round", c.Rounds, c.duration(), c.WarmUp),
			"Data: on " + fileSystem(work),
		},
		Text: "The client shares the CPUs; it counts the Observations of each page. CPU is user and system time of the server. " +
			"Every Bundle was answered after its sync, and the number of stored readings was checked. " + rounded + " Latency is that of a page or Bundle.",
		Tables: []*report.Table{searches, bundles},
	}
	for _, row := range searches.Rows {
		r.Goals = append(r.Goals, searches.Goals(report.Bar{What: "search, " + row.Name + " a page: Observations/s", Row: row.Name, Figure: "rate", AtLeast: true, Limit: 100_000, Format: "%.0f"})...)
	}
	for _, row := range bundles.Rows {
		r.Goals = append(r.Goals, bundles.Goals(report.Bar{What: row.Name + ": durable Observations/s", Row: row.Name, Figure: "rate", AtLeast: true, Limit: 20_000, Format: "%.0f"})...)
	}
	return c.write(out, "bench-fhir", r.Markdown())
}

// A fhirRun is one run of the command.
type fhirRun struct {
	*fhirCommand
	work string
	out  io.Writer
}

// serve calls f while a server with its data in dir runs, and returns the number of readings
// that the server stored.
func (b *fhirRun) serve(ctx context.Context, dir string, f func(*process) error) (stored uint64, err error) {
	p, err := b.startOwn(ctx, dir, nil)
	if err != nil {
		return 0, err
	}
	err = errors.Join(f(p), p.stop())
	stored, ok := p.stored()
	if !ok && err == nil {
		err = errors.New("the server did not log how many readings it stored")
	}
	return stored, err
}

// assign assigns the device of a sender to the patient of that sender.
func (b *fhirRun) assign(ctx context.Context, p *process, sender int) error {
	body := fmt.Sprintf(`{"device":%q,"subject":%q,"from":"2000-01-01T00:00:00Z"}`, fhirDevice(sender), fhirPatient(sender))
	if _, err := exchange(ctx, http.MethodPost, "http://"+p.admin+"/admin/subject/assign", strings.NewReader(body), nil); err != nil {
		return fmt.Errorf("assign device: %w", err)
	}
	return nil
}

func fhirDevice(sender int) string  { return fmt.Sprintf("ppg-%06d", sender) }
func fhirPatient(sender int) string { return fmt.Sprintf("p-%d", sender) }

// store stores the readings that are searched.
func (b *fhirRun) store(ctx context.Context, dir string) error {
	stored, err := b.serve(ctx, dir, func(p *process) error {
		if err := b.assign(ctx, p, 0); err != nil {
			return err
		}
		start := time.Now().Add(-time.Duration(b.Readings) * time.Minute)
		for n := 0; n < b.Readings; {
			var lines bytes.Buffer
			for end := min(n+batchReadings, b.Readings); n < end; n++ {
				at := start.Add(time.Duration(n)*time.Minute + time.Duration(n*n%40)*time.Millisecond)
				fmt.Fprintf(&lines, `{"device":%q,"time":%q,"heart_rate_bpm":%d.%d}`+"\n", fhirDevice(0), at.UTC().Format(stampForm), 60+n%37, n%10)
			}
			if _, err := exchange(ctx, http.MethodPost, "http://"+p.public+path, &lines, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && stored != uint64(b.Readings) {
		err = fmt.Errorf("the server stored %d of %d readings", stored, b.Readings)
	}
	return err
}

// search searches all Observations of the patient, page by page, again and again, on a new
// server.
func (b *fhirRun) search(ctx context.Context, dir string, count int) (f report.Figures, err error) {
	_, err = b.serve(ctx, dir, func(p *process) error {
		idle, err := memory(p.pid())
		if err != nil {
			return err
		}
		before, err := cpuTime(p.pid())
		if err != nil {
			return err
		}
		url := "http://" + p.public + "/fhir/Observation?patient=" + fhirPatient(0) + "&_count=" + strconv.Itoa(count)
		var page []byte
		var sent flowed
		for start := time.Now(); sent.duration < b.duration(); sent.duration = time.Since(start) {
			n := 0
			for next := url; next != ""; {
				asked := time.Now()
				if page, err = exchange(ctx, http.MethodGet, next, nil, page); err != nil {
					return err
				}
				sent.answers = append(sent.answers, storedBatch{took: time.Since(asked)})
				n += bytes.Count(page, []byte(`"resource":{"resourceType":"Observation",`))
				sent.bytes += uint64(len(page))
				next = nextPage(page)
			}
			if n != b.Readings {
				return fmt.Errorf("the pages have %d Observations, want %d", n, b.Readings)
			}
			sent.batches++
		}
		f, err = finish(p, before, &sent, b.Readings)
		f["before"] = report.MiB(idle.VmRSS)
		f["peak"] = max(f["peak"], f["before"]) // the kernel counts resident pages inexactly
		return err
	})
	return f, err
}

// finish returns the figures of a server that has sent or received batches of Observations.
func finish(p *process, before time.Duration, sent *flowed, observations int) (report.Figures, error) {
	after, errCPU := cpuTime(p.pid())
	now, errMemory := memory(p.pid())
	n := sent.batches * uint64(observations)
	f := sent.figures(uint64(observations), after-before)
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
func (b *fhirRun) receive(ctx context.Context, dir, typ string, observations int) (f report.Figures, err error) {
	var bundles uint64
	stored, err := b.serve(ctx, dir, func(p *process) error {
		for sender := range senders {
			if err := b.assign(ctx, p, sender); err != nil {
				return err
			}
		}
		load := func(start time.Time, d time.Duration) (flowed, error) {
			all := make([]feed, senders)
			for sender := range all {
				all[sender] = feed{p.public, bundleSource(p.public, typ, observations, sender, start)}
			}
			sent, err := post(ctx, all, d, func(answer []byte) bool {
				return bytes.Count(answer, []byte(`"status":"201`)) == observations
			})
			bundles += sent.batches
			return sent, err
		}
		// The warm-up's times are before all others.
		if b.WarmUp > 0 {
			if _, err := load(time.Unix(1e9, 0), b.WarmUp); err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
		}
		before, err := idleTime(ctx, []int{p.pid()})
		if err != nil {
			return err
		}
		sent, err := load(time.Unix(1.5e9, 0), b.duration())
		if err != nil {
			return err
		}
		if _, err := idleTime(ctx, []int{p.pid()}); err != nil {
			return err
		}
		f, err = finish(p, before, &sent, observations)
		return err
	})
	if want := bundles * uint64(observations); err == nil && stored != want {
		err = fmt.Errorf("the server stored %d readings, and %d were answered as stored", stored, want)
	}
	return f, err
}

// newBundle returns a Bundle of Observations of a sender's device in the form of the Personal
// Health Device guide. Its times and the last digits of its values change.
func newBundle(typ string, observations, sender int) *batch {
	b := &batch{random: uint32(sender)}
	b.body = fmt.Appendf(b.body, `{"resourceType":"Bundle","type":%q,"entry":[`, typ)
	for i := range observations {
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

// bundleSource returns a source of Bundles whose Observations are one second apart, beginning
// at start.
func bundleSource(addr, typ string, observations, sender int, start time.Time) source {
	b := newBundle(typ, observations, sender)
	head := fmt.Appendf(nil, "POST /fhir HTTP/1.1\r\nHost: %s\r\nContent-Type: application/fhir+json\r\nContent-Length: %d\r\n\r\n", addr, len(b.body))
	request := append(head, b.body...)
	b.body = request[len(head):]
	var stamp []byte
	return func() []byte {
		b.set(start)
		for _, i := range b.stamps {
			stamp = start.UTC().AppendFormat(stamp[:0], stampForm)
			copy(b.body[i:], stamp)
			start = start.Add(time.Second)
		}
		return request
	}
}
