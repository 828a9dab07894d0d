package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/storage/migrate"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type migrateCommand struct {
	From           string `env:"-" required:"" placeholder:"STORE" help:"Store to read: the data directory of a stopped server, or the address of a PostgreSQL database. The password comes from the file that PGPASSFILE names."`
	To             string `env:"-" required:"" placeholder:"STORE" help:"Store to write: a directory that does not exist, or a database without a store."`
	PostgresSingle bool   `help:"Write to a database without synchronous standbys."`
	List           bool   `help:"Also print the number of readings and the checksum of each device."`
	Audit          string `placeholder:"FILE" help:"Audit log in which to record that the store is copied."`
	JSON           bool   `help:"Print each result as one JSON object."`
}

func (c *migrateCommand) Run(ctx context.Context, std stdio) error {
	if err := c.check(); err != nil {
		return err
	}
	from, readings, err := c.openSource(ctx, std.err)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := c.openTarget(ctx, migrate.Definitions(from.Signs()))
	if err != nil {
		return err
	}
	defer to.Close() // ErrClosed if it was published
	if err := record(ctx, c.Audit, audit.Record{Event: audit.BackedUp, Actor: audit.Actor()}); err != nil {
		return err
	}
	bars := map[migrate.Step]progress{}
	o := migrate.Options{From: from, To: to, Readings: readings, OnProgress: func(step migrate.Step, done int64) {
		if _, ok := bars[step]; !ok {
			bars[step] = newProgress(std.err, string(step))
		}
		bars[step].set(done, readings)
	}}
	var printed error
	if c.List {
		o.OnDevice = func(s migrate.Sum) {
			if printed == nil {
				printed = c.printDevice(std.out, s)
			}
		}
	}
	report, err := migrate.Run(ctx, o)
	for _, bar := range bars {
		bar.finish()
	}
	if err == nil {
		err = printed
	}
	if err != nil {
		return err
	}
	return c.print(std.out, report)
}

// check rejects addresses that are not valid or contain a password.
func (c *migrateCommand) check() error {
	for _, f := range []struct{ flag, store string }{{"--from", c.From}, {"--to", c.To}} {
		if !isAddress(f.store) {
			continue
		}
		if err := pgstore.CheckDSN(f.store); err != nil {
			return settings.Usagef("%s: %v", f.flag, err)
		}
	}
	if c.From == c.To {
		return settings.Usagef("--from and --to name the same store")
	}
	return nil
}

// isAddress reports whether a store is that of a database and not a directory.
func isAddress(store string) bool { return strings.Contains(store, "://") }

// openSource returns the store to read, and the number of its readings.
func (c *migrateCommand) openSource(ctx context.Context, stderr io.Writer) (_ migrate.Source,
	readings int64, err error) {
	if !isAddress(c.From) {
		bar := newByteProgress(stderr, "check")
		db, report, err := pebblestore.OpenVerified(ctx, c.From, pebblestore.CheckOptions{
			Progress: func(tableBytes, ofTableBytes, _ int64) { bar.set(tableBytes, ofTableBytes) },
		})
		bar.finish()
		return db, report.Readings, err
	}
	db, err := pgstore.Open(ctx, pgstore.Options{DSN: c.From, Single: true, Move: pgstore.MoveFrom})
	if err != nil {
		return nil, 0, fmt.Errorf("--from: %w", err)
	}
	if readings, err = db.CountReadings(ctx); err != nil {
		_ = db.Close()
		return nil, 0, err
	}
	return db, readings, nil
}

func (c *migrateCommand) openTarget(ctx context.Context, signs []vitals.Definition) (migrate.Target, error) {
	if !isAddress(c.To) {
		return pebblestore.OpenPartial(c.To, pebblestore.Options{Signs: signs})
	}
	db, err := pgstore.Open(ctx, pgstore.Options{DSN: c.To, Single: c.PostgresSingle, Move: pgstore.MoveTo, Signs: signs})
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	return db, nil
}

func (c *migrateCommand) printDevice(out io.Writer, s migrate.Sum) error {
	if c.JSON {
		return printJSON(out, struct {
			Device   string `json:"device"`
			Readings int64  `json:"readings"`
			SHA256   string `json:"sha256"`
		}{s.Device.String(), s.Readings, hex.EncodeToString(s.SHA256[:])})
	}
	_, err := fmt.Fprintf(out, "device=%s readings=%d sha256=%x\n", s.Device, s.Readings, s.SHA256)
	return err
}

func (c *migrateCommand) print(out io.Writer, r migrate.Report) error {
	if c.JSON {
		return printJSON(out, struct {
			OK          bool   `json:"ok"`
			Devices     int64  `json:"devices"`
			Readings    int64  `json:"readings"`
			Copied      int64  `json:"copied"`
			Assignments int64  `json:"assignments"`
			SHA256      string `json:"sha256"`
		}{true, r.Devices, r.Readings, r.Copied, r.Assignments, hex.EncodeToString(r.SHA256[:])})
	}
	_, err := fmt.Fprintf(out, "ok devices=%d readings=%d copied=%d assignments=%d sha256=%x\n",
		r.Devices, r.Readings, r.Copied, r.Assignments, r.SHA256)
	return err
}
