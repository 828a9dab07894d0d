package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/server"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

type alertsCommand struct {
	Test alertsTestCommand `cmd:"" help:"Replay stored readings through rules, and print the alerts that a server would have reported."`
}

type alertsTestCommand struct {
	File   string            `arg:"" type:"path" help:"File of rules, the same as that of serve --alerts."`
	Data   string            `env:"-" placeholder:"DIR" help:"Data directory of a stopped server, instead of --target."`
	Device vitals.Name       `placeholder:"NAME" help:"Only this device. Default: all."`
	From   moment            `placeholder:"TIME" help:"Print alerts that were active at this time or later: RFC 3339 with a zone, or Unix time in milliseconds. Default: all."`
	To     *moment           `placeholder:"TIME" help:"Replay until this time. Default: now."`
	Usual  map[string]string `mapsep:"," placeholder:"SIGN=MIN..MAX,..." help:"Ranges outside of which values are flagged, the same as that of serve --usual."`
	JSON   bool              `help:"Print one JSON object per line and alert."`

	signsFlag   `embed:""`
	readerFlags `embed:""`
}

// Bounds of a replay of one device, which is in memory.
const (
	maxReplayed = 1 << 20 // readings
	maxFired    = 1 << 17 // alerts
)

// A readings reads the readings of devices.
type readings interface {
	// devices calls visit with the names of all devices.
	devices(ctx context.Context, visit func(vitals.Name) error) error

	// records calls visit with the records of a device in a range, or only with the newest one if the range is
	// descending.
	records(ctx context.Context, r storage.Range, visit func(*storage.Record) error) error
}

func (c *alertsTestCommand) Run(ctx context.Context, std stdio) error {
	signs, err := c.table()
	if err != nil {
		return err
	}
	var from readings
	if c.Data != "" {
		db, err := pebblestore.Open(c.Data, pebblestore.Options{ReadOnly: true})
		if err != nil {
			return fmt.Errorf("open data directory: %w", err)
		}
		defer db.Close()
		from, signs = stoppedServer{db}, db.Signs()
	} else {
		client, err := c.connect(c.Target, std.err)
		if err != nil {
			return err
		}
		defer client.Close()
		from = runningServer{client, signs}
	}
	flags, err := server.FlagLimits(c.Usual, signs)
	if err != nil {
		return err
	}
	rules, err := alert.ReadRules(c.File, &flags)
	if err != nil {
		return settings.Usage(err)
	}
	fmt.Fprintln(std.err, alert.Notice)
	return c.replay(ctx, from, rules, std)
}

// A fired is an alert in the output.
type fired struct {
	Device   string `json:"device"`
	Name     string `json:"name"`
	Sign     string `json:"sign,omitempty"`
	Since    string `json:"since"`
	Fired    string `json:"fired"`
	Resolved string `json:"resolved,omitempty"`
}

// replay replays the readings of one device after the other.
func (c *alertsTestCommand) replay(ctx context.Context, from readings, rules []alert.Rule, std stdio) error {
	until := time.Now().UnixMilli()
	if c.To != nil {
		until = int64(*c.To)
	}
	p := alert.Replay{
		Rules: rules, FromUnixMs: int64(c.From), UntilUnixMs: until, MostReadings: maxReplayed, MostAlerts: maxFired,
		Read: from.records,
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	var devices, alerts, late int
	one := func(device vitals.Name) error {
		found, err := p.Of(ctx, device)
		if errors.Is(err, alert.ErrTooMany) {
			return fmt.Errorf("%s has more than %d readings, or %d alerts: replay fewer with --from and --to",
				device, maxReplayed, maxFired)
		}
		if err != nil {
			return err
		}
		devices, late = devices+1, late+found.Late
		for _, e := range found.Episodes {
			f := fired{device.String(), e.Rule.Name, e.Rule.Field, utc(e.SinceUnixMs), utc(e.FiredUnixMs), ""}
			if e.ResolvedUnixMs != 0 {
				f.Resolved = utc(e.ResolvedUnixMs)
			}
			if alerts++; c.JSON {
				err = errors.Join(err, printJSON(std.out, f))
				continue
			}
			if alerts == 1 {
				fmt.Fprintln(table, "DEVICE\tALERT\tSIGN\tSINCE\tFIRED\tRESOLVED")
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Device, f.Name, cmp.Or(f.Sign, "-"), f.Since, f.Fired,
				cmp.Or(f.Resolved, "-"))
		}
		return err
	}
	var err error
	if c.Device.IsZero() {
		err = from.devices(ctx, one)
	} else {
		err = one(c.Device)
	}
	if err = errors.Join(err, table.Flush()); err != nil {
		return err
	}
	fmt.Fprintf(std.err, "devices=%d alerts=%d late=%d\n", devices, alerts, late)
	if late > 0 {
		fmt.Fprintln(std.err,
			"Late readings meet a condition, but arrived later than max_age after their time, so they raise nothing.")
	}
	return nil
}

func utc(unixMs int64) string { return string(vitals.AppendTime(nil, unixMs)) }

// A stoppedServer reads a data directory.
type stoppedServer struct{ db *pebblestore.Store }

func (s stoppedServer) devices(ctx context.Context, visit func(vitals.Name) error) error {
	var after vitals.Name
	for page := make([]storage.Device, 256); ; {
		n, err := s.db.Devices(ctx, after, page)
		for i := 0; i < n && err == nil; i++ {
			after = page[i].Name
			err = visit(after)
		}
		if err != nil || n < len(page) {
			return err
		}
	}
}

func (s stoppedServer) records(ctx context.Context, r storage.Range, visit func(*storage.Record) error) error {
	return alert.ReadFrom(s.db.Scan)(ctx, r, visit)
}

// A runningServer reads from a server. Signs that are not in the table are left out.
type runningServer struct {
	client *transfer.Client
	signs  *vitals.Signs
}

func (s runningServer) devices(ctx context.Context, visit func(vitals.Name) error) error {
	return s.client.Devices(ctx, 0, func(page []transfer.Device) error {
		for i := range page {
			name, err := vitals.ParseName(page[i].Name)
			if err == nil {
				err = visit(name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s runningServer) records(ctx context.Context, r storage.Range, visit func(*storage.Record) error) error {
	selection := transfer.Selection{Device: r.Device.String(), From: utc(r.FromUnixMs), To: utc(r.ToUnixMs),
		Newest: r.Descending}
	return s.client.Readings(ctx, selection, func(line []byte) error {
		record, err := s.parse(line)
		if err != nil {
			return err
		}
		return visit(&record)
	})
}

// parse parses a reading as a server exports it. Its error does not quote it.
func (s runningServer) parse(line []byte) (r storage.Record, err error) {
	var members map[string]jsontext.Value
	if json.Unmarshal(line, &members) != nil {
		return r, transfer.ErrNotPulsegate
	}
	for name, value := range members {
		sign, is := s.signs.Named(name)
		switch text := strings.Trim(string(value), `"`); {
		case name == "time":
			r.TimeUnixMs, _, err = vitals.ParseTime(text)
		case name == "received":
			r.ReceivedUnixMs, _, err = vitals.ParseTime(text)
		case is:
			var v vitals.Value
			if v, err = s.signs.Of(sign).Parse(value); err == nil {
				r.Values.Set(sign, v)
			}
		}
		if err != nil {
			return r, fmt.Errorf("%w: %s: %w", transfer.ErrNotPulsegate, name, err)
		}
	}
	return r, nil
}
