package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

	// lead is the first part of a load over TLS, in which its connections complete their
	// handshakes. It does not count.
	lead time.Duration
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

// run loads the server at addr, with TLS and a token if s is not nil. The times of readings start
// at baseUnixMs. began is called when the load begins to count.
func (w *wrk) run(ctx context.Context, addr string, s *secure, connections int, d time.Duration, baseUnixMs int64,
	began func()) (load, error) {
	scheme, token, lead := "http://", "", time.Duration(0)
	if s != nil {
		scheme, token, lead = "https://", s.token, w.lead+time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, d+lead+loadGrace)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.path, "-t1", "-c"+strconv.Itoa(connections),
		fmt.Sprintf("-d%ds", int((d+lead).Seconds())),
		"--timeout", fmt.Sprintf("%ds", int(answerTimeout.Seconds())), "-s", w.script,
		scheme+addr+path, "--", strconv.FormatInt(baseUnixMs, 10), token)
	start := time.Now().Add(lead).Truncate(time.Second) // the script knows full seconds alone
	if lead > 0 {
		cmd.Args = append(cmd.Args, strconv.FormatInt(start.Unix(), 10))
	} else {
		began()
	}
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		return load{}, fmt.Errorf("start wrk: %w", err)
	}
	var before time.Duration // CPU time of the lead
	counts := make(chan struct{})
	timer := time.AfterFunc(time.Until(start), func() {
		defer close(counts)
		if lead > 0 {
			before, _ = cpuTime(cmd.Process.Pid) // if wrk has failed, Wait returns the error
			began()
		}
	})
	err := cmd.Wait()
	if !timer.Stop() {
		<-counts
	}
	if err != nil {
		return load{}, fmt.Errorf("run wrk: %w\n%s", err, text.Bytes())
	}
	l, err := parseLoad(text.String())
	if lead > 0 {
		l.duration = time.Since(start)
	}
	l.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() - before
	return l, err
}

// parseLoad parses the line written by done.lua.
func parseLoad(text string) (load, error) {
	_, result, _ := strings.Cut("\n"+text, "\nresult ")
	var r struct {
		Requests, Before, Failed, Sockets uint64
		Duration, P50, P99                time.Duration // in µs
	}
	if err := json.NewDecoder(strings.NewReader(result)).Decode(&r); err != nil {
		return load{}, fmt.Errorf("read wrk's result: %w in:\n%s", err, text)
	}
	return load{requests: r.Requests - r.Before, before: r.Before, duration: r.Duration * time.Microsecond,
		p50: r.P50 * time.Microsecond, p99: r.P99 * time.Microsecond, failed: r.Failed, sockets: r.Sockets}, nil
}

// check returns an error if there were failures, which would falsify the figures.
func (l *load) check() error {
	if l.requests == 0 || l.failed > 0 || l.sockets > 0 {
		return fmt.Errorf("of %d answers %d were failures, and there were %d connection errors", l.requests,
			l.failed, l.sockets)
	}
	return nil
}
