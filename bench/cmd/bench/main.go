// Command bench measures Pulsegate and its peers. It writes each set of figures to a file
// of bench/results; docs/benchmarks.md has those by which one decides.
//
//	go run ./cmd/bench ingest --rounds 5 --seconds 10
//
// The commands:
//
//   - ingest loads every server in turn, freshly started for each measurement, with
//     single readings (with wrk), batches and idle connections.
//   - store loads Pulsegate and databases with many millions of readings, and measures
//     what they cost on the disk.
//   - postgres loads Pulsegate with PostgreSQL as its store.
//   - overload loads a server with more than its capacity.
//   - micro runs the microbenchmarks and compares them with benchstat.
//   - mux compares the routers of package routers.
//
// Servers listen on free loopback ports, have empty data directories, and must give the
// right answer before they are loaded. The program stops only processes that it
// started, by process ID. It runs only on Linux.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/pulsegate/pulsegate/bench/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var commands struct {
		Ingest   ingestCommand   `cmd:"" help:"Load every server in turn: single readings, batches, idle connections."`
		Store    storeCommand    `cmd:"" help:"Load servers with many readings: CPU time until all is compacted, disk space, restart, scans."`
		Postgres postgresCommand `cmd:"" help:"Load Pulsegate with PostgreSQL as its store: single readings, batches, standbys, two servers, many rows."`
		Overload overloadCommand `cmd:"" help:"Load a server with more than its capacity."`
		Micro    microCommand    `cmd:"" help:"Run the microbenchmarks and compare them with benchstat."`
		Mux      muxCommand      `cmd:"" help:"Compare the routers."`
	}
	parser, err := kong.New(&commands, kong.Name("bench"), kong.BindTo(ctx, (*context.Context)(nil)),
		kong.BindTo(out, (*io.Writer)(nil)))
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return err
	}
	return command.Run()
}

// common has the flags of every command, and the state of a run.
type common struct {
	Rounds  int    `default:"10" help:"Number of rounds. Each measures everything once."`
	Root    string `default:".." type:"existingdir" help:"Root of the repository."`
	Results string `default:"results" help:"Directory to which to write the figures. Empty: print them."`

	out     io.Writer
	work    string         // directory for programs and data
	setting report.Setting // at the start
}

// in calls measure with a new directory in dir or, if dir is empty, in the system's
// directory for temporary files.
func (c *common) in(out io.Writer, dir string, measure func() error) (err error) {
	c.out, c.setting = out, report.Here("")
	if c.work, err = os.MkdirTemp(dir, "bench-"); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.work)) }()
	return measure()
}

// write writes a report to the file of results with a name.
func (c *common) write(name string, r *report.Report) error {
	text := r.Markdown()
	if c.Results == "" {
		_, err := io.WriteString(c.out, text)
		return err
	}
	path := filepath.Join(c.Results, name+".txt")
	if err := report.WriteFile(path, []byte(strings.TrimSpace(text)+"\n")); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "wrote %s\n", path)
	return err
}

// rotate calls f with each element of all in every round. The order rotates by one in each
// round, so that no server always runs after the same one.
func rotate[T any](rounds int, all []T, f func(round int, one *T) error) error {
	for round := range rounds {
		for i := range all {
			if err := f(round, &all[(i+round)%len(all)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare measures each of all in every round, in the order of rotate. It adds the figures to the row
// of t with the name and the label that row returns.
func compare[T any](c *common, t *report.Table, all []T, row func(*T) (name, label string),
	measure func(*T) (report.Figures, error)) error {
	return rotate(c.Rounds, all, func(round int, one *T) error {
		name, label := row(one)
		f, err := measure(one)
		if err != nil {
			return fmt.Errorf("measure %s: %w", name, err)
		}
		t.Add(c.out, round, name, label, f)
		return nil
	})
}

// named is the row of what has only a name.
func named[T any](name *T) (string, string) { return fmt.Sprint(*name), "" }

// loads has the flags of the commands that load servers.
type loads struct {
	common
	Seconds  int           `default:"10" help:"Duration of one measurement in seconds."`
	WarmUp   time.Duration `default:"1s" help:"Load before each measurement, in whole seconds; 0s for none."`
	Dir      string        `type:"existingdir" help:"Directory for data, on the disk to measure. Default: the system's directory for temporary files."`
	Programs string        `type:"existingdir" help:"Directory with the programs to measure, pulsegate and peer. Default: build them."`

	secure *secure // what servers with TLS share; nil until one starts
}

func (l *loads) Validate() error {
	if l.Rounds < 1 || l.Seconds < 1 {
		return errors.New("--rounds and --seconds must be at least 1")
	}
	if l.WarmUp < 0 || l.WarmUp%time.Second != 0 {
		return errors.New("--warm-up must be whole seconds")
	}
	return nil
}

// duration returns the duration of one measurement.
func (l *loads) duration() time.Duration { return time.Duration(l.Seconds) * time.Second }

// report returns a report of a run of a make target with its usual variables.
func (l *loads) report(target, text string, notes ...string) *report.Report {
	return l.reportOf(fmt.Sprintf("make %s ROUNDS=%d SECONDS=%d", target, l.Rounds, l.Seconds), text, notes...)
}

// reportOf returns a report of a run of a command.
func (l *loads) reportOf(command, text string, notes ...string) *report.Report {
	l.setting.Command = command
	return &report.Report{Setting: l.setting, Text: text, Notes: append(notes, "Data: on "+fileSystem(l.work))}
}

// leave leaves a server out of a round because of err, with the reason in a report. If ctx is done, it returns an
// error.
func (l *loads) leave(ctx context.Context, r *report.Report, name string, round int, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("measure %s: %w", name, ctx.Err())
	}
	fmt.Fprintf(l.out, "round %d  %s: %v\n", round+1, name, err)
	reason, _, _ := strings.Cut(err.Error(), "\n")
	r.Left = append(r.Left, fmt.Sprintf("%s in round %d, because of: %s", name, round+1, reason))
	return nil
}

// with builds the programs to measure, unless l.Programs is set, and calls measure.
func (l *loads) with(ctx context.Context, out io.Writer, measure func(context.Context) error,
	programs ...string) error {
	return l.in(out, l.Dir, func() error {
		if l.Programs == "" {
			if err := buildPrograms(ctx, l.Root, l.work, programs...); err != nil {
				return err
			}
			l.Programs = l.work
		}
		return measure(ctx)
	})
}

// buildPrograms builds programs of the repository in root, and writes them to dir.
func buildPrograms(ctx context.Context, root, dir string, programs ...string) error {
	for _, program := range programs {
		module := root
		if program == "peer" {
			module = filepath.Join(root, "bench")
		}
		if _, err := goCommand(ctx, module, "build", "-o", filepath.Join(dir, program), "./cmd/"+program); err != nil {
			return err
		}
	}
	return nil
}

// own returns the path of the pulsegate binary.
func (l *loads) own() string { return filepath.Join(l.Programs, report.Own) }

// goCommand runs the go command in dir and returns its output.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s%s", args[0], err, text, stderr.String())
	}
	return string(text), nil
}

// choose returns the elements of all with the given names, in the order of names.
// Without names it returns all.
func choose[T any](all []T, name func(T) string, names []string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []T
	for _, n := range names {
		i := slices.IndexFunc(all, func(one T) bool { return name(one) == n })
		if i < 0 {
			return nil, fmt.Errorf("unknown name %q", n)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// sleep waits for d. If ctx is done first, it returns ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
