package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
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
	result := &report.FHIR{
		Setting: setting, Rounds: c.Rounds, Duration: c.duration(), WarmUp: c.WarmUp,
		Readings: c.Readings, Senders: senders, FileSystem: fileSystem(work),
	}
	for _, count := range []int{100, 1000, 10_000} {
		result.Searches = append(result.Searches, report.FHIRSearch{Count: count})
	}
	for _, typ := range []string{"batch", "transaction"} {
		for _, n := range []int{100, 1000} {
			result.Bundles = append(result.Bundles, report.FHIRBundle{Type: typ, Observations: n})
		}
	}
	month := filepath.Join(work, "month")
	if err := b.store(ctx, month); err != nil {
		return fmt.Errorf("store readings to search: %w", err)
	}
	for round := range c.Rounds {
		for i := range result.Searches {
			s := &result.Searches[(i+round)%len(result.Searches)]
			run, err := b.search(ctx, month, s.Count)
			if err != nil {
				return fmt.Errorf("measure search: %w", err)
			}
			fmt.Fprintf(out, "round %d  search, _count=%-5d %8.0f Observations/s  %6.2f µs CPU each  peak RSS %.0f MiB, %.0f MiB before\n",
				round+1, s.Count, run.PerSecond(), run.CPUPerObservation(), report.MiB(run.PeakBytes), report.MiB(run.BeforeBytes))
			s.Runs = append(s.Runs, run)
		}
		for i := range result.Bundles {
			s := &result.Bundles[(i+round)%len(result.Bundles)]
			run, err := b.receive(ctx, filepath.Join(work, fmt.Sprintf("in-%d-%d", round, i)), s.Type, s.Observations)
			if err != nil {
				return fmt.Errorf("measure Bundles: %w", err)
			}
			fmt.Fprintf(out, "round %d  %-11s of %-4d  %8.0f Observations/s  %6.2f µs CPU each  peak RSS %.0f MiB, p50 %v, p99 %v\n",
				round+1, s.Type, s.Observations, run.PerSecond(), run.CPUPerObservation(), report.MiB(run.PeakBytes), run.P50, run.P99)
			s.Runs = append(s.Runs, run)
		}
	}
	return c.write(out, "bench-fhir", result.Markdown())
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

// exchange sends a request, and returns the body of its answer in buf[:0] or a new array.
func exchange(ctx context.Context, method, url string, body io.Reader, buf []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text := bytes.NewBuffer(buf[:0])
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %.500s", resp.StatusCode, text.Bytes())
	}
	return text.Bytes(), nil
}

// search searches all Observations of the patient, page by page, again and again, on a new
// server.
func (b *fhirRun) search(ctx context.Context, dir string, count int) (run report.FHIRRun, err error) {
	_, err = b.serve(ctx, dir, func(p *process) error {
		if run.BeforeBytes, err = memory(p.pid(), "VmRSS"); err != nil {
			return err
		}
		before, err := cpuTime(p.pid())
		if err != nil {
			return err
		}
		url := "http://" + p.public + "/fhir/Observation?patient=" + fhirPatient(0) + "&_count=" + strconv.Itoa(count)
		var page []byte
		start := time.Now()
		for run.Duration < b.duration() {
			n := 0
			for next := url; next != ""; {
				sent := time.Now()
				if page, err = exchange(ctx, http.MethodGet, next, nil, page); err != nil {
					return err
				}
				run.Latencies = append(run.Latencies, time.Since(sent))
				n += bytes.Count(page, []byte(`"resource":{"resourceType":"Observation",`))
				run.Bytes += uint64(len(page))
				next = nextPage(page)
			}
			if n != b.Readings {
				return fmt.Errorf("the pages have %d Observations, want %d", n, b.Readings)
			}
			run.Observations += uint64(n)
			run.Duration = time.Since(start)
		}
		return b.finish(p, before, &run)
	})
	return run, err
}

// finish sets the server's CPU time and peak memory in run.
func (b *fhirRun) finish(p *process, before time.Duration, run *report.FHIRRun) error {
	after, errCPU := cpuTime(p.pid())
	peak, errPeak := memory(p.pid(), "VmHWM")
	run.CPU, run.PeakBytes = after-before, max(peak, run.BeforeBytes) // the kernel counts resident pages inexactly
	run.Sort()
	return errors.Join(errCPU, errPeak)
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
func (b *fhirRun) receive(ctx context.Context, dir, typ string, observations int) (run report.FHIRRun, err error) {
	var bundles uint64
	stored, err := b.serve(ctx, dir, func(p *process) error {
		for sender := range senders {
			if err := b.assign(ctx, p, sender); err != nil {
				return err
			}
		}
		load := func(start time.Time, d time.Duration) (posted, error) {
			all := make([]source, senders)
			for sender := range all {
				all[sender] = bundleSource(p.public, typ, observations, sender, start)
			}
			sent, err := post(ctx, p.public, all, d, func(answer []byte) bool {
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
		run = report.FHIRRun{Observations: sent.batches * uint64(observations), Duration: sent.duration, Bytes: sent.bodyBytes, Latencies: sent.latencies}
		if _, err := idleTime(ctx, []int{p.pid()}); err != nil {
			return err
		}
		return b.finish(p, before, &run)
	})
	if want := bundles * uint64(observations); err == nil && stored != want {
		err = fmt.Errorf("the server stored %d readings, and %d were answered as stored", stored, want)
	}
	return run, err
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
