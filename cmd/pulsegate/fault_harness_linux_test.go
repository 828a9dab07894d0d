package main_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
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

// Fault tests share one oracle. The load is a separate process, pulsegate sim. It writes what it
// sends and what is acknowledged to a ledger on a file system that the fault does not affect.
// After the fault and a restart, pulsegate sim verify compares the store with the ledger: every
// acknowledged reading is stored exactly once with its values, unanswered ones may be stored, and
// nothing else is.

// A lane is a value of --fast-lane.
type lane string

// The lanes.
const (
	fastLane lane = "on"
	fullLane lane = "off"
)

var bothLanes = flag.Bool("both-lanes", false,
	"play faults of what both lanes share on both, not on one of them at random")

// onBothLanes runs a fault test on a server with the fast lane and on one without it.
func onBothLanes(t *testing.T, test func(t *testing.T, lane lane)) {
	t.Helper()
	onLanes(t, test, fastLane, fullLane)
}

// onEitherLane runs a test of a fault of the store, which both lanes share, on one of them. With -both-lanes (make
// exhaustive) it is onBothLanes.
func onEitherLane(t *testing.T, test func(t *testing.T, lane lane)) {
	t.Helper()
	chosen := []lane{fastLane, fullLane}
	if !*bothLanes {
		chosen = chosen[rand.IntN(2):][:1]
	}
	onLanes(t, test, chosen...)
}

func onLanes(t *testing.T, test func(t *testing.T, lane lane), chosen ...lane) {
	t.Helper()
	skipIfShort(t)
	t.Parallel()
	for _, lane := range chosen {
		t.Run("fast lane "+string(lane), func(t *testing.T) { test(t, lane) })
	}
}

// A harness is a data directory with its server and loads. Its methods end the test when a check
// fails. They must be called from the test's goroutine.
type harness struct {
	testing.TB
	bin     string
	lane    lane
	dir     string   // data directory
	scratch string   // on a file system that the fault does not affect
	addr    string   // of every server of this harness, so that a load finds the next one
	mqtt    string   // likewise, of the MQTT listener; empty: none
	mllp    string   // likewise, of the MLLP listener; empty: none
	args    []string // of every server of this harness
	certs   string   // directory of the servers' certificate and its CA; empty: no TLS
	signs   []string // the flag that defines signs of the user's own for servers and loads; empty: none

	server *process
	loads  []*load
}

// newHarness returns a harness without a server.
func newHarness(t testing.TB, lane lane, args ...string) *harness {
	t.Helper()
	return newHarnessIn(t, filepath.Join(t.TempDir(), "data"), lane, args...)
}

// newHarnessIn returns a harness with a given data directory.
func newHarnessIn(t testing.TB, dir string, lane lane, args ...string) *harness {
	t.Helper()
	return &harness{TB: t, bin: program(t), lane: lane, dir: dir, scratch: t.TempDir(), addr: porttest.Addr(t), args: args}
}

// serveCommand returns the command line of a server on b.
func (b *harness) serveCommand(args ...string) []string {
	line := []string{b.bin, "serve", "--addr=" + b.addr, "--admin-addr=", "--data=" + b.dir, "--min-free-bytes=-1",
		anyTime, "--fast-lane=" + string(b.lane)}
	if b.certs != "" {
		line = append(line, certified(b.certs)...)
	}
	if b.mqtt != "" {
		line = append(line, "--mqtt-addr="+b.mqtt)
	}
	if b.mllp != "" {
		line = append(line, "--mllp-addr="+b.mllp)
	}
	return slices.Concat(line, b.signs, b.args, args)
}

// measureMore makes all servers of this harness have a sign of the user's own, and all loads measure it.
func (b *harness) measureMore() {
	b.Helper()
	file := filepath.Join(b.scratch, "signs.toml")
	writeTo(b, file, []byte(ownFile))
	b.signs = []string{"--signs=" + file}
}

// secure makes all servers of this harness use TLS, and all loads.
func (b *harness) secure() {
	b.Helper()
	b.certs = b.TempDir()
	writeCertificates(b, b.certs)
}

// target returns the flags of a client of this harness.
func (b *harness) target() []string {
	if b.certs == "" {
		return []string{"--target=http://" + b.addr}
	}
	return []string{"--target=https://" + b.addr, "--ca=" + filepath.Join(b.certs, "ca.pem")}
}

// mqttTarget returns the flag of a load over MQTT.
func (b *harness) mqttTarget() string {
	if b.certs == "" {
		return "--mqtt=mqtt://" + b.mqtt
	}
	return "--mqtt=mqtts://" + b.mqtt
}

// mllpTarget returns the flag of a load over MLLP.
func (b *harness) mllpTarget() string {
	if b.certs == "" {
		return "--mllp=mllp://" + b.mllp
	}
	return "--mllp=mllps://" + b.mllp
}

// start starts the next server and waits until it listens.
func (b *harness) start(args ...string) { b.startUnder(nil, args...) }

// startUnder starts a server through another command, such as strace, which must keep the server
// in the started process.
func (b *harness) startUnder(wrapper []string, args ...string) {
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

// measured matches values of vital signs in the output of a server.
var measured = regexp.MustCompile(`(_mmhg|_pct|_bpm|_mk)\\?"?[=: ]+[0-9]`)

// watchLog checks at the end of the test that no server has logged a measured value.
//
// Seen to fail with the mutant log-a-reading.
func watchLog(t testing.TB, p *process) {
	t.Cleanup(func() {
		if found := measured.FindString(p.stderr()); found != "" {
			t.Errorf("the server logs a measured value: %s...", found[:len(found)-1])
		}
	})
}

// ended waits until the server has exited and returns its exit code, or -1 after a signal.
func (b *harness) ended() int {
	b.Helper()
	return b.server.ended()
}

// term sends SIGTERM and checks that the server exits cleanly.
func (b *harness) term() {
	b.Helper()
	b.server.stopCleanly()
}

// check runs pulsegate check on the directory of a stopped server.
func (b *harness) check() {
	b.Helper()
	if out, errs, code := output(b, b.bin, "check", b.dir); code != 0 {
		b.Fatalf("pulsegate check: exit code %d\n%s%s", code, out, errs)
	}
}

// finish checks that the store is what the ledgers of the loads say and that something was acknowledged, stops the
// server and checks its directory.
func (b *harness) finish() {
	b.Helper()
	if b.verify() == 0 {
		b.Error("nothing was acknowledged")
	}
	b.term()
	b.check()
}

// A load is a running pulsegate sim with a ledger.
type load struct {
	b           *harness
	cmd         *exec.Cmd
	ledger      string
	cut         bool // the ledger has no end, because the process was killed
	ended       chan struct{}
	out, stderr bytes.Buffer // valid after ended
}

// load starts a load on the address of b. It retries unanswered requests for a long time.
func (b *harness) load(args ...string) *load {
	b.Helper()
	l := &load{b: b, ledger: filepath.Join(b.scratch, fmt.Sprintf("%d.ledger", len(b.loads))), ended: make(chan struct{})}
	l.cmd = exec.Command(b.bin,
		slices.Concat([]string{"sim", "run", "--ledger=" + l.ledger, "--json", "--threads=1", "--tries=1000",
			"--patience=60s"}, b.signs, b.target(), args)...)
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.stderr
	endWithTest(l.cmd)
	try(b, l.cmd.Start())
	go func() {
		defer close(l.ended)
		_ = l.cmd.Wait() // ProcessState has the result
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

// over reports whether the load has exited.
func (l *load) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// acknowledged returns the number of answered requests in the ledger.
func (l *load) acknowledged() int {
	text, err := os.ReadFile(l.ledger)
	try(l.b, err)
	return bytes.Count(text, []byte("\nA "))
}

// awaitAcknowledged waits until this many requests were answered.
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

// awaitSent waits until the load has sent a request, and reports whether it has: it exits when it
// cannot reach the server.
func (l *load) awaitSent() bool {
	l.b.Helper()
	sent := false
	l.b.server.await("the load begins to send", func() bool {
		over := l.over()
		text, err := os.ReadFile(l.ledger)
		try(l.b, err)
		sent = bytes.Contains(text, []byte("\nS "))
		return sent || over
	})
	return sent
}

// kill ends the load with SIGKILL. The ledger has every answer that the load read some
// milliseconds before.
func (l *load) kill() {
	select {
	case <-l.ended:
		return
	default:
	}
	l.cut = true
	_ = l.cmd.Process.Kill() // it may have exited already
	<-l.ended
}

// settle waits until the load has written its last answers to the ledger, and kills it. It is
// called after the server has exited. Answers that are not written in time are not required of
// the store, so the time does not affect the verdict.
func (l *load) settle() {
	time.Sleep(50 * time.Millisecond)
	l.kill()
}

// wait waits for the end of the load and returns its report. All its requests must have been
// answered in the end, as docs/problems.md describes.
func (l *load) wait() *sim.Report {
	l.b.Helper()
	select {
	case <-l.ended:
	case <-time.After(3 * polltest.Patience): // the load gives up before
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

// verify compares the store with the ledgers of all loads so far, and returns the number of
// acknowledged readings found.
func (b *harness) verify() (acknowledged uint64) {
	b.Helper()
	for _, l := range b.loads {
		v := l.verify()
		acknowledged += v.Acknowledged
	}
	return acknowledged
}

// verify compares the store with the ledger of one load.
func (l *load) verify() *sim.Verification {
	l.b.Helper()
	args := append([]string{"sim", "verify", l.ledger, "--json"}, l.b.target()...)
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

// strace returns the command that runs a server with faults injected into its system calls, which
// are traced to the file log. The server remains the direct child of the test, and is killed with
// the tracer.
//
// strace counts invocations per thread. Go chooses the thread that syncs, so "the 9th" is the 9th
// of some thread.
func strace(t testing.TB, log, inject string) []string {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		unable(t, "strace is needed: %v", err)
	}
	line := []string{"strace", "-D", "-f", "-qq", "-y", "-e", "signal=none", "-o", log,
		"-e", "trace=fdatasync,fsync", "-e", "inject=" + inject}
	// With a seccomp filter the server stops only at traced system calls. strace 6.1 then injects no
	// signals.
	if !strings.Contains(inject, "signal=") {
		line = append(line, "--seccomp-bpf")
	}
	return line
}

// tamper attaches strace to the running server, which injects faults into its system calls until
// heal is called.
func (b *harness) tamper(inject string) (heal func()) {
	b.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		unable(b, "strace is needed: %v", err)
	}
	log := filepath.Join(b.scratch, "tampered")
	cmd := exec.Command("strace", "-f", "-p", strconv.Itoa(b.server.cmd.Process.Pid),
		"-e", "signal=none", "-e", "trace=fdatasync", "-e", "inject="+inject)
	stderr, err := os.Create(log)
	try(b, err)
	cmd.Stderr = stderr
	try(b, cmd.Start())
	heal = sync.OnceFunc(func() {
		// The kernel releases what a dead tracer held. strace does not detach from a process that was
		// killed.
		_ = cmd.Process.Kill() // it may have exited with the server
		_ = cmd.Wait()
		_ = stderr.Close()
	})
	b.Cleanup(heal)
	var trace string
	polltest.Until(b, "strace attaches or fails", func() bool {
		text, err := os.ReadFile(log)
		try(b, err)
		trace = string(text)
		return strings.Contains(trace, "attach")
	})
	if !strings.Contains(trace, " attached") {
		unable(b, "strace cannot attach to a process: %s", trace)
	}
	return heal
}

// log returns the newest file of the write-ahead log and its size.
func (b *harness) log() (name string, bytes int64) {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(b.dir, "*.log"))
	if err != nil || len(names) == 0 {
		b.Fatalf("%s has no log: %v", b.dir, err)
	}
	name = slices.MaxFunc(names, strings.Compare)
	info, err := os.Stat(name)
	try(b, err)
	return name, info.Size()
}

// awaitLog waits until the log has grown.
func (b *harness) awaitLog(bytes int64) {
	b.Helper()
	b.server.await("something is written to the log", func() bool {
		_, now := b.log()
		return now > bytes
	})
}

// losePower stops server and disk at the same moment, as a power loss does, and mounts what is
// on the disk.
//
// The server is stopped first. Shutting down an ext4 file system takes time, and a sync in
// progress may then return as if it had succeeded (seen with Linux 6.18, in one of five
// shutdowns). A running server would acknowledge readings that it could not acknowledge after a
// real power loss.
func (b *harness) losePower(d *disk) {
	b.Helper()
	b.server.signal(syscall.SIGSTOP)
	b.server.await("it is stopped", func() bool { return !b.server.running() })
	d.cutPower()
	b.server.kill()
	d.revive()
}

// running reports whether a thread of a stopped process is still in user space, or may return to
// it.
func (p *process) running() bool {
	p.t.Helper()
	dir := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	tasks, err := os.ReadDir(dir)
	try(p.t, err)
	for _, task := range tasks {
		text, err := os.ReadFile(filepath.Join(dir, task.Name(), "stat"))
		if err != nil {
			continue // it has exited
		}
		_, rest, _ := strings.Cut(string(text), ") ") // after the name
		// T: stopped. D: waiting in the kernel, and stopped when the wait ends.
		if !strings.HasPrefix(rest, "T") && !strings.HasPrefix(rest, "D") {
			return true
		}
	}
	return false
}

// post sends a body on a new connection and returns the answer. The full lane serves chunked
// bodies on any server.
func (b *harness) post(body string, chunked bool) (status int, text string, err error) {
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
	return resp.StatusCode, strings.TrimSuffix(string(answer), "\n"), err
}

// mustPost sends a body and checks that there is an answer.
func (b *harness) mustPost(body, want string) {
	b.Helper()
	status, text, err := b.post(body, false)
	if got := fmt.Sprintf("%d %s", status, text); err != nil || got != want {
		b.Fatalf("%s is answered %s, %v; want %s", body, got, err, want)
	}
}

// readings returns the readings of a device, one line of NDJSON each.
func (b *harness) readings(device string) []string {
	b.Helper()
	switch resp, text := fetch(b, http.MethodGet,
		"http://"+b.addr+"/v1/devices/"+device+"/readings?format=ndjson&flags=false", ""); resp.StatusCode {
	case http.StatusOK:
		return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	case http.StatusNotFound:
		return nil
	default:
		b.Fatalf("readings of %s: %s %s", device, resp.Status, text)
		return nil
	}
}
