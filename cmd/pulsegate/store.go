package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// A storeCommand has what operators decide about a database that has forgotten what was acknowledged.
type storeCommand struct {
	ConfirmLoss   confirmLossCommand   `cmd:"" help:"Confirm that you know what a database has lost for good. Servers report it until then."`
	AcceptRestore acceptRestoreCommand `cmd:"" help:"Accept a database that was restored to an earlier state on purpose. Servers do not put back what it lacks."`
}

// databaseFlags are the flags of such a decision.
type databaseFlags struct {
	Store string `required:"" placeholder:"URL" help:"Address of the PostgreSQL database, as in serve --store. The password comes from the file that PGPASSFILE names."`
	Yes   bool   `env:"-" help:"Do not ask for confirmation."`
	Audit string `default:"${default_audit}" placeholder:"FILE" env:"PULSEGATE_AUDIT" help:"Audit log in which to record the decision; empty for none."`
}

// open opens the store, beside running servers.
func (f *databaseFlags) open(ctx context.Context) (*pgstore.Store, error) {
	if err := pgstore.CheckDSN(f.Store); err != nil {
		return nil, settings.Usagef("--store: %v", err)
	}
	return pgstore.Open(ctx, pgstore.Options{DSN: f.Store, Single: true, Existing: true})
}

// decide asks for confirmation unless --yes is given, and records the decision.
func (f *databaseFlags) decide(ctx context.Context, std stdio, question string, r audit.Record) error {
	if !f.Yes {
		if err := confirm(ctx, std, question); err != nil {
			return err
		}
	}
	r.Actor = audit.Actor()
	return record(ctx, f.Audit, r)
}

type confirmLossCommand struct {
	databaseFlags `embed:""`
}

func (c *confirmLossCommand) Run(ctx context.Context, std stdio) (err error) {
	db, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	lost, ok := errors.AsType[*pgstore.LossError](db.Degraded())
	if !ok {
		_, err := fmt.Fprintln(std.out, "no loss is reported")
		return err
	}
	fmt.Fprintf(std.err, "Readings and assignments that were acknowledged from %s to %s may be lost for good.\n",
		utc(lost.FromUnixMs), utc(lost.ToUnixMs))
	r := audit.Record{Event: audit.LossConfirmed, From: time.UnixMilli(lost.FromUnixMs), To: time.UnixMilli(lost.ToUnixMs)}
	if err := c.decide(ctx, std, "End the report?", r); err != nil {
		return err
	}
	all, err := db.ConfirmLoss(ctx, lost.Loss)
	for _, l := range all {
		fmt.Fprintf(std.out, "confirmed from=%s to=%s\n", utc(l.FromUnixMs), utc(l.ToUnixMs))
	}
	return err
}

type acceptRestoreCommand struct {
	databaseFlags `embed:""`
}

func (c *acceptRestoreCommand) Run(ctx context.Context, std stdio) (err error) {
	db, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	lastMs, err := db.LastMark(ctx)
	if err != nil {
		return err
	}
	r := audit.Record{Event: audit.RestoreAccepted, To: time.Now()}
	last := "No server has stored anything in this database."
	if lastMs != 0 {
		r.From = time.UnixMilli(lastMs)
		last = fmt.Sprintf("The last transaction in this database is of %s.", utc(lastMs))
	}
	fmt.Fprintf(std.err,
		"%s Servers will not put back the readings and assignments that they acknowledged after it, until now, %s. Repeat "+
			"the erasures of that time.\n",
		last, utc(r.To.UnixMilli()))
	if err := c.decide(ctx, std, "Accept the database as it is?", r); err != nil {
		return err
	}
	if err := db.AcceptRestore(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.out, "accepted")
	return err
}
