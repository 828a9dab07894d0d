package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/terminal"
	"github.com/pulsegate/pulsegate/vitals"
)

type eraseCommand struct {
	Device  vitals.Name     `env:"-" placeholder:"NAME" help:"Device whose readings and assignments to remove."`
	Subject storage.Subject `env:"-" placeholder:"ID" help:"Subject, in place of a device: removes what was measured while devices were assigned to it, and its assignments."`
	Yes     bool            `env:"-" help:"Do not ask for confirmation."`
	Audit   string          `default:"${default_audit}" placeholder:"FILE" env:"PULSEGATE_AUDIT" help:"Audit log in which to record an erasure in a data directory; empty for none. A server records erasures in its own."`

	storeSource `embed:""`
}

func (c *eraseCommand) Run(ctx context.Context, std stdio) error {
	if c.Device.IsZero() == (c.Subject == "") {
		return settings.Usagef("name what to erase: one of --device and --subject")
	}
	where, erase := c.Target, c.running
	if c.Data != "" {
		where, erase = c.Data, c.stopped
	}
	if !c.Yes {
		what := c.Device.String()
		if c.Subject != "" {
			what = "subject " + string(c.Subject)
		}
		if err := confirm(ctx, std, fmt.Sprintf("Remove all readings of %s from %s for good?", what, where)); err != nil {
			return err
		}
	}
	readings, assignments, err := erase(ctx, std)
	if err != nil {
		return err
	}
	erased := "device=" + c.Device.String()
	if c.Subject != "" {
		erased = fmt.Sprintf("subject=%s assignments=%d", c.Subject, assignments)
	}
	_, err = fmt.Fprintf(std.out, "erased %s readings=%d\n", erased, readings)
	return err
}

// running asks the server to erase.
func (c *eraseCommand) running(ctx context.Context, std stdio) (readings, assignments int64, err error) {
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	if c.Subject != "" {
		return client.EraseSubject(ctx, string(c.Subject))
	}
	readings, err = client.Erase(ctx, c.Device.String())
	return readings, 0, err
}

// stopped erases in a data directory.
func (c *eraseCommand) stopped(ctx context.Context, _ stdio) (readings, assignments int64, err error) {
	recordAs := func(actor string, e storage.Erasure) error {
		return record(ctx, c.Audit, admin.ErasedRecord(e, audit.Record{Actor: actor}))
	}
	db, err := pebblestore.Open(c.Data, pebblestore.Options{
		Existing:    true,
		ChangesKeep: -1, // as the server has kept them
		OnErased:    func(e storage.Erasure) error { return recordAs(audit.ActorResumed, e) },
	})
	if err != nil {
		return 0, 0, fmt.Errorf("open data directory: %w", err)
	}
	recordErasure := func(e storage.Erasure) error { return recordAs(audit.Actor(), e) }
	if c.Subject == "" {
		e, err := db.EraseRecorded(c.Device, recordErasure)
		return e.Readings, 0, errors.Join(err, db.Close())
	}
	all, err := db.SubjectAssignments(ctx, c.Subject)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("erase subject: %w", storage.ErrNotAssigned)
	}
	for i := 0; i < len(all) && err == nil; i++ {
		var e storage.Erasure
		e, err = db.EraseAssignmentRecorded(all[i], recordErasure)
		readings, assignments = readings+e.Readings, assignments+1
	}
	return readings, assignments, errors.Join(err, db.Close())
}

// confirm asks for confirmation on a terminal. A script must pass --yes.
func confirm(ctx context.Context, std stdio, question string) error {
	if !terminal.Is(std.in) {
		return settings.Usagef("standard input is not a terminal for confirmation; add --yes")
	}
	fmt.Fprintf(std.err, "%s [y/N] ", question)
	line, err := bufio.NewReader(interruptible(ctx, std.in)).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.Join(errors.New("nothing was changed"), err)
	}
	return nil
}
