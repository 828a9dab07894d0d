package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

// Fault tests use one oracle. The load comes from pulsegate sim, which runs in a
// process of its own and writes what it sends and what is acknowledged to a ledger
// outside of the file system that the fault hits. After the fault and a restart,
// pulsegate sim verify holds the store against the ledger: every acknowledged
// reading is there, exactly once, with its values; those without an answer may be
// there or not; nothing else is there.

// A lane is a value of --fast-lane.
type lane string

// The lanes.
const (
	fastLane lane = "on"
	fullLane lane = "off"
)

// onBothLanes runs a fault test on a server with the fast lane and on one without.
func onBothLanes(t *testing.T, test func(t *testing.T, lane lane)) {
	t.Helper()
	long(t)
	for name, lane := range map[string]lane{"fast lane": fastLane, "full lane": fullLane} {
		t.Run(name, func(t *testing.T) { test(t, lane) })
	}
}

// A bed is a data directory, the server on it, and the loads that were put on it.
// Its methods end the test when something is not as it must be, and belong to the
// test's goroutine.
type bed struct {
	testing.TB
	bin     string
	lane    lane
	dir     string   // data directory
	scratch string   // outside of the file system that faults hit
	addr    string   // of every server on this bed, so that the load finds the next one
	args    []string // of every server on this bed

	server *process
	loads  []*load
}

// newBed returns a bed without a server.
func newBed(t testing.TB, lane lane, args ...string) *bed {
	t.Helper()
	return newBedIn(t, filepath.Join(t.TempDir(), "data"), lane, args...)
}

// newBedIn returns a bed with a given data directory.
func newBedIn(t testing.TB, dir string, lane lane, args ...string) *bed {
	t.Helper()
	return &bed{TB: t, bin: program(t), lane: lane, dir: dir, scratch: t.TempDir(), addr: porttest.Addr(t), args: args}
}

// serveCommand returns the command line of a server on b.
func (b *bed) serveCommand(args ...string) []string {
	line := []string{b.bin, "serve", "--addr=" + b.addr, "--admin-addr=", "--data=" + b.dir, "--min-free-bytes=-1", anyTime, "--fast-lane=" + string(b.lane)}
	return append(append(line, b.args...), args...)
}

// start starts the next server and waits until it listens.
func (b *bed) start(args ...string) { b.startUnder(nil, args...) }

// startUnder starts a server by way of another command, such as strace, which must
// leave the server in the process that is started.
func (b *bed) startUnder(wrapper []string, args ...string) {
	b.Helper()
	line := append(wrapper, b.serveCommand(args...)...)
	listeners := 1
	for _, arg := range line {
		if strings.HasPrefix(arg, "--admin-addr=") {
			listeners = 1
			if arg != "--admin-addr=" {
				listeners = 2
			}
		}
	}
	b.server = launch(b, listeners, exec.Command(line[0], line[1:]...))
	watchLog(b, b.server)
}

// measured finds values of vital signs in what a server says.
var measured = regexp.MustCompile(`(_mmhg|_pct|_bpm)\\?"?[=: ]+[0-9]`)

// watchLog sees to it that a server says no measured value, whatever befalls it.
//
// Seen to fail with the mutant log-a-reading.
func watchLog(t testing.TB, p *process) {
	t.Cleanup(func() {
		if found := measured.FindString(p.stderr()); found != "" {
			t.Errorf("the server says a measured value: %s...", found[:len(found)-1])
		}
	})
}

// ended waits until the server has ended by itself and returns its exit code, -1
// after a signal.
func (b *bed) ended() int {
	b.Helper()
	return b.server.ended()
}

// term sends SIGTERM and wants an orderly end.
func (b *bed) term() {
	b.Helper()
	if code := b.server.stop(); code != 0 {
		b.Fatalf("exit code %d after SIGTERM:\n%s", code, b.server.stderr())
	}
}

// check lets pulsegate check look at the directory of a stopped server.
func (b *bed) check() {
	b.Helper()
	if out, errs, code := output(b, b.bin, "check", b.dir); code != 0 {
		b.Fatalf("pulsegate check: exit code %d\n%s%s", code, out, errs)
	}
}

// A load is a running pulsegate sim with a ledger.
type load struct {
	b           *bed
	cmd         *exec.Cmd
	ledger      string
	cut         bool // the ledger has no end, because the process was killed
	ended       chan struct{}
	out, stderr bytes.Buffer // to be read after ended
}

// load starts a load on b's address. It tries again for long what had no answer.
func (b *bed) load(args ...string) *load {
	b.Helper()
	l := &load{b: b, ledger: filepath.Join(b.scratch, fmt.Sprintf("%d.ledger", len(b.loads))), ended: make(chan struct{})}
	l.cmd = exec.Command(b.bin, append([]string{"sim", "run", "--target=http://" + b.addr, "--ledger=" + l.ledger,
		"--json", "--threads=1", "--tries=1000", "--patience=60s"}, args...)...)
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.stderr
	if err := l.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		defer close(l.ended)
		_ = l.cmd.Wait() // its state tells
	}()
	b.Cleanup(l.kill)
	b.loads = append(b.loads, l)
	polltest.Until(b, "the load has a ledger that can be read", func() bool {
		info, err := os.Stat(l.ledger)
		if over := l.over(); over && (err != nil || info.Size() == 0) {
			b.Fatalf("the load has not begun:\n%s", &l.stderr)
		}
		return err == nil && info.Size() > 0
	})
	return l
}

// over reports whether the load has ended.
func (l *load) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// acknowledged returns how many requests the ledger has as answered.
func (l *load) acknowledged() int {
	text, err := os.ReadFile(l.ledger)
	if err != nil {
		l.b.Fatal(err)
	}
	return bytes.Count(text, []byte("\nA "))
}

// awaitAcknowledged waits until so many requests were answered.
func (l *load) awaitAcknowledged(n int) {
	l.b.Helper()
	l.b.server.await(fmt.Sprintf("%d requests are answered", n), func() bool {
		over := l.over()
		got := l.acknowledged()
		if over && got < n {
			l.b.Fatalf("the load has ended after %d answers, want %d:\n%s%s", got, n, &l.out, &l.stderr)
		}
		return got >= n
	})
}

// awaitSent waits until the load has begun to send, and reports whether it has: it
// ends when it cannot reach the server.
func (l *load) awaitSent() bool {
	l.b.Helper()
	sent := false
	l.b.server.await("the load begins to send", func() bool {
		over := l.over()
		text, err := os.ReadFile(l.ledger)
		if err != nil {
			l.b.Fatal(err)
		}
		sent = bytes.Contains(text, []byte("\nS "))
		return sent || over
	})
	return sent
}

// kill ends the load as kill -9 does. Every answer that it read is in the ledger
// if it had some milliseconds to write it down.
func (l *load) kill() {
	select {
	case <-l.ended:
		return
	default:
	}
	l.cut = true
	_ = l.cmd.Process.Kill() // it may have ended meanwhile
	<-l.ended
}

// settle gives the load the time to write down the answers that it has, and kills
// it. It is for the time after a server's end. An answer that it did not write down
// in time is not demanded of the store, so that the time is no matter of right or wrong.
func (l *load) settle() {
	time.Sleep(50 * time.Millisecond)
	l.kill()
}

// wait waits for the load's end and returns its report. The load must have been
// answered in the end, and as docs/problems.md says.
func (l *load) wait() *sim.Report {
	l.b.Helper()
	select {
	case <-l.ended:
	case <-time.After(3 * polltest.Patience): // its own patience is over by then
		l.b.Fatalf("the load does not end:\n%s", &l.stderr)
	}
	var report sim.Report
	if err := json.Unmarshal(l.out.Bytes(), &report); err != nil {
		l.b.Fatalf("report of the load: %v\n%s%s", err, &l.out, &l.stderr)
	}
	if code := l.cmd.ProcessState.ExitCode(); code != 0 {
		l.b.Fatalf("the load: exit code %d\n%s%s", code, &l.stderr, &l.out)
	}
	return &report
}

// verify holds what the server has against the ledgers of all loads so far, and
// returns how many acknowledged readings it found.
func (b *bed) verify() (acknowledged uint64) {
	b.Helper()
	for _, l := range b.loads {
		v := l.verify()
		acknowledged += v.Acknowledged
	}
	return acknowledged
}

// verify holds what the server has against the load's ledger.
func (l *load) verify() *sim.Verification {
	l.b.Helper()
	args := []string{"sim", "verify", l.ledger, "--target=http://" + l.b.addr, "--json"}
	if l.cut {
		args = append(args, "--allow-cut")
	}
	out, errs, code := output(l.b, l.b.bin, args...)
	var v sim.Verification
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		l.b.Fatalf("verify: %v, exit code %d\n%s%s", err, code, out, errs)
	}
	if code != 0 || !v.OK() {
		l.b.Fatalf("the store is not what was acknowledged: exit code %d\n%s%s", code, errs, out)
	}
	return &v
}

// unable ends a test that needs what this machine does not offer: as failed in
// CI, and elsewhere as skipped.
func unable(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// strace returns the command that lets a server run with faults injected into its
// system calls. The traced ones go to the file log. The server stays the direct
// child of the test, and ends with the tracer.
//
// Invocations are counted for each thread. Which thread syncs is Go's choice, so
// that "the 9th" is the 9th of some thread.
func strace(t testing.TB, log, inject string) []string {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		unable(t, "strace is needed: %v", err)
	}
	line := []string{"strace", "-D", "-f", "-qq", "-y", "-e", "signal=none", "-o", log,
		"-e", "trace=fdatasync,fsync", "-e", "inject=" + inject}
	// With a seccomp filter, the server stops at traced system calls only. strace
	// 6.1 then sends no signals.
	if !strings.Contains(inject, "signal=") {
		line = append(line, "--seccomp-bpf")
	}
	return line
}

// tamper attaches strace to the running server, so that from now on faults are
// injected into its system calls, until heal is called.
func (b *bed) tamper(inject string) (heal func()) {
	b.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		unable(b, "strace is needed: %v", err)
	}
	log := filepath.Join(b.scratch, "tampered")
	cmd := exec.Command("strace", "-f", "-p", strconv.Itoa(b.server.cmd.Process.Pid),
		"-e", "signal=none", "-e", "trace=fdatasync", "-e", "inject="+inject)
	stderr, err := os.Create(log)
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	heal = sync.OnceFunc(func() {
		// The kernel lets go of what a dead tracer held. strace itself, when it is asked
		// to detach, waits for ever for a process that was killed meanwhile.
		_ = cmd.Process.Kill() // it may have ended with the server
		_ = cmd.Wait()
		_ = stderr.Close()
	})
	b.Cleanup(heal)
	var said string
	polltest.Until(b, "strace attaches, or says why it does not", func() bool {
		text, err := os.ReadFile(log)
		if err != nil {
			b.Fatal(err)
		}
		said = string(text)
		return strings.Contains(said, "attach")
	})
	if !strings.Contains(said, " attached") {
		unable(b, "strace cannot attach to a process: %s", said)
	}
	return heal
}

// log returns the newest file of the write-ahead log and its size.
func (b *bed) log() (name string, bytes int64) {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(b.dir, "*.log"))
	if err != nil || len(names) == 0 {
		b.Fatalf("%s has no log: %v", b.dir, err)
	}
	name = slices.MaxFunc(names, strings.Compare)
	info, err := os.Stat(name)
	if err != nil {
		b.Fatal(err)
	}
	return name, info.Size()
}

// awaitLog waits until the log is longer than it was.
func (b *bed) awaitLog(bytes int64) {
	b.Helper()
	b.server.await("something is written to the log", func() bool {
		_, now := b.log()
		return now > bytes
	})
}

// losePower ends server and disk at one moment, as a loss of power does, and mounts
// what it has left.
//
// The server is stopped first. The shutdown of an ext4 takes its time, and a sync that
// is under way meanwhile may return as if it had written (seen with Linux 6.18, in one
// of five shutdowns): a server that lived on would acknowledge what no power loss lets
// it acknowledge.
func (b *bed) losePower(d *disk) {
	b.Helper()
	b.server.signal(syscall.SIGSTOP)
	b.server.await("it is stopped", func() bool { return !b.server.running() })
	d.cutPower()
	b.server.kill()
	d.revive()
}

// running reports whether a thread of a process that was stopped is still outside of
// the kernel, or may get there.
func (p *process) running() bool {
	p.t.Helper()
	dir := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(filepath.Join(dir, task.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ") // behind the name
		// T: stopped. D: in a wait of the kernel, behind which it stops.
		if !strings.HasPrefix(rest, "T") && !strings.HasPrefix(rest, "D") {
			return true
		}
	}
	return false
}

// post sends a body from a connection of its own and returns the answer. Chunked
// bodies are the full lane's on any server.
func (b *bed) post(body string, chunked bool) (status int, text string, err error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+b.addr+"/v1/readings", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if chunked {
		req.ContentLength = -1
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: polltest.Patience}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// mustPost sends a body and wants an answer.
func (b *bed) mustPost(body, want string) {
	b.Helper()
	status, text, err := b.post(body, false)
	if got := fmt.Sprintf("%d %s", status, text); err != nil || got != want {
		b.Fatalf("%s is answered %s, %v; want %s", body, got, err, want)
	}
}

// readings returns what the server has of a device, a line of NDJSON each.
func (b *bed) readings(device string) []string {
	b.Helper()
	resp, err := http.Get("http://" + b.addr + "/v1/devices/" + device + "/readings?format=ndjson&flags=false")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound {
		b.Fatalf("readings of %s: %d %s, %v", device, resp.StatusCode, text, err)
	}
	if resp.StatusCode == http.StatusNotFound {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// peakMemory returns the largest memory that the server has had resident, in bytes.
func (b *bed) peakMemory() int {
	b.Helper()
	return procStatus(b, b.server.cmd.Process.Pid, "VmHWM") << 10
}

// procStatus returns a number of /proc/PID/status.
func procStatus(t testing.TB, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("/proc/%d/status does not show %s", pid, name)
	return 0
}
