package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

type exportCommand struct {
	Data   string      `env:"-" placeholder:"DIR" help:"Data directory of a stopped server, instead of --target."`
	Device vitals.Name `placeholder:"NAME" help:"Device whose readings to write."`
	All    bool        `help:"Write everything that the token covers, each change a row, as 'pulsegate changes' does. So do --prefix and --subject."`
	From   moment      `placeholder:"TIME" help:"First time, inclusive: RFC 3339 with a zone, or Unix time in milliseconds. Default: the first reading."`
	To     *moment     `placeholder:"TIME" help:"Last time, exclusive. Default: the last reading."`
	Format string      `enum:"ndjson,csv,parquet,omh" default:"ndjson" help:"Format of the output: omh is an array of data points of Open mHealth."`
	Out    string      `action:"" type:"path" placeholder:"FILE" help:"New file to write, which only you can read. Default: standard output."`
	OutDir string      `action:"" type:"path" placeholder:"DIR" help:"New directory in which to write a file for each device, with --all, --prefix or --subject."`
	Audit  string      `placeholder:"FILE" help:"Audit log in which to record an export from a data directory. A server records exports in its own."`

	changeFlags `embed:""`
	readerFlags `embed:""`
}

// A moment is a time in Unix ms. An integer that looks like another unit is none.
type moment int64

func parseMoment(text string) (moment, error) {
	if text == "now" {
		return moment(time.Now().UnixMilli()), nil
	}
	ms, _, err := (&vitals.Limits{OldestUnixMs: vitals.DefaultOldestUnixMs}).ParseTime(text)
	switch {
	case err == vitals.ErrSeconds:
		return 0, fmt.Errorf("%q looks like seconds; Unix time is in milliseconds", text)
	case err == vitals.ErrFiner:
		return 0, fmt.Errorf("%q looks like microseconds or nanoseconds; Unix time is in milliseconds", text)
	case err != nil:
		return 0,
			fmt.Errorf("%q is not 'now', RFC 3339 with a zone such as 2026-11-21T10:00:00Z, or Unix time in milliseconds", text)
	}
	return moment(ms), nil
}

func (c *exportCommand) Run(ctx context.Context, std stdio) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.OutDir != "" {
		return c.eachDevice(ctx, std.err)
	}
	to := moment(math.MaxInt64)
	if c.To != nil {
		to = *c.To
	}
	write := c.running
	if c.Device.IsZero() {
		write = c.changes
	}
	if c.Data != "" {
		write = c.stopped
	}
	fill := func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 64<<10)
		if err := write(ctx, out, std.err, to); err != nil {
			return err
		}
		return out.Flush()
	}
	if c.Out == "" {
		return fill(std.out)
	}
	out, err := createOutput("--out", c.Out)
	if err != nil {
		return err
	}
	return out.write(fill)
}

// running fetches the readings from a server.
func (c *exportCommand) running(ctx context.Context, out, stderr io.Writer, to moment) error {
	client, err := c.connect(c.Target, stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	selection := transfer.Selection{Device: c.Device.String(), From: utc(int64(c.From)), Format: c.Format}
	if c.To != nil {
		selection.To = utc(int64(to))
	}
	leftOut, err := client.Download(ctx, out, selection)
	reportLeftOut(stderr, leftOut)
	return err
}

// reportLeftOut names the signs that an export lacks.
func reportLeftOut(stderr io.Writer, signs string) {
	if signs != "" {
		fmt.Fprintf(stderr, "Left out, because the format has no schema for them: %s\n", signs)
	}
}

// stopped reads the readings from a data directory. The export is in the audit log before any of
// them is written.
func (c *exportCommand) stopped(ctx context.Context, out, errs io.Writer, to moment) error {
	if err := record(ctx, c.Audit, audit.Record{Event: audit.Exported, Device: c.Device, Actor: audit.Actor()}); err !=
		nil {
		return err
	}
	db, err := pebblestore.Open(c.Data, pebblestore.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	defer db.Close()
	formats := map[string]query.Format{"ndjson": query.NDJSON, "csv": query.CSV, "parquet": query.Parquet,
		"omh": query.OMH}
	q := query.Selection{Range: storage.Range{Device: c.Device, FromUnixMs: int64(c.From), ToUnixMs: int64(to)},
		Format: formats[c.Format], NoFlags: true}
	if q.Assigned, err = db.DeviceAssignments(ctx, c.Device); err != nil {
		return err
	}
	page, err := query.WriteReadings(ctx, out, db, q, db.Signs(), nil)
	reportLeftOut(errs, page.LeftOut)
	return err
}
