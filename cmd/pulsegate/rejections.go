package main

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type rejectionsCommand struct {
	Device vitals.Name `placeholder:"NAME" help:"Only rejections of this device. Default: all."`
	Limit  int         `default:"100" help:"Number of rejections to list, at most 1000."`
	JSON   bool        `help:"Print one JSON object per line and rejection."`

	readerFlags `embed:""`
}

func (c *rejectionsCommand) Run(ctx context.Context, std stdio) error {
	if c.Limit < 1 || c.Limit > transfer.MaxUnanswered {
		return settings.Usagef("--limit is not a number from 1 to %d", transfer.MaxUnanswered)
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	newest, total, err := client.Rejections(ctx, c.Device.String(), c.Limit)
	if err != nil {
		return err
	}
	switch {
	case len(newest) == 0:
		fmt.Fprintln(std.err, "The server lists no rejection.")
	case total > 0 && !c.JSON:
		fmt.Fprintf(std.err, "%d since the server started.\n", total)
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	for i, r := range newest {
		if c.JSON {
			if err := printJSON(std.out, r); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			fmt.Fprintln(table, "TIME\tINPUT\tGATEWAY\tDEVICE\tFIELD\tREASON")
		}
		if r.LeftOut > 1 {
			r.Reason += fmt.Sprintf(" (%d values)", r.LeftOut)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", vitals.AppendTime(nil, r.Time.UnixMilli()),
			r.Input, cmp.Or(r.Gateway, "-"), cmp.Or(r.Device, "-"), cmp.Or(r.Field, "-"), r.Reason)
	}
	return table.Flush()
}
