package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
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
	device, err := vitals.ParseName(c.Device)
	if err != nil {
		return usageError{"--device: " + err.Error()}
	}
	from, err := timeFlag("--from", c.From, 0)
	if err != nil {
		return err
	}
	to, err := timeFlag("--to", c.To, math.MaxInt64)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(std.out, 64<<10)
	if c.Target != "" {
		cred, err := c.load(c.Target, std.err)
		if err != nil {
			return err
		}
		client, err := transfer.NewClient(c.Target, transfer.Credentials{Token: cred.token, TLS: cred.tls})
		if err != nil {
			return usageError{err.Error()}
		}
		defer client.Close()
		err = client.Download(ctx, out, transfer.Selection{Device: c.Device, From: c.From, To: c.To, Format: c.Format})
		if err != nil {
			return err
		}
		return out.Flush()
	}
	q := query.Question{Range: storage.Range{Device: device, FromUnixMs: from, ToUnixMs: to}, Format: query.NDJSON, NoFlags: true}
	if c.Format == "csv" {
		q.Format = query.CSV
	}
	if err := c.record(ctx, device); err != nil {
		return err
	}
	if err := exportData(ctx, c.Data, q, out); err != nil {
		return err
	}
	return out.Flush()
}

// record writes to the audit log, if there is to be one, before anything is given
// out.
func (c *exportCommand) record(ctx context.Context, device vitals.Name) (err error) {
	if c.Audit == "" {
		return nil
	}
	log, err := audit.Open(ctx, c.Audit, audit.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	return log.Append(ctx, audit.Record{Event: audit.Exported, Device: device, Actor: audit.Actor()})
}

// exportData writes readings from a data directory.
func exportData(ctx context.Context, dir string, q query.Question, out *bufio.Writer) error {
	if _, err := os.Stat(dir); err != nil {
		return err // opening would make a new, empty store
	}
	db, err := pebblestore.Open(dir, pebblestore.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	defer db.Close()
	_, err = query.WriteReadings(ctx, out, db, q, nil)
	return err
}

// timeFlag returns the time that a flag holds in Unix ms, or otherwise where it
// was not given.
func timeFlag(name, text string, otherwise int64) (int64, error) {
	if text == "" {
		return otherwise, nil
	}
	ms, err := vitals.ParseTime(text)
	if err != nil {
		return 0, usageError{name + " is neither RFC 3339 with zone nor integer Unix milliseconds"}
	}
	return ms, nil
}
