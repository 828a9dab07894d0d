package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/server"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

// demoDevice is the device of the demo's recording.
const demoDevice = "mimic2-s00001"

// The recording is also replayed, for its device and for others that begin at other places of
// it. It has a row a minute; replayed faster, one can watch it.
var demoReplayed = []string{demoDevice, "replay-2", "replay-3", "replay-4", "replay-5"}

const demoEvery = 5 * time.Second

type demoCommand struct {
	Addr string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address to listen on. If it is in use, a free port is chosen."`
	Data string `type:"path" env:"-" placeholder:"DIR" help:"Data directory. Default: a temporary one, removed at the end."`
}

func (c *demoCommand) Run(ctx context.Context, std stdio) (err error) {
	opt, err := defaultOptions()
	if err != nil {
		return err
	}
	opt.Addr, opt.AdminAddr, opt.Data = c.Addr, "", c.Data
	if opt.Data == "" {
		if opt.Data, err = os.MkdirTemp("", "pulsegate-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(opt.Data)) }()
	}
	logs, err := server.OpenLog(std.err, &opt.LogOptions)
	if err != nil {
		return err
	}
	defer logs.Close()
	devices, opts, err := demoRecording()
	if err != nil {
		return err
	}
	replaying, stop := context.WithCancel(ctx)
	var replays sync.WaitGroup
	replay := func(ctx context.Context, addr net.Addr) error {
		target := "http://" + addr.String()
		if _, err := fmt.Fprintf(std.out, "Open %s/ in a browser.\n", target); err != nil {
			return err
		}
		client, err := transfer.NewClient(target, transfer.Credentials{})
		if err != nil {
			return err
		}
		if err := c.replay(ctx, std, client, target, opts); err != nil {
			client.Close()
			return err
		}
		replays.Go(func() {
			defer client.Close()
			if err := replayOn(replaying, client, devices, opts); err != nil && replaying.Err() == nil {
				logs.Warn("the replay of the recording has ended", "error", err)
			}
		})
		return nil
	}
	err = server.Run(ctx, opt, logs, replay)
	if errors.Is(err, syscall.EADDRINUSE) {
		logs.Info("address in use, choosing a free port", "addr", c.Addr)
		opt.Addr = "127.0.0.1:0"
		err = server.Run(ctx, opt, logs, replay)
	}
	stop()
	replays.Wait()
	return err
}

// defaultOptions returns the options of a server without flags.
func defaultOptions() (*server.Options, error) {
	opt := new(server.Options)
	parser, err := kong.New(opt, settings.Defaults(server.Defaults()), settings.Units())
	if err == nil {
		_, err = parser.Parse(nil)
	}
	opt.OTLPEndpoint = "" // the environment may have set it
	opt.Version, opt.Getenv = versionText(), os.Getenv
	return opt, err
}

// demoRecording returns the devices of the replay, and how to read the recording.
func demoRecording() (devices []vitals.Name, opt recording.Options, err error) {
	for _, text := range demoReplayed {
		name, err := vitals.ParseName(text)
		if err != nil {
			return nil, opt, err
		}
		devices = append(devices, name)
	}
	return devices, recording.Options{Mapping: recording.MIMIC2Mapping(), Device: devices[0]}, nil
}

// replay sends the recording, with its dates shifted so that it ends now, and shows the result.
func (c *demoCommand) replay(ctx context.Context, std stdio, client *transfer.Client, target string,
	opt recording.Options) error {
	end := time.Now().Truncate(time.Second)
	reader, err := recording.NewShifted(strings.NewReader(recording.MIMIC2), recording.CSV, opt, end.UnixMilli(), nil)
	if err != nil {
		return err
	}
	var refused []transfer.Refusal
	sum, err := transfer.Upload(ctx, client, reader,
		transfer.UploadOptions{OnRefused: func(r transfer.Refusal) { refused = append(refused, r) }})
	if err != nil {
		return fmt.Errorf("send the recording: %w", err)
	}
	return c.show(std, target, sum, refused, end)
}

// replayOn replays the recording until ctx ends.
func replayOn(ctx context.Context, client *transfer.Client, devices []vitals.Name, opt recording.Options) error {
	file, err := recording.New(strings.NewReader(recording.MIMIC2), recording.CSV, opt)
	if err != nil {
		return err
	}
	replay, err := recording.NewReplay(ctx, file, devices, demoEvery)
	if err != nil {
		return err
	}
	_, err = transfer.Upload(ctx, client, replay, transfer.UploadOptions{Batch: len(devices)})
	return err
}

// show prints the result and commands to try next.
func (c *demoCommand) show(std stdio, target string, sum transfer.Summary, refused []transfer.Refusal,
	end time.Time) error {
	fmt.Fprintf(std.out, "\nA recording of a bedside monitor (MIMIC II, record s00001) was sent over HTTP to %s\n\n",
		target)
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range []struct {
		n    int
		what string
	}{
		{sum.Rows, "rows, one a minute"},
		{sum.Zeros, "zeros left out, which mean no signal"},
		{sum.NoSign, "rows without a vital sign"},
		{sum.Sent, "readings sent"},
		{sum.Stored, "stored"},
		{sum.Duplicate, "duplicates, stored before"},
		{sum.Values, "values in them"},
		{sum.Rejected, "rejected"},
	} {
		fmt.Fprintf(table, "  %d\t  %s\n", row.n, row.what)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range refused {
		fmt.Fprintf(std.out, "\n  rejected: line %d: %s\n", r.Line, r.Text())
	}
	if len(refused) > 0 {
		fmt.Fprintln(std.out, "  This is meant: Pulsegate stores a value as it was measured, or rejects it with the reason.")
	}
	from := end.Add(-time.Hour).UTC().Format(time.RFC3339)
	to := end.Add(time.Second).UTC().Format(time.RFC3339)
	_, err := fmt.Fprintf(std.out, `
The latest value of each vital sign:
  pulsegate latest %[2]s --target %[1]s
  curl '%[1]s/v1/devices/%[2]s'

The last hour as CSV:
  curl '%[1]s/v1/devices/%[2]s/readings?from=%[3]s&to=%[4]s&format=csv'

The page, which shows the recording and its replay, a reading every %[5]s:
  %[1]s/

Serving until Ctrl-C.
`, target, demoDevice, from, to, demoEvery)
	return err
}
