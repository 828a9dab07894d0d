package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type devicesCommand struct {
	Limit int  `help:"Number of devices to list. Default: all."`
	JSON  bool `help:"Print one JSON object per line and device."`

	readerFlags `embed:""`
}

func (c *devicesCommand) Run(ctx context.Context, std stdio) error {
	if c.Limit < 0 {
		return settings.Usagef("--limit is negative")
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	n := 0
	var columns []string // the signs that have one
	err = client.Devices(ctx, c.Limit, func(page []transfer.Device) error {
		if has := signsOf(page); len(page) > 0 && !c.JSON &&
			(n == 0 || slices.ContainsFunc(has, func(s string) bool { return !slices.Contains(columns, s) })) {
			columns = has
			of, err := unitsOf(ctx, client, columns)
			if err != nil {
				return err
			}
			names, units := "DEVICE\tLAST READING\tAGE", "\t\t"
			for _, field := range columns {
				names, units = names+"\t"+field, units+"\t"+of[field]
			}
			fmt.Fprintf(table, "%s\tFLAGS\n%s\t\n", names, units)
		}
		n += len(page)
		for i := range page {
			if c.JSON {
				if err := printJSON(std.out, page[i]); err != nil {
					return err
				}
				continue
			}
			writeDevice(table, &page[i], columns, time.Now())
		}
		return table.Flush() // a page at a time: a fleet may be large
	})
	if err == nil && n == 0 {
		fmt.Fprintln(std.err, "The server lists no device.")
	}
	return err
}

// signsOf returns the fields of the signs that devices have, the built-in ones in their order, and then
// others.
func signsOf(devices []transfer.Device) (fields []string) {
	has := map[string]bool{}
	for i := range devices {
		for field := range devices[i].Latest {
			has[field] = true
		}
	}
	for _, d := range vitals.NewSigns().All() {
		if has[d.Field] {
			fields = append(fields, d.Field)
		}
		delete(has, d.Field)
	}
	return append(fields, slices.Sorted(maps.Keys(has))...)
}

// unitsOf returns the units of signs. It asks the server only if one of them is not built in.
func unitsOf(ctx context.Context, client *transfer.Client, fields []string) (map[string]string, error) {
	units := map[string]string{}
	for _, d := range vitals.NewSigns().All() {
		units[d.Field] = d.Unit
	}
	if slices.ContainsFunc(fields, func(field string) bool { return units[field] == "" }) {
		return client.Units(ctx)
	}
	return units, nil
}

// writeDevice writes the row of a device.
func writeDevice(table io.Writer, d *transfer.Device, columns []string, now time.Time) {
	fmt.Fprintf(table, "%s\t%s\t%s", d.Name, d.Time.UTC().Format(time.RFC3339), age(d.Time.Time, now))
	var flags []string
	for _, field := range columns {
		latest, ok := d.Latest[field]
		text := "-"
		if ok {
			text = latest.Value.String()
		}
		flags = append(flags, latest.Flags...)
		fmt.Fprintf(table, "\t%s", text)
	}
	fmt.Fprintf(table, "\t%s\n", strings.Join(flags, ", "))
}

type latestCommand struct {
	Device vitals.Name `arg:"" help:"Name of the device."`
	JSON   bool        `help:"Print one JSON object."`

	readerFlags `embed:""`
}

func (c *latestCommand) Run(ctx context.Context, std stdio) error {
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	d, err := client.Device(ctx, c.Device.String())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.out, d)
	}
	fields := signsOf([]transfer.Device{d})
	units, err := unitsOf(ctx, client, fields)
	if err != nil {
		return err
	}
	now := time.Now()
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SIGN\tVALUE\tUNIT\tTIME\tAGE\tSUBJECT\tFLAGS")
	for _, field := range fields {
		latest := d.Latest[field]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", field, latest.Value, units[field],
			latest.Time.UTC().Format(time.RFC3339), age(latest.Time.Time, now), cmp.Or(latest.Subject, "-"),
			strings.Join(latest.Flags, ", "))
	}
	if d.AssignedNow != "" {
		fmt.Fprintf(table, "\nAssigned now to %s.\n", d.AssignedNow)
	}
	return table.Flush()
}

// age returns how long ago a moment was, in its two largest units.
func age(then, now time.Time) string {
	d := now.Sub(then).Truncate(time.Second)
	switch days := d / (24 * time.Hour); {
	case d < 0:
		return "in the future"
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, (d-days*24*time.Hour)/time.Hour)
	case d >= time.Hour:
		d = d.Truncate(time.Minute)
	}
	return settings.FormatDuration(d)
}
