package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mapping"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type mappingCommand struct {
	Test mappingTestCommand `cmd:"" help:"Print the readings that a server would store of payloads or lines, and what it would reject."`
	List mappingListCommand `cmd:"" help:"Print the shipped mappings of files, for import --as."`
}

type mappingListCommand struct {
	Name string `arg:"" optional:"" help:"Print the mapping of this name, to be copied and changed."`
}

func (c *mappingListCommand) Run(std stdio) error {
	if c.Name != "" {
		text := shape.ShippedText(c.Name)
		if text == "" {
			return settings.Usagef("no shipped mapping has this name")
		}
		_, err := io.WriteString(std.out, text)
		return err
	}
	return shape.ReadShipped(func(t *shape.Table) error {
		if t.About == "" { // a further one of its name
			return nil
		}
		_, err := fmt.Fprintf(std.out, "%-24s %s\n", t.Name, t.About)
		return err
	})
}

type mappingTestCommand struct {
	File  string `arg:"" type:"path" help:"File of mappings, the same as that of serve --mapping. Payloads come from standard input: JSON values, one after another, or lines in InfluxDB's line protocol, if the file has only mappings of these."`
	Name  string `placeholder:"NAME" help:"Mappings to use, if the file has several names."`
	Topic string `placeholder:"TOPIC" help:"Topic to which the payloads were published, such as ward/ppg-1/state: it chooses the mappings and may name device and gateway."`

	Precision string `placeholder:"UNIT" help:"Unit of the timestamps of lines, as clients of InfluxDB name it: ns, us, ms or s; ns without it. With it, payloads are lines though the file has other mappings, too."`

	PulseAs string `enum:"pulse-rate,heart-rate" default:"pulse-rate" help:"As that of serve."`

	signsFlag `embed:""`
}

func (c *mappingTestCommand) Run(ctx context.Context, std stdio) error {
	signs, err := c.table()
	if err != nil {
		return err
	}
	table := codes.Table{Signs: signs, PulseAsHeartRate: c.PulseAs == "heart-rate"}
	lines := influx.NewMappings(table, nil)
	set, err := mapping.Read([]string{c.File}, table, nil,
		func(pattern string) (bool, error) {
			t, err := mqtt.ParseTopic(pattern)
			return t.HasDevice(), err
		}, mapping.Others{influx.Source: lines.Add})
	if err != nil {
		return settings.Usage(err)
	}
	input, from, err := c.choose(set, lines, signs)
	if err != nil {
		return err
	}
	message, err := io.ReadAll(io.LimitReader(interruptible(ctx, std.in), ingest.DefaultMaxBatchBytes+1))
	if err != nil {
		return err
	}
	if len(message) > ingest.DefaultMaxBatchBytes {
		return settings.Usagef("standard input has more than %d bytes", ingest.DefaultMaxBatchBytes)
	}
	rules, err := vitals.NewValidator(signs.DefaultLimits())
	if err != nil {
		return err
	}
	var got vitals.Batch
	in := ingest.Intake{NowUnixMs: time.Now().UnixMilli(), Rules: rules, Origin: &from,
		MaxReadings: ingest.DefaultMaxReadings, Batch: &got}
	if err := input.Decode(message, &in); err != nil {
		return fmt.Errorf("the payloads are %w: %w", errRejected, err)
	}
	for i := range got.Readings {
		if _, err := fmt.Fprintf(std.out, "%s\n", signs.AppendJSON(nil, &got.Readings[i])); err != nil {
			return err
		}
	}
	for i := range in.LeftOut {
		l := &in.LeftOut[i]
		switch {
		case l.Ignored:
			fmt.Fprintf(std.err, "ignored: readings[%d]\n", l.Index)
		default:
			fmt.Fprintf(std.err, "left out: readings[%d]: %s: %s%s\n", l.Index, l.Field, l.Why, more(l.More))
		}
	}
	if in.Rounded > 0 {
		fmt.Fprintf(std.err, "rounded: %d values\n", in.Rounded)
	}
	for i := range got.Refused {
		fmt.Fprintf(std.err, "rejected: %s\n", got.Refused[i].Error())
	}
	if n := len(got.Refused); n > 0 {
		return fmt.Errorf("%d of %d readings would be %w", n, got.Len(), errRejected)
	}
	return nil
}

// more returns a text about further values that were left out.
func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}

// choose returns the input of the mappings that the flags choose, and what the topic names.
func (c *mappingTestCommand) choose(set *mapping.Set, lines *influx.Mappings, signs *vitals.Signs) (input ingest.Input,
	from vitals.Origin, err error) {
	if c.Precision != "" || len(set.Names()) == 0 {
		if lines.Len() == 0 || c.Name != "" || c.Topic != "" {
			return nil, from, settings.Usagef(`--precision is for mappings with source = "lines", --name and --topic for others`)
		}
		input, ok := influx.NewInput(influx.Options{Signs: signs, MaxLineBytes: ingest.DefaultMaxSingleBytes,
			DeviceTag: influx.DefaultDeviceTag, Mappings: lines}, c.Precision)
		if !ok {
			return nil, from, settings.Usagef("--precision: not one of ns, us, ms, s, n, u, m and h")
		}
		return input, from, nil
	}
	if c.Topic != "" {
		for _, pattern := range set.Topics() {
			t, err := mqtt.ParseTopic(pattern)
			if err != nil {
				return nil, from, err
			}
			if from, ok := t.Match([]byte(c.Topic)); ok {
				return set.OfTopic(pattern), from, nil
			}
		}
		return nil, from, settings.Usagef("--topic: no mapping of the file takes this topic; they take %q", set.Topics())
	}
	names := set.Names()
	if c.Name == "" && len(names) > 1 {
		return nil, from, settings.Usagef("the file has mappings of several names, %q: choose with --name or --topic", names)
	}
	if c.Name == "" {
		c.Name = names[0]
	}
	if input = set.Named(c.Name); input == nil {
		return nil, from, settings.Usagef("--name: the file has only %q", names)
	}
	return input, from, nil
}
