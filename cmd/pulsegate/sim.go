package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

type simCommand struct {
	Load   simLoadCommand   `cmd:"" name:"run" default:"withargs" help:"Load a server with a fleet of simulated gateways. This is the default."`
	Verify simVerifyCommand `cmd:"" help:"Compare the readings that a server has stored with the ledger of a run."`
}

// simTarget are the flags that name the server of a run.
type simTarget struct {
	Target      string `placeholder:"URL" default:"http://127.0.0.1:8080" help:"URL of the server."`
	AllowRemote bool   `help:"Accept a target that is not this machine."`

	clientFlags `embed:""`
}

// resolve returns the target and the token for it and for other, the listener of another protocol, which may be nil. It
// sets the certificates of other.
func (c *simTarget) resolve(ctx context.Context, stderr io.Writer, other *sim.Target) (target *sim.Target,
	token string, err error) {
	target, err = sim.ResolveTarget(ctx, c.Target, c.AllowRemote)
	if errors.Is(err, sim.ErrRemote) || errors.Is(err, sim.ErrTarget) {
		err = settings.Usage(err)
	}
	if err != nil {
		return nil, "", err
	}
	secure := c.Target
	if other != nil && other.TLS() {
		_, address, _ := strings.Cut(other.String(), ":")
		secure = "https:" + address
	}
	cred, err := c.credentials(secure, stderr)
	for _, t := range []*sim.Target{target, other} {
		if t != nil && cred.TLS != nil {
			t.WithTLS(cred.TLS.RootCAs, cred.TLS.Certificates)
		}
		if t != nil && cred.Token != "" && !cred.Exposed && t.Remote() && !t.TLS() {
			cred.Exposed = true
			fmt.Fprint(stderr, exposedWarning)
		}
	}
	return target, cred.Token, err
}

type simLoadCommand struct {
	simTarget `embed:""`

	MQTT string `name:"mqtt" placeholder:"URL" help:"Send the readings to this MQTT listener, mqtt://HOST:PORT or mqtts://HOST:PORT, instead of --target. A user name in it is that of all gateways."`

	MLLP string `name:"mllp" placeholder:"URL" help:"Send the readings as HL7 v2 messages to this MLLP listener, mllp://HOST:PORT or mllps://HOST:PORT, instead of --target."`

	Config sim.Options `embed:""`

	signsFlag `embed:""`

	Mix   string            `enum:"clean,real" default:"clean" help:"Behaviour of gateways: clean sends valid readings once each, real also batches, retries, reorders and fails as real gateways do."`
	Share map[string]string `mapsep:"," placeholder:"NAME=SHARE,..." help:"Shares of behaviours, from 0 to 1: batch, buffer, gzip (of gateways), skew (of devices), drop, forward, reorder, malformed (of requests). Default: those of the mix."`

	Start *moment `placeholder:"TIME" help:"Time of the first readings. Default: chosen so that the run ends with the current time."`

	Ledger string `placeholder:"FILE" help:"New file for a record of what was sent and acknowledged."`
	Verify bool   `help:"Read everything back at the end and compare. Any difference is a failure."`

	Threads int `help:"Number of threads. Default: half of the processors."`

	JSON bool `help:"Print the report as one JSON object."`
}

func (c *simLoadCommand) Run(ctx context.Context, std stdio) error {
	if err := c.prepare(ctx, std.err); err != nil {
		return err
	}
	ledger, remove, err := c.openLedger()
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(cmp.Or(c.Threads, max(runtime.GOMAXPROCS(0)/2, 1)))
	report, err := c.load(ctx, std)
	report.Ledger = ledger
	if c.Verify && report.Sent > 0 && ctx.Err() == nil {
		v, verifyErr := verify(ctx, std, ledger, sim.VerifyOptions{Target: c.Config.Target, Token: c.Config.Token})
		if verifyErr != nil {
			err = errors.Join(err, fmt.Errorf("verify: %w", verifyErr))
		} else {
			report.Verification = v
		}
	}
	if !c.Verify || report.Sent == 0 || report.Verification != nil {
		err = errors.Join(err, remove())
	} else if c.Ledger == "" {
		fmt.Fprintf(std.err, "not verified; later: pulsegate sim verify %s --target %s\n", ledger, c.Target)
	}
	return errors.Join(printReport(std.out, report, c.JSON), err, report.Fault())
}

// prepare completes the configuration from the flags.
func (c *simLoadCommand) prepare(ctx context.Context, stderr io.Writer) (err error) {
	cfg := &c.Config
	if cfg.Signs, err = c.table(); err != nil {
		return err
	}
	if c.Threads < 0 {
		return settings.Usagef("--threads is negative")
	}
	if cfg.Posts == 0 && cfg.Rate == 0 && cfg.For == 0 {
		cfg.Posts = 100
	}
	if cfg.Batch == 0 && c.Mix == "real" {
		cfg.Batch = 20
	}
	if cfg.Mix, err = sim.ParseMix(c.Mix, c.Share); err != nil {
		return settings.Usage(err)
	}
	if c.Start != nil {
		cfg.Start = time.UnixMilli(int64(*c.Start))
	}
	if cfg.MQTT, err = c.listener(ctx, "mqtt", c.MQTT); err != nil {
		return err
	}
	if cfg.MLLP, err = c.listener(ctx, "mllp", c.MLLP); err != nil {
		return err
	}
	if cfg.Target, cfg.Token, err = c.resolve(ctx, stderr, cmp.Or(cfg.MQTT, cfg.MLLP)); err != nil {
		return err
	}
	return settings.Usage(cfg.Prepare())
}

// listener returns the listener to load with another protocol than HTTP, or nil.
func (c *simLoadCommand) listener(ctx context.Context, protocol, url string) (*sim.Target, error) {
	if url == "" {
		return nil, nil
	}
	t, err := sim.ResolveListener(ctx, protocol, url, c.AllowRemote)
	if errors.Is(err, sim.ErrRemote) || errors.Is(err, sim.ErrListener) {
		err = settings.Usage(err)
	}
	return t, err
}

// openLedger creates the ledger that --ledger names or --verify needs. remove removes a ledger
// that only --verify needs.
func (c *simLoadCommand) openLedger() (path string, remove func() error, err error) {
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
	c.Config.Ledger, err = sim.CreateLedger(path, c.Config.Run, c.Config.Seed, c.Config.Signs)
	if errors.Is(err, os.ErrExist) {
		err = settings.Usagef("--ledger: %s exists, and a ledger is not overwritten", path)
	}
	return path, remove, err
}

// load runs the simulation and shows its progress.
func (c *simLoadCommand) load(ctx context.Context, std stdio) (*sim.Report, error) {
	bar := newProgress(std.err, "")
	c.Config.OnProgress = func(p sim.Progress) {
		bar.Describe(fmt.Sprintf("%9.0f requests/s  p50 %.3g ms  p99 %.3g ms  rejected %d  errors %d",
			p.PerSecond, float64(p.P50Us)/1000, float64(p.P99Us)/1000, p.Refusals, p.Failures))
	}
	_ = bar.RenderBlank() // starts its clock
	report, err := sim.Run(ctx, c.Config)
	bar.finish()
	if c.Config.Ledger != nil {
		err = errors.Join(err, c.Config.Ledger.Close())
	}
	return report, err
}

type simVerifyCommand struct {
	Ledger    string `arg:"" help:"Ledger of a run."`
	simTarget `embed:""`
	AllowCut  bool `help:"Accept a truncated ledger, as a crash of the machine that wrote it leaves it."`
	JSON      bool `help:"Print the result as one JSON object."`
}

func (c *simVerifyCommand) Run(ctx context.Context, std stdio) error {
	target, token, err := c.resolve(ctx, std.err, nil)
	if err != nil {
		return err
	}
	v, err := verify(ctx, std, c.Ledger, sim.VerifyOptions{Target: target, Token: token, AllowCut: c.AllowCut})
	if v == nil {
		return err
	}
	return errors.Join(printReport(std.out, v, c.JSON), err, v.Fault())
}

// verify reads everything back and shows the progress.
func verify(ctx context.Context, std stdio, ledger string, opt sim.VerifyOptions) (*sim.Verification, error) {
	bar := newProgress(std.err, "reading back")
	defer bar.finish()
	opt.OnProgress = func(done, all int) { bar.set(int64(done), int64(all)) }
	return sim.Verify(ctx, ledger, opt)
}

// printReport prints a report of sim: a table and a line for scripts, or JSON.
func printReport(out io.Writer, report interface {
	WriteTable(io.Writer) error
	Summary() string
}, asJSON bool) error {
	if asJSON {
		return printJSON(out, report)
	}
	if err := report.WriteTable(out); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, report.Summary())
	return err
}
