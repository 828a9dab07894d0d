package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

type exportCommand struct {
	Target string      `env:"-" help:"Address of a running server, such as http://127.0.0.1:8080." xor:"source" required:""`
	Data   string      `env:"-" help:"Data directory of a stopped server." xor:"source" required:""`
	Device vitals.Name `required:"" help:"Device whose readings to write."`
	From   moment      `placeholder:"TIME" help:"First time, inclusive: RFC 3339 with zone or Unix ms. Default: the first reading."`
	To     *moment     `placeholder:"TIME" help:"Last time, exclusive. Default: the last reading."`
	Format string      `enum:"ndjson,csv" default:"ndjson" help:"Format: ndjson or csv."`
	Audit  string      `placeholder:"FILE" help:"Audit log in which to record an export from a data directory. A server records its own."`

	clientFlags `embed:""`
}

// A moment is a time in Unix ms.
type moment int64

func parseMoment(text string) (moment, error) {
	if text == "now" {
		return moment(time.Now().UnixMilli()), nil
	}
	ms, err := vitals.ParseTime(text)
	if err != nil {
		return 0, errors.New("neither 'now' nor RFC 3339 with zone nor integer Unix milliseconds")
	}
	return moment(ms), nil
}

func (c *exportCommand) Run(ctx context.Context, std stdio) error {
	to := moment(math.MaxInt64)
	if c.To != nil {
		to = *c.To
	}
	write := c.running
	if c.Data != "" {
		write = c.stopped
	}
	out := bufio.NewWriterSize(std.out, 64<<10)
	if err := write(ctx, out, std.err, to); err != nil {
		return err
	}
	return out.Flush()
}

// running fetches readings from a server.
func (c *exportCommand) running(ctx context.Context, out, stderr io.Writer, to moment) error {
	client, err := c.connect(c.Target, stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	selection := transfer.Selection{Device: c.Device.String(), From: strconv.Itoa(int(c.From)), Format: c.Format}
	if c.To != nil {
		selection.To = strconv.Itoa(int(to))
	}
	return client.Download(ctx, out, selection)
}

// stopped writes readings from a data directory. The audit log has it before anything is
// given out.
func (c *exportCommand) stopped(ctx context.Context, out, _ io.Writer, to moment) error {
	if err := record(ctx, c.Audit, audit.Record{Event: audit.Exported, Device: c.Device, Actor: audit.Actor()}); err != nil {
		return err
	}
	db, err := pebblestore.Open(c.Data, pebblestore.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	defer db.Close()
	q := query.Selection{Range: storage.Range{Device: c.Device, FromUnixMs: int64(c.From), ToUnixMs: int64(to)}, Format: query.NDJSON, NoFlags: true}
	if c.Format == "csv" {
		q.Format = query.CSV
	}
	_, err = query.WriteReadings(ctx, out, db, q, nil)
	return err
}
