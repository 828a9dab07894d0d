package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/server"
	"github.com/pulsegate/pulsegate/vitals"
)

// demoDevice is the device that the demo's recording is stored under.
const demoDevice = "mimic2-s00001"

type demoCommand struct {
	Addr string `default:"127.0.0.1:8080" help:"Address to listen on. If it is taken, a free port is used."`
	Data string `type:"path" env:"-" help:"Data directory. Default: a temporary one, removed at the end."`
}

func (c *demoCommand) Run(ctx context.Context, std stdio) (err error) {
	dir := c.Data
	if dir == "" {
		if dir, err = os.MkdirTemp("", "pulsegate-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	serve, err := defaultServe()
	if err != nil {
		return err
	}
	logs, err := server.OpenLog(std.err, &serve.LogOptions)
	if err != nil {
		return err
	}
	defer logs.Close()
	srv, err := c.start(serve, dir, logs)
	if err != nil {
		return err
	}
	target := "http://" + srv.PublicAddr().String()
	if err := c.replay(ctx, std, target); err != nil {
		return errors.Join(err, srv.Drain())
	}
	return srv.Run(ctx)
}

// start starts the server with the defaults of serve.
func (c *demoCommand) start(serve *serveCommand, dir string, logs *server.Log) (*server.Server, error) {
	serve.Addr, serve.AdminAddr, serve.Data = c.Addr, "", dir
	serve.OTLPEndpoint = "" // which the environment may set
	server.TakeResources(&serve.Options, logs.Logger())
	srv, err := server.Start(&serve.Options, logs)
	if errors.Is(err, syscall.EADDRINUSE) {
		logs.Logger().Info("the address is taken, using a free port", "addr", c.Addr)
		serve.Addr = "127.0.0.1:0"
		srv, err = server.Start(&serve.Options, logs)
	}
	return srv, err
}

// replay sends the recording, its dates moved so that it ends now, and shows what
// came of it.
func (c *demoCommand) replay(ctx context.Context, std stdio, target string) error {
	device, err := vitals.ParseName(demoDevice)
	if err != nil {
		return err
	}
	mapping, err := recording.ParseMapping(recording.MIMIC2Mapping)
	if err != nil {
		return err
	}
	opt := recording.Options{Mapping: mapping, Device: device}
	open := func() (recording.Reader, error) { return recording.NewCSV(strings.NewReader(recording.MIMIC2), opt) }
	reader, err := open()
	if err != nil {
		return err
	}
	newest, err := recording.Newest(reader)
	if err != nil {
		return err
	}
	end := time.Now().Truncate(time.Second)
	opt.ShiftMs = end.UnixMilli() - newest
	if reader, err = open(); err != nil {
		return err
	}
	client, err := transfer.NewClient(target, transfer.Credentials{})
	if err != nil {
		return err
	}
	defer client.Close()
	var refusals []string
	sum, err := transfer.Upload(ctx, client, reader, transfer.UploadOptions{
		Refused: func(r transfer.Refusal) {
			refusals = append(refusals, fmt.Sprintf("line %d: %s: %s", r.Line, r.Field, r.Reason))
		},
	})
	if err != nil {
		return fmt.Errorf("send the recording: %w", err)
	}
	return c.show(std, target, sum, refusals, end)
}

// show prints the table and the commands to go on with.
func (c *demoCommand) show(std stdio, target string, sum transfer.Summary, refusals []string, end time.Time) error {
	fmt.Fprintf(std.out, "\nA bedside monitor's recording (MIMIC II, record s00001), sent over HTTP to %s\n\n", target)
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range []struct {
		n    int
		what string
	}{
		{sum.Rows, "rows, one a minute"},
		{sum.Zeros, "zeros left out: no signal"},
		{sum.NoSign, "rows without any sign"},
		{sum.Sent, "readings sent"},
		{sum.Stored, "stored"},
		{sum.Duplicate, "stored before"},
		{sum.Values, "values in them"},
		{sum.Rejected, "refused"},
	} {
		fmt.Fprintf(table, "  %d\t  %s\n", row.n, row.what)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range refusals {
		fmt.Fprintf(std.out, "\n  refused: %s\n", r)
	}
	from := end.Add(-time.Hour).UTC().Format(time.RFC3339)
	to := end.Add(time.Second).UTC().Format(time.RFC3339)
	_, err := fmt.Fprintf(std.out, `
The last value of each sign, with the time of each:
  curl '%[1]s/v1/devices/%[2]s'

The last hour as CSV:
  curl '%[1]s/v1/devices/%[2]s/readings?from=%[3]s&to=%[4]s&format=csv'

Serving until Ctrl-C.
`, target, demoDevice, from, to)
	return err
}
