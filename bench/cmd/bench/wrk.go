package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	path = "/v1/readings"

	answerTimeout = 10 * time.Second // per request, passed to wrk
	loadGrace     = 30 * time.Second // time for a load generator to end after its duration
)

// A wrk is the load generator wrk with a script.
type wrk struct {
	path, version, script string

	secure *secure // nil means no TLS and no token
	lead   *lead   // nil means the whole load counts
}

// A lead is the first part of a load, in which its connections complete their handshakes.
// It does not count.
type lead struct {
	length time.Duration
	ended  func() // called at its end
}

//go:embed done.lua
var doneScript string

// findWrk finds wrk and writes a script for it to dir. It does not install wrk; make
// setup does.
func findWrk(ctx context.Context, dir, script string) (*wrk, error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return nil, fmt.Errorf("find load generator: %w; `make setup` installs wrk (https://github.com/wg/wrk)", err)
	}
	w := &wrk{path: program, version: "wrk", script: filepath.Join(dir, "wrk.lua")}
	if err := os.WriteFile(w.script, []byte(script+doneScript), 0o600); err != nil {
		return nil, fmt.Errorf("write script: %w", err)
	}
	// wrk -v prints the version but exits with an error.
	text, _ := exec.CommandContext(ctx, program, "-v").CombinedOutput()
	if fields := strings.Fields(string(text)); len(fields) > 1 && fields[0] == "wrk" {
		w.version += " " + fields[1]
	}
	return w, nil
}

// raiseFileLimit raises the limit on open files so that children of this program can
// open n sockets.
func raiseFileLimit(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	want := uint64(n) + 256
	if limit.Max < want {
		return fmt.Errorf("%d connections need %d open files, but the hard limit is %d", n, want, limit.Max)
	}
	// The Go runtime has raised its own limit but restores the old one for children,
	// unless it is set explicitly.
	limit.Cur = min(max(want, limit.Cur), limit.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	return nil
}

// A load is the result of wrk.
type load struct {
	requests uint64 // answered
	before   uint64 // answered in the lead
	failed   uint64 // of these, with a status other than 2xx or 3xx
	sockets  uint64 // connection errors and late answers
	duration time.Duration
	p50, p99 time.Duration // with those of the lead
	cpu      time.Duration // CPU time of wrk, without the lead
}

// run loads the server at addr. The times of readings start at baseUnixMs.
func (w *wrk) run(ctx context.Context, addr string, connections int, d time.Duration, baseUnixMs int64) (load, error) {
	ctx, cancel := context.WithTimeout(ctx, d+w.leadTime()+loadGrace)
	defer cancel()
	scheme, token := "http://", ""
	if w.secure != nil {
		scheme, token = "https://", w.secure.token
	}
	cmd := exec.CommandContext(ctx, w.path, "-t1", "-c"+strconv.Itoa(connections), fmt.Sprintf("-d%ds", int((d+w.leadTime()).Seconds())),
		"--timeout", fmt.Sprintf("%ds", int(answerTimeout.Seconds())), "-s", w.script,
		scheme+addr+path, "--", strconv.FormatInt(baseUnixMs, 10), token)
	began := time.Now()
	if w.lead != nil {
		// The script knows full seconds alone.
		began = began.Add(w.lead.length).Truncate(time.Second).Add(time.Second)
		cmd.Args = append(cmd.Args, strconv.FormatInt(began.Unix(), 10))
	}
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		return load{}, fmt.Errorf("start wrk: %w", err)
	}
	var before atomic.Int64 // CPU time of the lead
	if w.lead != nil {
		timer := time.AfterFunc(time.Until(began), func() {
			cpu, _ := cpuTime(cmd.Process.Pid) // if wrk has failed, Wait returns the error
			before.Store(int64(cpu))
			w.lead.ended()
		})
		defer timer.Stop()
	}
	if err := cmd.Wait(); err != nil {
		return load{}, fmt.Errorf("run wrk: %w\n%s", err, text.Bytes())
	}
	l, err := parseLoad(text.String())
	if w.lead != nil {
		l.duration = time.Since(began)
	}
	l.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() - time.Duration(before.Load())
	return l, err
}

// leadTime is the time by which a load is longer because of its lead.
func (w *wrk) leadTime() time.Duration {
	if w.lead == nil {
		return 0
	}
	return w.lead.length + time.Second
}

var resultLine = regexp.MustCompile(`(?m)^result requests=(\d+) duration_us=(\d+) p50_us=(\d+) p99_us=(\d+) failed=(\d+) sockets=(\d+)(?: before=(\d+))?$`)

// parseLoad parses the line written by done.lua.
func parseLoad(text string) (load, error) {
	m := resultLine.FindStringSubmatch(text)
	if m == nil {
		return load{}, fmt.Errorf("read wrk's result: it is missing in:\n%s", text)
	}
	var n [7]uint64
	for i := range n {
		if m[i+1] == "" {
			continue
		}
		var err error
		if n[i], err = strconv.ParseUint(m[i+1], 10, 63); err != nil {
			return load{}, fmt.Errorf("read wrk's result: %w", err)
		}
	}
	micro := func(v uint64) time.Duration { return time.Duration(v) * time.Microsecond }
	return load{requests: n[0] - n[6], before: n[6], duration: micro(n[1]), p50: micro(n[2]), p99: micro(n[3]), failed: n[4], sockets: n[5]}, nil
}

// check returns an error if there were failures, which would falsify the figures.
func (l *load) check() error {
	if l.requests == 0 || l.failed > 0 || l.sockets > 0 {
		return fmt.Errorf("of %d answers %d were failures, and there were %d connection errors", l.requests, l.failed, l.sockets)
	}
	return nil
}
