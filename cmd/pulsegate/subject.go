package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type subjectCommand struct {
	Assign subjectAssignCommand `cmd:"" help:"Assign a device to a subject: readings measured from then on belong to it."`
	End    subjectEndCommand    `cmd:"" help:"Set the end of an assignment."`
	List   subjectListCommand   `cmd:"" help:"List assignments: those of a device, of a subject, or all."`
}

// adminFlags are the flags of commands that talk to the admin listener.
type adminFlags struct {
	Target string `env:"-" placeholder:"URL" default:"http://127.0.0.1:6060" help:"URL of the admin listener of a running server."`

	clientFlags `embed:""`
}

type subjectAssignCommand struct {
	Device  vitals.Name     `env:"-" required:"" placeholder:"NAME" help:"Device."`
	Subject storage.Subject `env:"-" required:"" placeholder:"ID" help:"Subject: 1 to 64 of A-Z, a-z, 0-9, hyphen and dot. It should not be a name or a number known outside."`
	From    string          `env:"-" required:"" placeholder:"TIME" help:"First time of measurement, in RFC 3339."`
	To      string          `env:"-" placeholder:"TIME" help:"Time of measurement before which it ends, in RFC 3339. Default: it has not ended."`

	adminFlags `embed:""`
}

func (c *subjectAssignCommand) Run(ctx context.Context, std stdio) error {
	a := transfer.Assignment{Device: c.Device.String(), Subject: string(c.Subject), From: c.From, To: c.To}
	return c.change(ctx, std, "assigned", a, (*transfer.Client).Assign)
}

type subjectEndCommand struct {
	Device vitals.Name `env:"-" required:"" placeholder:"NAME" help:"Device."`
	From   string      `env:"-" required:"" placeholder:"TIME" help:"Beginning of the assignment, in RFC 3339."`
	To     string      `env:"-" required:"" placeholder:"TIME" help:"Time of measurement before which it ends, in RFC 3339."`

	adminFlags `embed:""`
}

func (c *subjectEndCommand) Run(ctx context.Context, std stdio) error {
	a := transfer.Assignment{Device: c.Device.String(), From: c.From, To: c.To}
	return c.change(ctx, std, "ended", a, (*transfer.Client).EndAssignment)
}

// change sends a change of an assignment, and prints the result after the word done.
func (f *adminFlags) change(ctx context.Context, std stdio, done string, a transfer.Assignment,
	send func(*transfer.Client, context.Context, transfer.Assignment) (transfer.Assignment, error)) error {
	for flag, text := range map[string]string{"--from": a.From, "--to": a.To} {
		if _, _, err := vitals.ParseRFC3339(text); err != nil && text != "" {
			return settings.Usagef("%s %q is not a time in RFC 3339 with a zone", flag, text)
		}
	}
	client, err := f.connect(f.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	if a, err = send(client, ctx, a); err != nil {
		return err
	}
	line := fmt.Sprintf("%s device=%s subject=%s from=%s", done, a.Device, a.Subject, a.From)
	if a.To != "" {
		line += " to=" + a.To
	}
	_, err = fmt.Fprintln(std.out, line)
	return err
}

type subjectListCommand struct {
	Device  vitals.Name     `env:"-" placeholder:"NAME" help:"Only the assignments of this device."`
	Subject storage.Subject `env:"-" placeholder:"ID" help:"Only the assignments of this subject."`
	JSON    bool            `help:"Print one JSON object per line and assignment."`

	adminFlags `embed:""`
}

func (c *subjectListCommand) Run(ctx context.Context, std stdio) error {
	if !c.Device.IsZero() && c.Subject != "" {
		return settings.Usagef("--device and --subject exclude each other")
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	if !c.JSON {
		fmt.Fprintln(table, "DEVICE\tSUBJECT\tFROM\tTO\tBY")
	}
	err = client.Assignments(ctx, c.Device.String(), string(c.Subject), func(a transfer.Assignment) error {
		if c.JSON {
			return printJSON(std.out, a)
		}
		to := a.To
		if to == "" {
			to = "not ended"
		}
		_, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", a.Device, a.Subject, a.From, to, a.By)
		return err
	})
	if err != nil {
		return err
	}
	return table.Flush()
}
