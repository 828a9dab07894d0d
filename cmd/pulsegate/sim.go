package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/vitals"
	"golang.org/x/term"
)

type simCommand struct {
	Load   simLoadCommand   `cmd:"" name:"run" default:"withargs" help:"Load a server with a fleet of simulated gateways. (default)"`
	Verify simVerifyCommand `cmd:"" help:"Compare what a server has stored with the ledger of a run."`
}

// simTarget is the server of a run.
type simTarget struct {
	Target      string `default:"http://127.0.0.1:8080" help:"Address of the server."`
	AllowRemote bool   `help:"Take a target that is not this machine."`

	clientFlags `embed:""`
}

// resolve returns the target, and the token for it.
func (c *simTarget) resolve(ctx context.Context, stderr io.Writer) (target *sim.Target, token string, err error) {
	target, err = sim.ResolveTarget(ctx, c.Target, c.AllowRemote)
	if errors.Is(err, sim.ErrRemote) || errors.Is(err, sim.ErrTarget) {
		err = usageError{err.Error()}
	}
	if err != nil {
		return nil, "", err
	}
	cred, err := c.load(c.Target, stderr)
	if err != nil {
		return nil, "", err
	}
	if cred.tls != nil {
		target.WithTLS(cred.tls.RootCAs, cred.tls.Certificates)
	}
	return target, cred.token, nil
}

type simLoadCommand struct {
	simTarget `embed:""`

	Users   int           `default:"100" help:"Gateways, each with a connection of its own."`
	Posts   int64         `help:"Closed loop: requests of each gateway. Default without --rate and --for: 100."`
	Rate    float64       `help:"Open loop: requests per second, sent when they are due whether or not others were answered."`
	MaxRate float64       `default:"1000" help:"Readings per second at most to a target that is not this machine: --rate times --batch. 0: no cap."`
	For     time.Duration `help:"How long to send, such as 30s."`
	Devices int           `help:"Devices of the fleet. Default: as many as users."`
	Batch   int           `help:"Readings in a batch. Default: 1, and 20 with --mix real."`

	Mix   string            `enum:"clean,real" default:"clean" help:"What gateways do: clean sends valid readings once each, real does what real gateways do."`
	Share map[string]string `mapsep:"," placeholder:"NAME=SHARE,..." help:"Change the share of a behaviour, from 0 to 1: batch, buffer, gzip (of gateways), skew (of devices), drop, forward, reorder, malformed (of requests)."`

	Recording string        `placeholder:"FILE" help:"Replay the signs of a CSV or NDJSON recording on all devices, with jitter. 'mimic2' is the one that is built in."`
	Map       string        `placeholder:"FIELD=COLUMN,..." help:"Columns of a CSV recording, such as heart_rate_bpm=HR."`
	Interval  time.Duration `help:"Time between two readings of a device. Default: 1m, or that of the recording."`
	Start     string        `placeholder:"TIME" help:"Time of the first readings. Default: so early that the last ones are of now."`
	Seed      uint64        `help:"Seed of wearers and gateways. Default: a random one, which is reported."`
	RunName   string        `name:"run" placeholder:"NAME" help:"Name of the run; devices are called sim-NAME-000000. Default: a random one."`

	Ledger string `placeholder:"FILE" help:"Write what is sent and acknowledged to a new file."`
	Verify bool   `help:"Read everything back afterwards and compare; exit 1 on any difference."`

	Timeout  time.Duration `default:"30s" help:"Time for one answer."`
	Patience time.Duration `default:"10s" help:"End the run after so long without any answer."`
	Tries    int           `default:"20" help:"Tries of one request."`
	Threads  int           `help:"Threads that send. Default: half of the processors."`

	JSON bool   `help:"Print the report as one JSON object."`
	Plot string `placeholder:"FILE.svg" help:"Write a chart of latency and throughput."`
}

func (c *simLoadCommand) Run(ctx context.Context, std stdio) (err error) {
	cfg, err := c.config(ctx, std.err)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(cmp.Or(c.Threads, max(runtime.GOMAXPROCS(0)/2, 1)))
	ledger, remove, err := c.openLedger(&cfg)
	if err != nil {
		return err
	}
	live := newLiveLine(std.err)
	cfg.OnProgress = func(p sim.Progress) {
		live.show("%4.0f s  %9.0f requests/s  p50 %s  p99 %s  refused %d  errors %d",
			p.Elapsed.Seconds(), p.PerSecond, milliseconds(p.P50Us), milliseconds(p.P99Us), p.Refusals, p.Failures)
	}
	report, err := sim.Run(ctx, cfg)
	live.clear()
	if errors.Is(err, sim.ErrConfig) {
		err = usageError{err.Error()}
	}
	if cfg.Ledger != nil {
		report.Ledger = ledger
		err = errors.Join(err, cfg.Ledger.Close())
	}
	if c.Verify && report.Sent > 0 {
		err = errors.Join(err, c.verify(ctx, std, &cfg, ledger, report))
	}
	if !(c.Verify && report.Verification == nil) {
		err = errors.Join(err, remove())
	} else if c.Ledger == "" && report.Sent > 0 {
		fmt.Fprintf(std.err, "not verified; later: pulsegate sim verify %s --target %s\n", ledger, c.Target)
	}
	if c.Plot != "" && report.Requests > 0 {
		err = errors.Join(err, writePlot(c.Plot, report))
	}
	return errors.Join(c.print(std.out, report), err, report.Fault())
}

// config turns the flags into a configuration, without its ledger.
func (c *simLoadCommand) config(ctx context.Context, stderr io.Writer) (cfg sim.Config, err error) {
	if c.Posts == 0 && c.Rate == 0 && c.For == 0 {
		c.Posts = 100
	}
	if c.Threads < 0 {
		return cfg, usageError{"--threads is negative"}
	}
	if c.Batch == 0 && c.Mix == "real" {
		c.Batch = 20
	}
	cfg = sim.Config{
		Users: c.Users, Devices: c.Devices, Batch: c.Batch,
		Posts: c.Posts, Rate: c.Rate, For: c.For,
		Seed: c.Seed, Run: c.RunName, Interval: c.Interval,
		Timeout: c.Timeout, Patience: c.Patience, MaxTries: c.Tries,
	}
	if cfg.Mix, err = sim.ParseMix(c.Mix, c.Share); err != nil {
		return cfg, usageError{err.Error()}
	}
	if c.Start != "" {
		ms, err := vitals.ParseTime(c.Start)
		if err != nil {
			return cfg, usageError{"--start is neither RFC 3339 with zone nor integer Unix milliseconds"}
		}
		cfg.Start = time.UnixMilli(ms)
	}
	var random [12]byte
	rand.Read(random[:]) // never fails
	if cfg.Seed == 0 {
		cfg.Seed = uint64(binary.LittleEndian.Uint32(random[:])) + 1
	}
	if cfg.Run == "" {
		cfg.Run = hex.EncodeToString(random[8:])
	}
	if c.Recording != "" {
		if cfg.Recording, err = c.openRecording(); err != nil {
			return cfg, err
		}
	} else if c.Map != "" {
		return cfg, usageError{"--map names the columns of a --recording"}
	}
	if cfg.Target, cfg.Token, err = c.resolve(ctx, stderr); err != nil {
		return cfg, err
	}
	if err := c.checkRate(cfg.Target.Remote()); err != nil {
		return cfg, err
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{err.Error()}
	}
	return cfg, nil
}

// checkRate keeps a fleet from loading another machine with all that it can send,
// which is what a closed loop does, or with more than was agreed.
func (c *simLoadCommand) checkRate(remote bool) error {
	perSecond := c.Rate * float64(max(c.Batch, 1))
	switch {
	case !remote || c.MaxRate == 0:
		return nil
	case !(c.MaxRate > 0):
		return usageError{"--max-rate is not a number from 0 on"}
	case c.Rate == 0:
		return usageError{fmt.Sprintf("the target is not this machine: say with --rate how many requests per second it is to get. "+
			"--max-rate caps it, at %g readings per second", c.MaxRate)}
	case !(perSecond <= c.MaxRate):
		return usageError{fmt.Sprintf("%g readings per second are more than the cap of %g for a target that is not this machine. "+
			"Ask those who run it, and raise --max-rate to what they agree to", perSecond, c.MaxRate)}
	}
	return nil
}

// openRecording reads the recording to replay.
func (c *simLoadCommand) openRecording() (*sim.Recording, error) {
	columns, text := c.Map, io.Reader(strings.NewReader(recording.MIMIC2))
	name := strings.ToLower(c.Recording)
	if name == "mimic2" {
		columns = recording.MIMIC2Mapping
	} else {
		file, err := os.Open(c.Recording)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		text = file
	}
	mapping, err := recording.ParseMapping(columns)
	if err != nil {
		return nil, usageError{err.Error()}
	}
	device, err := vitals.ParseName("recorded") // for files that name none
	if err != nil {
		return nil, err
	}
	opt := recording.Options{Mapping: mapping, Device: device}
	var reader recording.Reader
	if strings.HasSuffix(name, ".ndjson") || strings.HasSuffix(name, ".jsonl") {
		reader = recording.NewNDJSON(text, opt)
	} else if reader, err = recording.NewCSV(text, opt); err != nil {
		return nil, err
	}
	return sim.ReadRecording(reader)
}

// openLedger creates the ledger, if there is to be one. remove removes one that
// was made for --verify alone.
func (c *simLoadCommand) openLedger(cfg *sim.Config) (path string, remove func() error, err error) {
	path, remove = c.Ledger, func() error { return nil }
	if path == "" && !c.Verify {
		return "", remove, nil
	}
	if path == "" {
		dir, err := os.MkdirTemp("", "pulsegate-sim-")
		if err != nil {
			return "", remove, err
		}
		path, remove = filepath.Join(dir, "ledger"), func() error { return os.RemoveAll(dir) }
	}
	cfg.Ledger, err = sim.CreateLedger(path, cfg.Run, cfg.Seed)
	if errors.Is(err, os.ErrExist) {
		return "", remove, usageError{"--ledger: the file is there already, and a ledger is not overwritten: " + path}
	}
	return path, remove, err
}

// verify reads everything back.
func (c *simLoadCommand) verify(ctx context.Context, std stdio, cfg *sim.Config, ledger string, report *sim.Report) error {
	if ctx.Err() != nil {
		return nil // interrupted
	}
	live := newLiveLine(std.err)
	defer live.clear()
	v, err := sim.Verify(ctx, ledger, sim.VerifyOptions{Target: cfg.Target, Token: cfg.Token, Progress: live.verifying()})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	report.Verification = v
	return nil
}

func (c *simLoadCommand) print(out io.Writer, report *sim.Report) error {
	if c.JSON {
		return printJSON(out, report)
	}
	if err := report.WriteTable(out); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, report.Summary())
	return err
}

func printJSON(out io.Writer, v any) error {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("format report: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// writePlot writes the chart of a report.
func writePlot(path string, report *sim.Report) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(report.WriteSVG(file), file.Close())
}

type simVerifyCommand struct {
	Ledger    string `arg:"" help:"Ledger of a run."`
	simTarget `embed:""`
	AllowCut  bool `help:"Take a ledger that was cut off, because the machine that wrote it crashed, for whole."`
	JSON      bool `help:"Print the result as one JSON object."`
}

func (c *simVerifyCommand) Run(ctx context.Context, std stdio) error {
	target, token, err := c.resolve(ctx, std.err)
	if err != nil {
		return err
	}
	live := newLiveLine(std.err)
	v, err := sim.Verify(ctx, c.Ledger, sim.VerifyOptions{
		Target: target, Token: token, AllowCut: c.AllowCut, Progress: live.verifying(),
	})
	live.clear()
	if v == nil {
		return err
	}
	if c.JSON {
		err = errors.Join(printJSON(std.out, v), err)
	} else {
		table := v.WriteTable(std.out)
		_, printed := fmt.Fprintln(std.out, v.Summary())
		err = errors.Join(table, printed, err)
	}
	return errors.Join(err, v.Fault())
}

// A liveLine is a line of a terminal that is written again and again. On
// anything else than a terminal it shows nothing.
type liveLine struct {
	out   io.Writer // nil: not a terminal
	shown time.Time
}

func newLiveLine(out io.Writer) *liveLine {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &liveLine{out: out}
	}
	return &liveLine{}
}

func (l *liveLine) show(format string, args ...any) {
	if l.out != nil {
		fmt.Fprintf(l.out, "\r\x1b[K"+format, args...)
	}
}

// verifying returns what shows the progress of a verification, a few times a
// second.
func (l *liveLine) verifying() func(done, all int) {
	return func(done, all int) {
		if now := time.Now(); l.out != nil && (done == all || now.Sub(l.shown) > 200*time.Millisecond) {
			l.shown = now
			l.show("reading back: %d of %d devices", done, all)
		}
	}
}

func (l *liveLine) clear() { l.show("") }

func milliseconds(us int64) string { return fmt.Sprintf("%.3g ms", float64(us)/1000) }
