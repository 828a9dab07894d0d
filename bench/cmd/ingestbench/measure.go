package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// How long one start of a server may take, besides its loads.
const perStart = 2 * time.Minute

// baseAge is how far before now the readings begin; baseStep is more than the
// times of one load advance, so that no two loads of one start share a reading.
const (
	baseAge  = time.Hour
	baseStep = time.Minute
)

// A bench is one run of this program.
type bench struct {
	cfg         *config
	work        string
	out         io.Writer
	contestants []contestant
	left        []string // why others are not among them

	loader *loader        // of runSingle
	result *report.Ingest // of runSingle
}

// run measures one part and writes its figures to the page.
func (b *bench) run(ctx context.Context, part string) error {
	switch part {
	case partSingle:
		return b.runSingle(ctx)
	case partBulk:
		return b.runBulk(ctx)
	default:
		return b.runIdle(ctx)
	}
}

// setting says what the figures of a part that begins now hold for.
func (b *bench) setting() report.Setting {
	return report.Here(fmt.Sprintf("make bench-ingest ROUNDS=%d SECONDS=%d", b.cfg.rounds, int(b.cfg.duration.Seconds())))
}

// runSingle measures all contestants with one reading per request.
func (b *bench) runSingle(ctx context.Context) (err error) {
	if b.loader, err = findLoader(ctx); err != nil {
		return err
	}
	b.loader.script = filepath.Join(b.work, "readings.lua")
	if err := os.WriteFile(b.loader.script, readingsScript, 0o600); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	if err := raiseFileLimit(slices.Max(b.cfg.connections)); err != nil {
		return err
	}
	b.result = &report.Ingest{
		Setting:     b.setting(),
		Loader:      b.loader.version,
		Duration:    b.cfg.duration,
		WarmUp:      b.cfg.warmUp,
		Rounds:      b.cfg.rounds,
		Body:        len(firstReading()),
		FileSystem:  fileSystem(b.work),
		Connections: b.cfg.connections,
		Left:        b.left,
	}
	if err := b.measure(ctx, b.contestants); err != nil {
		return err
	}
	if b.result.Profile, err = b.profileOwn(ctx); err != nil {
		return err
	}
	const plot = "benchmarks-ingest.svg"
	if b.cfg.page != "" {
		if err := report.WriteFile(filepath.Join(filepath.Dir(b.cfg.page), plot), b.result.Plot()); err != nil {
			return err
		}
	}
	return b.write("bench-ingest", b.result.Markdown(plot))
}

// measure goes through the rounds. A server that fails in a round is left out of
// that round, with its reason in the report; an end of ctx fails the run.
func (b *bench) measure(ctx context.Context, chosen []contestant) error {
	perServer := perStart + b.cfg.warmUp + b.cfg.duration*time.Duration(len(b.cfg.connections))
	ctx, cancel := context.WithTimeout(ctx, perServer*time.Duration(len(chosen)*b.cfg.rounds))
	defer cancel()
	for _, c := range chosen {
		b.result.Servers = append(b.result.Servers, report.Server{Name: c.name, What: c.what, Stores: c.stores})
	}
	for round := range b.cfg.rounds {
		for i := range chosen {
			// The order turns, so that no server always runs after the same one.
			n := (i + round) % len(chosen)
			runs, err := b.measureOne(ctx, &chosen[n], round)
			if ctx.Err() != nil {
				return fmt.Errorf("measure %s: %w", chosen[n].name, ctx.Err())
			}
			if err != nil {
				fmt.Fprintf(b.out, "round %d  %-10s %v\n", round+1, chosen[n].name, err)
				reason, _, _ := strings.Cut(err.Error(), "\n")
				b.result.Left = append(b.result.Left, fmt.Sprintf("%s in round %d, because of: %s", chosen[n].name, round+1, reason))
				continue
			}
			b.result.Servers[n].Runs = append(b.result.Servers[n].Runs, runs...)
		}
	}
	return nil
}

// measureOne starts a server, measures it with each number of connections, and
// stops it.
func (b *bench) measureOne(ctx context.Context, c *contestant, round int) (_ []report.Run, err error) {
	server, remove, err := b.startFresh(ctx, c, fmt.Sprint(round))
	if err != nil {
		return nil, err
	}
	defer func() {
		if server != nil {
			server.stop() // after an error, which is the one to tell
		}
		err = errors.Join(err, remove())
	}()
	answered, inFlight := uint64(1), uint64(0)
	base := time.Now().Add(-baseAge)
	admin := server.server.admin()
	loadOnce := func(connections int, d time.Duration) (_ load, cpu time.Duration, made report.Allocated, err error) {
		base = base.Add(baseStep)
		madeBefore, err := allocated(ctx, admin)
		if err != nil {
			return load{}, 0, made, err
		}
		before, err := cpuTime(server.pids()...)
		if err != nil {
			return load{}, 0, made, err
		}
		l, err := b.loader.run(ctx, server.server.addr, connections, d, base.UnixMilli())
		if err != nil {
			return load{}, 0, made, err
		}
		after, err := cpuTime(server.pids()...)
		if err != nil {
			return load{}, 0, made, err
		}
		if made, err = allocated(ctx, admin); err != nil {
			return load{}, 0, made, err
		}
		answered += l.requests
		inFlight += uint64(connections) // wrk does not wait for the last answers
		return l, after - before, made.Since(madeBefore), l.check()
	}
	if _, _, _, err := loadOnce(b.cfg.connections[0], b.cfg.warmUp); err != nil {
		return nil, err
	}
	var runs []report.Run
	for _, n := range b.cfg.connections {
		l, cpu, made, err := loadOnce(n, b.cfg.duration)
		if err != nil {
			return nil, fmt.Errorf("%d connections: %w", n, err)
		}
		run := report.Run{Round: round, Connections: n, Requests: l.requests, Duration: l.duration, CPU: cpu, P50: l.p50, P99: l.p99, Allocated: made}
		fmt.Fprintf(b.out, "round %d  %-10s %5d connections  %8.2f µs CPU per request  %8.0f requests/s  p50 %v  p99 %v\n",
			round+1, c.name, n, run.CPUPerRequest(), run.PerSecond(), run.P50, run.P99)
		runs = append(runs, run)
	}
	ended := server
	server = nil
	return runs, checkStored(ctx, c, ended, answered, inFlight)
}

// startFresh starts a server with an empty directory of its own and checks one
// answer. remove removes the directory when the server has stopped.
func (b *bench) startFresh(ctx context.Context, c *contestant, label string) (_ *running, remove func() error, err error) {
	dir := filepath.Join(b.work, c.name+"-"+label)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make data directory: %w", err)
	}
	remove = func() error { return os.RemoveAll(dir) }
	server, err := c.start(ctx, b.cfg.programs, dir)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	if err := verify(ctx, server.server.addr); err != nil {
		server.stop() // after an error, which is the one to tell
		return nil, nil, errors.Join(err, remove())
	}
	return server, remove, nil
}

// checkStored stops a server. One that promises to store must have stored what
// it answered, and not more than it may have been sent.
func checkStored(ctx context.Context, c *contestant, r *running, answered, inFlight uint64) error {
	var stored uint64
	var err error
	known := false
	if c.postgres {
		if stored, err = r.database.stored(ctx); err != nil {
			r.stop()
			return err
		}
		known = true
	}
	if err := r.stop(); err != nil {
		return err
	}
	if c.own {
		if stored, known = r.server.stored(); !known {
			return fmt.Errorf("%s did not say how many readings it has stored: %s", c.name, r.server.text())
		}
	}
	if known && (stored < answered || stored > answered+inFlight) {
		return fmt.Errorf("%s answered %d readings as stored and has %d, with at most %d unanswered", c.name, answered, stored, inFlight)
	}
	return nil
}

// write puts a block of figures on the page.
func (b *bench) write(block, text string) error {
	if b.cfg.page == "" {
		return nil
	}
	if err := report.UpdatePage(b.cfg.page, block, text); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "wrote %s to %s\n", block, b.cfg.page)
	return nil
}

// fileSystem names the kind of file system that holds dir: on one in memory, a
// sync costs nothing.
func fileSystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "an unknown file system"
	}
	// The numbers are those of statfs(2).
	switch uint32(s.Type) {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x01021994:
		return "tmpfs, **in memory: syncs cost nothing, and stores are not comparable**"
	case 0x794c7630:
		return "overlayfs"
	}
	return fmt.Sprintf("a file system of type %#x", uint32(s.Type))
}
