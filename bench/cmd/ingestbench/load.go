package main

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed readings.lua
var readingsScript []byte

const (
	path = "/v1/readings"

	answerTimeout = 10 * time.Second // of one request, as told to wrk
	loadGrace     = 30 * time.Second // for wrk to end after its duration
)

// A loader is wrk.
type loader struct {
	path    string
	version string
	script  string
}

// findLoader returns wrk. It installs nothing: that is the set-up's part.
func findLoader(ctx context.Context) (*loader, error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return nil, fmt.Errorf("find loader: %w; `make setup` installs wrk (https://github.com/wg/wrk)", err)
	}
	// wrk has no way to ask for its version alone, and fails after this one.
	text, _ := exec.CommandContext(ctx, program, "-v").CombinedOutput()
	version := "wrk"
	if fields := strings.Fields(string(text)); len(fields) > 1 && fields[0] == "wrk" {
		version += " " + fields[1]
	}
	return &loader{path: program, version: version}, nil
}

// raiseFileLimit lets this program's children open n sockets and then some.
func raiseFileLimit(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	want := uint64(n) + 256
	if limit.Max < want {
		return fmt.Errorf("%d connections need %d open files, and the hard limit is %d", n, want, limit.Max)
	}
	// The runtime has raised its own limit and would give children the old one.
	// To set it here keeps it for them.
	limit.Cur = min(max(want, limit.Cur), limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	return nil
}

// A load is what wrk has seen.
type load struct {
	requests uint64 // answered
	failed   uint64 // of those, with a status other than 2xx or 3xx
	sockets  uint64 // errors of connections, and answers that came too late
	duration time.Duration
	p50, p99 time.Duration
}

// run loads the server at addr. Readings have times from baseUnixMs on.
func (l *loader) run(ctx context.Context, addr string, connections int, d time.Duration, baseUnixMs int64) (load, error) {
	ctx, cancel := context.WithTimeout(ctx, d+loadGrace)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.path, "-t1", "-c"+strconv.Itoa(connections), fmt.Sprintf("-d%ds", int(d.Seconds())),
		"--timeout", fmt.Sprintf("%ds", int(answerTimeout.Seconds())), "-s", l.script,
		"http://"+addr+path, "--", strconv.FormatInt(baseUnixMs, 10))
	text, err := cmd.CombinedOutput()
	if err != nil {
		return load{}, fmt.Errorf("run wrk: %w\n%s", err, text)
	}
	return parseLoad(string(text))
}

var resultLine = regexp.MustCompile(`(?m)^result requests=(\d+) duration_us=(\d+) p50_us=(\d+) p99_us=(\d+) failed=(\d+) sockets=(\d+)$`)

// parseLoad reads the line that the script's done has written.
func parseLoad(text string) (load, error) {
	m := resultLine.FindStringSubmatch(text)
	if m == nil {
		return load{}, fmt.Errorf("read wrk's result: there is none in:\n%s", text)
	}
	var n [6]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(m[i+1], 10, 63); err != nil {
			return load{}, fmt.Errorf("read wrk's result: %w", err)
		}
	}
	micro := func(v uint64) time.Duration { return time.Duration(v) * time.Microsecond }
	return load{requests: n[0], duration: micro(n[1]), p50: micro(n[2]), p99: micro(n[3]), failed: n[4], sockets: n[5]}, nil
}

// check returns an error if a figure of l would be a figure of failures.
func (l *load) check() error {
	if l.requests == 0 || l.failed > 0 || l.sockets > 0 {
		return fmt.Errorf("of %d answers %d were refusals, and there were %d errors of connections", l.requests, l.failed, l.sockets)
	}
	return nil
}
