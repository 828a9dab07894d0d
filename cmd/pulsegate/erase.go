package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/terminal"
	"github.com/pulsegate/pulsegate/vitals"
)

type eraseCommand struct {
	Device  vitals.Name     `env:"-" placeholder:"NAME" help:"Device whose readings and assignments to remove."`
	Subject storage.Subject `env:"-" placeholder:"ID" help:"Subject, in place of a device: removes what was measured while devices were assigned to it, and its assignments."`
	From    *string         `env:"-" placeholder:"TIME" help:"With --device and --to, removes only what was measured from this time on, in RFC 3339. Assignments stay."`
	To      *string         `env:"-" placeholder:"TIME" help:"Time of measurement before which that ends, in RFC 3339."`
	Signs   []string        `env:"-" sep:"none" placeholder:"LIST" help:"Only the values of these fields of signs, with commas between them. Default: all."`
	Gateway *string         `env:"-" placeholder:"NAME" help:"Only readings that came through this gateway, and that no other one has completed."`
	Shared  bool            `env:"-" help:"With --gateway, also readings that another gateway has completed."`
	DryRun  bool            `env:"-" help:"Remove nothing, and print how many readings of which gateway would be."`
	Yes     bool            `env:"-" help:"Do not ask for confirmation."`
	Audit   string          `default:"${default_audit}" placeholder:"FILE" env:"PULSEGATE_AUDIT" help:"Audit log in which to record an erasure in a data directory; empty for none. A server records erasures in its own."`

	storeSource `embed:""`
}

func (c *eraseCommand) Run(ctx context.Context, std stdio) error {
	if c.Device.IsZero() == (c.Subject == "") {
		return settings.Usagef("name what to erase: one of --device and --subject")
	}
	of := c.Device.String()
	if c.Subject != "" {
		of = "subject " + string(c.Subject)
	}
	where, erase := c.Target, c.running
	if c.Data != "" {
		where, erase = c.Data, c.stopped
	}
	what := "all readings of " + of
	if c.corrects() {
		if err := c.checkValues(); err != nil {
			return err
		}
		if c.DryRun {
			return c.preview(ctx, std)
		}
		what = fmt.Sprintf("what --from, --to, --signs and --gateway select of %s", of)
	}
	if !c.Yes {
		if err := confirm(ctx, std, fmt.Sprintf("Remove %s from %s for good?", what, where)); err != nil {
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
	if c.corrects() {
		readings, err = c.values().Erase(ctx, client)
		return readings, 0, err
	}
	readings, err = client.Erase(ctx, c.Device.String())
	return readings, 0, err
}

// stopped erases in a data directory.
func (c *eraseCommand) stopped(ctx context.Context, _ stdio) (readings, assignments int64, err error) {
	var db *pebblestore.Store // nil while it is being opened
	recordAs := func(actor string, e storage.Erasure) error {
		var signs *vitals.Signs
		if db != nil {
			signs = db.Signs()
		}
		return record(ctx, c.Audit, admin.ErasedRecord(e, signs, audit.Record{Actor: actor}))
	}
	opened, err := pebblestore.Open(c.Data, pebblestore.Options{
		Existing:    true,
		ChangesKeep: -1, // as the server has kept them
		OnErased:    func(e storage.Erasure) error { return recordAs(audit.ActorResumed, e) },
	})
	if err != nil {
		return 0, 0, fmt.Errorf("open data directory: %w", err)
	}
	db = opened
	recordErasure := func(e storage.Erasure) error { return recordAs(audit.Actor(), e) }
	if c.corrects() {
		e, err := c.correction().Erasure(c.Device, db.Signs())
		if err == nil {
			e, err = db.EraseValuesRecorded(e, recordErasure)
		}
		return e.Readings, 0, errors.Join(usage(err), db.Close())
	}
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

// corrects reports whether the command is about values of a device. A flag with an empty argument counts: an unset
// variable of a script must not make it erase the whole device.
func (c *eraseCommand) corrects() bool {
	return c.From != nil || c.To != nil || c.Signs != nil || c.Gateway != nil || c.Shared || c.DryRun
}

// checkValues checks the flags of an erasure of values, as far as the signs need not be known.
func (c *eraseCommand) checkValues() error {
	switch {
	case c.Subject != "":
		return settings.Usagef("--from, --to, --signs, --gateway, --shared and --dry-run are for --device")
	case c.From == nil || c.To == nil:
		return settings.Usagef("--from, --to, --signs, --gateway, --shared and --dry-run need --from and --to")
	case c.Gateway != nil && *c.Gateway == "":
		return settings.Usagef("--gateway: it is empty")
	case slices.Contains(c.signs(), ""):
		return settings.Usagef("--signs: one of them is empty")
	}
	known := *c.correction()
	known.Signs = nil
	_, err := known.Erasure(c.Device, nil)
	return usage(err)
}

// usage returns an error about a field as one about the flag.
func usage(err error) error {
	if field, ok := errors.AsType[*admin.FieldError](err); ok {
		return settings.Usagef("--%s: %s", field.Field, field.Reason)
	}
	return err
}

// signs returns the fields of --signs, of which some may be empty.
func (c *eraseCommand) signs() []string {
	if c.Signs == nil {
		return nil
	}
	return strings.Split(strings.Join(c.Signs, ","), ",")
}

// correction returns what checkValues has found to have times.
func (c *eraseCommand) correction() *admin.Correction {
	x := &admin.Correction{From: *c.From, To: *c.To, Signs: c.signs(), Shared: c.Shared}
	if c.Gateway != nil {
		x.Gateway = *c.Gateway
	}
	return x
}

func (c *eraseCommand) values() *transfer.Correction {
	x := c.correction()
	return &transfer.Correction{Device: c.Device.String(), From: x.From, To: x.To, Signs: x.Signs, Gateway: x.Gateway,
		Shared: x.Shared}
}

// preview prints what would be erased.
func (c *eraseCommand) preview(ctx context.Context, std stdio) error {
	p, err := c.wouldErase(ctx, std)
	if err != nil {
		return err
	}
	show := func(what string, p *transfer.Preview) string {
		line := fmt.Sprintf("%s readings=%d", what, p.Readings)
		if p.Readings > 0 {
			line += fmt.Sprintf(" first=%s last=%s", p.First, p.Last)
		}
		return line
	}
	text := show("would erase device="+c.Device.String(), &p)
	if p.Shared > 0 {
		text += fmt.Sprintf(" shared=%d", p.Shared)
	}
	for i := range p.Gateways {
		text += "\n" + show("gateway="+p.Gateways[i].Gateway, &p.Gateways[i])
	}
	_, err = fmt.Fprintln(std.out, text)
	return err
}

func (c *eraseCommand) wouldErase(ctx context.Context, std stdio) (p transfer.Preview, err error) {
	if c.Data == "" {
		client, err := c.connect(c.Target, std.err)
		if err != nil {
			return p, err
		}
		defer client.Close()
		return c.values().Preview(ctx, client)
	}
	db, err := pebblestore.Open(c.Data, pebblestore.Options{Existing: true, ReadOnly: true})
	if err != nil {
		return p, fmt.Errorf("open data directory: %w", err)
	}
	e, err := c.correction().Erasure(c.Device, db.Signs())
	var read admin.Preview
	if err == nil {
		read, err = admin.NewPreview(ctx, db.Latest, db.Scan, &e)
	}
	p = transfer.Preview{Readings: read.Readings, First: read.First, Last: read.Last, Shared: read.Shared}
	for _, g := range read.Gateways {
		p.Gateways = append(p.Gateways, transfer.Preview{Gateway: g.Gateway, Readings: g.Readings, First: g.First,
			Last: g.Last})
	}
	return p, errors.Join(usage(err), db.Close())
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
