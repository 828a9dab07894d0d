package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Names of the parts of a run. Each writes a file of its own.
const (
	partSingle = "single"
	partBulk   = "bulk"
	partIdle   = "idle"
	partTLS    = "tls"
)

// ingestCommand measures the cost of posting readings to servers: CPU time per request,
// requests per second and latency. Servers that store must have stored what they
// acknowledged. If PostgreSQL is installed, one peer inserts into a PostgreSQL that is
// started for it, with a temporary directory and no network.
type ingestCommand struct {
	loads
	Parts       []string `default:"single,bulk,idle,tls" enum:"single,bulk,idle,tls" help:"What to measure: single readings, batches, idle connections, single readings over TLS."`
	Connections []int    `default:"64,1000" help:"Numbers of connections with single readings."`
	Servers     []string `help:"Servers to measure, such as floor,pulsegate. Default: all that can be started."`
	Forms       []string `help:"Forms of batches to measure, such as array,ndjson+gzip. Default: all."`
	Idle        int      `default:"10000" help:"Idle connections to measure."`

	IdleWait time.Duration `default:"1m" help:"Time after which idle connections over TLS are measured again."`

	Lead time.Duration `default:"5s" help:"Time at the start of a load over TLS that does not count, because of the handshakes in it."`

	wrk *wrk
}

func (c *ingestCommand) Validate() error {
	if c.Idle < 1 || len(c.Connections) == 0 || slices.Min(c.Connections) < 1 {
		return errors.New("--idle and --connections must be at least 1")
	}
	return c.loads.Validate()
}

func (c *ingestCommand) Run(ctx context.Context, out io.Writer) error {
	if _, err := choose(contestants(), func(c contestant) string { return c.name }, c.Servers); err != nil {
		return fmt.Errorf("--servers: %w", err)
	}
	return c.with(ctx, out, c.measure, "peer", report.Own)
}

func (c *ingestCommand) measure(ctx context.Context) (err error) {
	files := slices.Max(c.Connections)
	if slices.Contains(c.Parts, partIdle) {
		files = max(files, c.Idle)
	}
	if err := raiseFileLimit(files); err != nil {
		return err
	}
	if c.wrk, err = findWrk(ctx, c.work, ingestScript); err != nil {
		return err
	}
	c.wrk.lead = c.Lead
	parts := map[string]func(context.Context) error{partSingle: c.measureSingle, partBulk: c.measureForms,
		partIdle: c.measureIdle,
		partTLS:  c.measureTLS}
	for _, part := range c.Parts {
		if err := parts[part](ctx); err != nil {
			return err
		}
	}
	return nil
}

//go:embed ingest.lua
var ingestScript string

// contestants returns the servers of the table of single readings, in its order.
func contestants() []contestant {
	return []contestant{
		{name: report.Floor, peer: "floor", what: "epoll loop, one read and one fixed write, nothing parsed", stores: "no"},
		{name: "fasthttp", peer: "fasthttp", what: "fixed answer, nothing decoded", stores: "no"},
		{name: "nethttp", peer: "nethttp", what: "fixed answer, nothing decoded", stores: "no"},
		{name: "gin", peer: "gin", what: "encoding/json in and out", stores: "no"},
		{name: "before", peer: "before", what: "gorilla/mux, logrus Info, Unmarshal, MarshalIndent", stores: "no"},
		{name: "ginpg", peer: "ginpg", what: "gin and pgx, one INSERT into PostgreSQL per request; with PostgreSQL's CPU",
			stores: "durable", postgres: true},
		pulsegate(),
	}
}

// pulsegate returns Pulsegate with its own store.
func pulsegate() contestant {
	return contestant{name: report.Own, what: "`pulsegate serve`", stores: "durable"}
}

// measureSingle measures all contestants with one reading per request.
func (c *ingestCommand) measureSingle(ctx context.Context) error {
	r, err := c.singles(ctx, "bench-ingest", contestants(), report.Floor, closedLoop)
	if err != nil {
		return err
	}
	r.Goals = slices.Concat(c.goals(r, 1000,
		ownBar(1000, "CPU per request", "cpu", report.Floor, 1.6), ownBar(1000, "CPU per request", "cpu", "fasthttp", 1),
		atLeast(ownBar(1000, "requests/s", "rate", "before", 1.5)), atLeast(ownBar(1000, "requests/s", "rate", "ginpg", 7)),
		ownBar(1000, "p99", "p99", "fasthttp", 1.5),
	), c.goals(r, 64, ownBar(64, "CPU per request", "cpu", report.Floor, 2.2)))
	if c.Results != "" {
		plot := report.Plot{Tables: r.Tables, Connections: c.Connections, Stores: map[string]string{}}
		for _, one := range contestants() {
			plot.Stores[one.name] = one.stores
		}
		if err := report.WriteFile(filepath.Join(c.Results, "ingest.svg"), plot.SVG()); err != nil {
			return err
		}
	}
	return c.write("ingest", r)
}

const (
	closedLoop = "The load is a closed loop: latency is measured from the actual, not from an intended, time of sending."
)

// ownBar is a bar for a figure of Pulsegate, divided by that of base.
func ownBar(connections int, what, figure, base string, limit float64) report.Bar {
	return report.Bar{What: fmt.Sprintf("%d connections: %s / that of %s", connections, what, base), Row: report.Own,
		Figure: figure, Base: base, Limit: limit, Format: "%.2f"}
}

// atLeast makes the limit of a bar a lower one.
func atLeast(b report.Bar) report.Bar {
	b.AtLeast = true
	return b
}

// goals returns the goals of the table of a number of connections.
func (c *ingestCommand) goals(r *report.Report, connections int, bars ...report.Bar) []report.Goal {
	if i := slices.Index(c.Connections, connections); i >= 0 {
		return r.Tables[i].Goals(bars...)
	}
	return new(report.Table).Goals(bars...)
}

// serverColumns are the columns of a table of servers, with ratios to base.
func serverColumns(base string) []report.Column {
	return append([]report.Column{
		{Title: "CPU per request, µs", Figure: "cpu", Format: "%.1f"},
		{Title: "x " + base, Figure: "cpu", Format: "%.2f", Base: base},
		{Title: "requests/s", Figure: "rate", Format: "%.0f"},
	}, latencyColumns("%.2f")...)
}

// singles measures the requested ones of some contestants with single readings, in a table for each number of
// connections. A server that cannot be started or fails in a round is left out, with the reason in the report.
func (c *ingestCommand) singles(ctx context.Context, target string, all []contestant, base,
	text string) (*report.Report, error) {
	r := c.report(target,
		"CPU is user and system time of the server's processes, divided by the requests that they answered. Ratios are "+
			"computed within a round. "+rounded+" "+text,
		fmt.Sprintf("Loader: %s, one thread, on the same CPUs; a reading of %d bytes per request, each different",
			c.wrk.version, len(firstReading())),
		fmt.Sprintf(
			"Rounds: %d, in each of which every server is restarted, warmed up for %v and loaded for %v per number of "+
				"connections; the order rotates by one server in each round", c.Rounds, c.WarmUp, c.duration()))
	for _, n := range c.Connections {
		r.Tables = append(r.Tables, &report.Table{Text: fmt.Sprintf("%d connections:", n),
			Head: "server | stored when answered", Columns: serverColumns(base)})
	}
	all, r.Left = available(all, c.Servers)
	return r, rotate(c.Rounds, all, func(round int, one *contestant) error {
		figures, err := c.single(ctx, c.wrk, one, c.Connections...)
		if err != nil {
			return c.leave(ctx, r, one.name, round, err)
		}
		for i, f := range figures {
			name, label := one.row()
			r.Tables[i].Add(c.out, round, name, label+" | "+one.stores, f)
		}
		return nil
	})
}

// measureForms measures Pulsegate with every form of a batch.
func (c *ingestCommand) measureForms(ctx context.Context) error {
	chosen, err := choose(forms(), form.String, c.Forms)
	if err != nil {
		return fmt.Errorf("--forms: %w", err)
	}
	t := &report.Table{Head: "form", Columns: append([]report.Column{
		{Title: "bytes a batch", Figure: "bytes", Format: "%.0f", Show: report.Median},
		{Title: "CPU per reading, µs", Figure: "cpu", Format: "%.2f"},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
		{Title: "CPU of the generator, µs", Figure: "loader", Format: "%.2f", Show: report.Median},
	}, latencyColumns("%.2f")...)}
	own := pulsegate()
	if err := compare(&c.common, t, chosen, named, func(f *form) (report.Figures, error) {
		return c.bulk(ctx, &own, *f)
	}); err != nil {
		return err
	}
	r := c.report("bench-ingest",
		"CPU is user and system time of the server, until its compactions after the load have ended, divided by the "+
			"readings that it answered as stored. "+
			"The load generator shares the CPUs; its bodies are templates in which only times and digits are written, and "+
			"compressed ones are made in advance. "+
			rounded+" Latency is that of a whole batch, from the actual time of sending.",
		fmt.Sprintf(
			"Load: %d connections, each of which posts batches of %d readings of as many devices, and the next one after the "+
				"answer; every reading is new", senders, batchReadings),
		fmt.Sprintf(
			"Rounds: %d, in each of which a new server is started for every form, warmed up for %v and loaded for %v; the "+
				"order rotates by one form in each round", c.Rounds, c.WarmUp, c.duration()))
	r.Tables = []*report.Table{t}
	for _, form := range []string{"array", "ndjson"} {
		r.Goals = append(r.Goals, t.Goals(
			report.Bar{What: form + ": CPU per reading, µs", Row: form, Figure: "cpu", Limit: 4, Format: "%.2f"},
			report.Bar{What: form + ": readings/s", Row: form, Figure: "rate", AtLeast: true, Limit: 350_000, Format: "%.0f"},
		)...)
	}
	return c.write("bulk", r)
}

// fileSystem returns the type of dir's file system, because syncs are free on one in
// memory.
func fileSystem(dir string) string {
	text, err := exec.Command("findmnt", "--noheadings", "--output=FSTYPE", "--target", dir).Output()
	if err != nil {
		return "an unknown file system"
	}
	kind := strings.TrimSpace(string(text))
	if kind == "tmpfs" {
		kind += ", **in memory: syncs cost nothing, and stores are not comparable**"
	}
	return kind
}
