// Command profilecost measures what pulsegate profile costs the server that it
// profiles.
//
//	go run ./cmd/profilecost -rounds 6 -seconds 10
//
// One server is under one closed loop of pulsegate sim all the time. Windows with
// and without a profile take turns, and every other pair of them is turned round, so
// that neither a neighbour's load nor a growing store is charged to one side. Each
// pair yields two ratios, with against without:
//
//   - the server's CPU time per request, which says what profiling adds to its work;
//   - requests per second.
//
// A window ends with the time that is profiled: what the command does with the
// profile afterwards it does elsewhere, when it is used through a port-forward.
//
// It prints every pair, and of all pairs the median and the geometric mean with its
// standard error. On a machine that others use, single pairs are far off: take more
// of them until the error is small. It builds pulsegate, and runs on Unix systems
// only.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A config is what the flags say.
type config struct {
	rounds      int
	seconds     int // of one window
	connections int
	root        string // of the repository
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "profilecost:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*config, error) {
	var cfg config
	flags := flag.NewFlagSet("profilecost", flag.ContinueOnError)
	flags.IntVar(&cfg.rounds, "rounds", 6, "pairs of windows")
	flags.IntVar(&cfg.seconds, "seconds", 10, "duration of a window, in s")
	flags.IntVar(&cfg.connections, "connections", 1000, "connections")
	flags.StringVar(&cfg.root, "root", "..", "root of the repository")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if cfg.rounds < 1 || cfg.seconds < 1 || cfg.connections < 1 {
		return nil, errors.New("-rounds, -seconds and -connections must be at least 1")
	}
	return &cfg, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "profilecost-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "pulsegate")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/pulsegate")
	build.Dir = cfg.root
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build pulsegate: %w\n%s", err, text)
	}
	s, err := serve(ctx, program, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return s.loaded(ctx, cfg, func() error { return s.measure(ctx, cfg, out) })
}

// A server is the one that is profiled.
type server struct {
	program       string
	cmd           *exec.Cmd
	public, admin string // URLs
}

var listening = regexp.MustCompile(`^listening addr=(\S+) listener=(\S+)`)

// serve starts a server on free ports.
func serve(ctx context.Context, program, data string) (*server, error) {
	s := &server{program: program}
	s.cmd = exec.CommandContext(ctx, program, "serve", "--addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--data="+data)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); s.admin == "" && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if m := listening.FindStringSubmatch(lines.Text()); m != nil && m[2] == "public" {
			s.public = "http://" + m[1]
		} else if m != nil {
			s.admin = "http://" + m[1]
		}
	}
	if s.admin == "" {
		return nil, fmt.Errorf("pulsegate serve does not listen: %w\n%s", s.cmd.Wait(), said.String())
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }() // ends with the process
	return s, nil
}

func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return s.cmd.Wait()
}

// loaded calls f while the server is under load.
func (s *server) loaded(ctx context.Context, cfg *config, f func() error) error {
	// The load ends when f does; the planned time only keeps it from ending sooner.
	planned := time.Duration(cfg.rounds*(2*cfg.seconds+10))*time.Second + time.Minute
	load := exec.CommandContext(ctx, s.program, "sim", "run", "--target="+s.public,
		"--users="+strconv.Itoa(cfg.connections), "--for="+planned.String())
	var said strings.Builder
	load.Stdout, load.Stderr = &said, &said
	if err := load.Start(); err != nil {
		return err
	}
	err := sleep(ctx, time.Duration(min(3, cfg.seconds))*time.Second)
	if err == nil {
		err = f()
	}
	// Interrupted, it exits with 1 and reports: that is how it is meant to end.
	if e := load.Process.Signal(os.Interrupt); e != nil {
		return errors.Join(err, fmt.Errorf("the load ended by itself:\n%s", said.String()))
	}
	var exit *exec.ExitError
	if e := load.Wait(); e != nil && !errors.As(e, &exit) {
		err = errors.Join(err, e)
	}
	return err
}

// measure runs the windows and prints the figures.
func (s *server) measure(ctx context.Context, cfg *config, out io.Writer) error {
	fmt.Fprintf(out, "%d connections, windows of %d s\n", cfg.connections, cfg.seconds)
	fmt.Fprintln(out, "pair  CPU µs per request         requests/s")
	fmt.Fprintln(out, "      without    with   ratio   without    with   ratio")
	var costs, speeds []float64
	for round := range cfg.rounds {
		var with, without window
		var err error
		for _, profiled := range []bool{round%2 == 1, round%2 == 0} {
			w := &without
			if profiled {
				w = &with
			}
			if *w, err = s.window(ctx, cfg, profiled); err != nil {
				return err
			}
		}
		cost, speed := with.cost()/without.cost(), with.perSecond()/without.perSecond()
		costs, speeds = append(costs, cost), append(speeds, speed)
		fmt.Fprintf(out, "%4d  %7.2f %7.2f  %6.3f   %7.0f %7.0f  %6.3f\n", round+1,
			without.cost()*1e6, with.cost()*1e6, cost, without.perSecond(), with.perSecond(), speed)
	}
	_, err := fmt.Fprintf(out, "ratio of CPU per request: %s\nratio of requests/s:      %s\n", summary(costs), summary(speeds))
	return err
}

// A window is what the server did in a while.
type window struct {
	cpuSeconds, requests float64
	took                 time.Duration
}

func (w window) cost() float64      { return w.cpuSeconds / w.requests }
func (w window) perSecond() float64 { return w.requests / w.took.Seconds() }

// window measures one window, with a profile in it or without.
func (s *server) window(ctx context.Context, cfg *config, profiled bool) (window, error) {
	before, err := s.counters(ctx)
	if err != nil {
		return window{}, err
	}
	start := time.Now()
	var said strings.Builder
	profile := exec.CommandContext(ctx, s.program, "profile", s.admin, "--json", "--for="+strconv.Itoa(cfg.seconds)+"s")
	profile.Stderr = &said
	if profiled {
		if err := profile.Start(); err != nil {
			return window{}, err
		}
	}
	err = sleep(ctx, time.Duration(cfg.seconds)*time.Second)
	took := time.Since(start)
	after, errAfter := s.counters(ctx)
	if profiled {
		if e := profile.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("profile: %w\n%s", e, said.String()))
		}
	}
	if err = errors.Join(err, errAfter); err != nil {
		return window{}, err
	}
	w := window{after.cpuSeconds - before.cpuSeconds, after.requests - before.requests, took}
	if w.requests <= 0 || w.cpuSeconds <= 0 {
		return w, errors.New("nothing was served in a window")
	}
	return w, nil
}

// counters reads the server's own clock and its count of POSTs.
func (s *server) counters(ctx context.Context) (w window, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin+"/metrics", nil)
	if err != nil {
		return w, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return w, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil: // a comment
		case name == "process_cpu_seconds_total":
			w.cpuSeconds = value
		case strings.HasPrefix(name, `pulsegate_http_requests_total{`) && strings.Contains(name, `route="/v1/readings"`):
			w.requests += value
		}
	}
	return w, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// summary describes ratios, of which there is at least one.
func summary(ratios []float64) string {
	mean, factor := geometric(ratios)
	return fmt.Sprintf("median %.3f, mean %.3f, standard error %.1f %%", median(ratios), mean, 100*(factor-1))
}

// geometric returns the geometric mean of values above 0, and the factor by which
// one standard error of it is more. With a single value the error is unknown, and
// the factor NaN.
func geometric(values []float64) (mean, factor float64) {
	n := float64(len(values))
	var sum, squares float64
	for _, v := range values {
		sum += math.Log(v)
	}
	for _, v := range values {
		d := math.Log(v) - sum/n
		squares += d * d
	}
	return math.Exp(sum / n), math.Exp(math.Sqrt(squares / (n - 1) / n))
}

// median returns the middle of values, which must not be empty.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
