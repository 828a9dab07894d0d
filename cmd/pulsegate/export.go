package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type exportCommand struct {
	Target string `env:"-" help:"Address of a running server, such as http://127.0.0.1:8080." xor:"source" required:""`
	Data   string `env:"-" help:"Data directory of a stopped server." xor:"source" required:""`
	Device string `required:"" help:"Device whose readings to write."`
	From   string `help:"First time, inclusive: RFC 3339 with zone or Unix ms. Default: the first reading."`
	To     string `help:"Last time, exclusive. Default: the last reading."`
	Format string `enum:"ndjson,csv" default:"ndjson" help:"Format: ndjson or csv."`
	Audit  string `placeholder:"FILE" help:"Audit log in which to record an export from a data directory. A server records its own."`

	clientFlags `embed:""`
}

func (c *exportCommand) Run(ctx context.Context, std stdio) error {
	device, deviceErr := vitals.ParseName(c.Device)
	if deviceErr != nil {
		deviceErr = settings.Usagef("--device: %v", deviceErr)
	}
	from, fromErr := timeFlag("--from", c.From, 0)
	to, toErr := timeFlag("--to", c.To, math.MaxInt64)
	if err := cmp.Or(deviceErr, fromErr, toErr); err != nil {
		return err
	}
	out := bufio.NewWriterSize(std.out, 64<<10)
	var err error
	if c.Target != "" {
		err = c.running(ctx, out, std.err)
	} else {
		err = c.stopped(ctx, out, storage.Range{Device: device, FromUnixMs: from, ToUnixMs: to})
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// running fetches readings from a server.
func (c *exportCommand) running(ctx context.Context, out, stderr io.Writer) error {
	client, err := c.connect(c.Target, stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Download(ctx, out, transfer.Selection{Device: c.Device, From: c.From, To: c.To, Format: c.Format})
}

// stopped writes readings from a data directory. The audit log has it before anything is
// given out.
func (c *exportCommand) stopped(ctx context.Context, out io.Writer, r storage.Range) error {
	if err := record(ctx, c.Audit, audit.Record{Event: audit.Exported, Device: r.Device, Actor: audit.Actor()}); err != nil {
		return err
	}
	db, err := pebblestore.Open(c.Data, pebblestore.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	defer db.Close()
	q := query.Question{Range: r, Format: query.NDJSON, NoFlags: true}
	if c.Format == "csv" {
		q.Format = query.CSV
	}
	_, err = query.WriteReadings(ctx, out, db, q, nil)
	return err
}

// timeFlag returns the time that a flag holds in Unix ms, or otherwise where it was not
// given.
func timeFlag(name, text string, otherwise int64) (int64, error) {
	if text == "" {
		return otherwise, nil
	}
	ms, err := vitals.ParseTime(text)
	if err != nil {
		return 0, settings.Usagef("%s is neither RFC 3339 with zone nor integer Unix milliseconds", name)
	}
	return ms, nil
}
