package deploy_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// systemd is a system manager in namespaces of its own, with the service pulsegate.service. It
// shares the network of the machine.
type systemd struct {
	t   *testing.T
	cmd *exec.Cmd
	dir string // of files that the manager and the test share
}

// boot is run as process 1 of the namespaces. Its arguments are the program and the directory that
// holds the unit, its drop-in and its settings. The program is bound to a path that PrivateTmp does
// not hide.
const boot = `set -e
mount --make-rprivate /
mount -t proc proc /proc
for d in /run /var/lib /etc/systemd/system; do mount -t tmpfs tmpfs $d; done
mkdir -p /run/systemd/system /etc/systemd/system/pulsegate.service.d
touch /run/pulsegate
mount --bind "$1" /run/pulsegate
cp "$2"/*.service /etc/systemd/system/
cp "$2/test.conf" /etc/systemd/system/pulsegate.service.d/
printf '[Unit]\nDefaultDependencies=no\n' >/etc/systemd/system/test.target
container=test exec /lib/systemd/systemd --system --unit=test.target --show-status=0 --log-target=console`

// startSystemd starts a system manager with the unit of the repository, whose server listens on addr, and on adminAddr
// for administration. others are further units, by name.
func startSystemd(t *testing.T, addr, adminAddr string, others map[string]string) *systemd {
	t.Helper()
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil || os.Geteuid() != 0 {
		missing(t, "the test needs root and Debian's package systemd")
	}
	s := &systemd{t: t, dir: t.TempDir()}
	// Only the program, the user and the times differ from those of an installation.
	for name, text := range map[string]string{
		"pulsegate.service": strings.ReplaceAll(read(t, filepath.Join(root, "deploy/systemd/pulsegate.service")),
			"/usr/bin/pulsegate", "/run/pulsegate"),
		"test.conf": fmt.Sprintf(
			"[Unit]\nDefaultDependencies=no\n[Service]\nUser=nobody\nGroup=nogroup\nRestartSec=100ms\nWatchdogSec=3\n"+
				"StandardError=append:%s\nExecStart=\nExecStart=/run/pulsegate serve --addr=%s --admin-addr=%s\n",
			filepath.Join(s.dir, "log"), addr, adminAddr),
	} {
		try(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644))
	}
	for name, text := range others {
		try(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644))
	}
	s.cmd = exec.Command("/bin/sh", "-c", boot, "sh", program(t), s.dir)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWCGROUP, Pdeathsig: syscall.SIGKILL}
	var console bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &console, &console
	try(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // with process 1 all others of the namespace end
		_ = s.cmd.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			t.Logf("the manager:\n%s\nthe server:\n%s", console.Bytes(), log)
		}
	})
	s.await("the manager runs", func() bool { _, err := s.try("show", "--property=Version"); return err == nil })
	return s
}

// try calls systemctl.
func (s *systemd) try(args ...string) (string, error) {
	args = append([]string{"--target=" + strconv.Itoa(s.cmd.Process.Pid), "--mount", "--pid", "systemctl"}, args...)
	out, err := exec.Command("nsenter", args...).CombinedOutput()
	return string(out), err
}

func (s *systemd) systemctl(args ...string) {
	s.t.Helper()
	if out, err := s.try(args...); err != nil {
		s.t.Fatalf("systemctl %v: %v\n%s", args, err, out)
	}
}

// property returns a property of the service.
func (s *systemd) property(name string) string {
	out, err := s.try("show", "pulsegate.service", "--value", "--property="+name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

func (s *systemd) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			out, _ := s.try("status", "--no-pager", "pulsegate.service")
			s.t.Fatalf("waited in vain until %s\n%s", what, out)
		}
	}
}

// restarts returns how often the manager has started the service again.
func (s *systemd) restarts() int {
	n, _ := strconv.Atoi(s.property("NRestarts"))
	return n
}

// awaitActive waits until the service runs and was started again at least n times.
func (s *systemd) awaitActive(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("the server runs after %d restarts", n), func() bool {
		return s.restarts() >= n && s.property("ActiveState") == "active" // in this order: it was active before
	})
}

// pid returns the server's process as the test sees it.
func (s *systemd) pid() (found int) {
	s.t.Helper()
	s.await("the server's process is found", func() bool {
		inside := s.property("MainPID")
		// pgrep fails if there is no such process yet.
		out, _ := exec.Command("pgrep", "--ns", strconv.Itoa(s.cmd.Process.Pid), "--nslist", "pid", "-f",
			"^/run/pulsegate serve").Output()
		for pid := range strings.FieldsSeq(string(out)) {
			status, _ := os.ReadFile(filepath.Join("/proc", pid, "status")) // it may have ended
			for line := range strings.Lines(string(status)) {
				if ids, ok := strings.CutPrefix(line, "NSpid:"); ok && strings.HasSuffix(strings.TrimSpace(ids), "\t"+inside) {
					found, _ = strconv.Atoi(pid)
				}
			}
		}
		return found != 0
	})
	return found
}

// TestRestarts checks, under a real systemd, that the server is started again after whatever a new
// start may mend, and only then. Go ends a process with status 2 after a panic, a fatal error and
// signals that dump goroutines, so this status must not mean wrong usage.
func TestRestarts(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	defer held.Close()
	s := startSystemd(t, held.Addr().String(), "", nil)

	// The port is held for more starts than systemd permits by default, which are 5.
	const starts = 7
	s.systemctl("start", "--no-block", "pulsegate.service")
	s.await("the server was started often", func() bool { return s.restarts() >= starts })
	try(t, held.Close())
	s.awaitActive(starts)

	if limits := read(t, fmt.Sprintf("/proc/%d/limits", s.pid())); !strings.Contains(limits,
		"Max core file size        0                    0 ") {
		t.Errorf("a core dump would hold readings:\n%s", limits)
	}
	for _, signal := range []syscall.Signal{syscall.SIGABRT, syscall.SIGSEGV} {
		before := s.restarts()
		try(t, syscall.Kill(s.pid(), signal))
		s.awaitActive(before + 1)
	}

	// A server that hangs: the watchdog sends SIGABRT, and continues a stopped process to receive it.
	before := s.restarts()
	try(t, syscall.Kill(s.pid(), syscall.SIGSTOP))
	s.awaitActive(before + 1)

	// No thread can be created.
	before = s.restarts()
	s.dropIn("[Service]\nLimitNPROC=1\n")
	try(t, syscall.Kill(s.pid(), syscall.SIGKILL))
	s.await("the server was started without threads", func() bool { return s.restarts() >= before+3 })
	if log := read(t, filepath.Join(s.dir, "log")); !strings.Contains(log, "failed to create new OS thread") {
		t.Error("a thread could be created")
	}
	s.dropIn("")
	s.awaitActive(before + 3)

	// Wrong usage is not mended by a restart.
	s.dropIn("[Service]\nEnvironment=PULSEGATE_MAX_CONNS=many\n")
	s.systemctl("stop", "pulsegate.service")
	if out, err := s.try("start", "pulsegate.service"); err == nil {
		t.Errorf("the server starts with a wrong setting: %s", out)
	}
	if state, status, n := s.property("ActiveState"), s.property("ExecMainStatus"), s.restarts(); state != "failed" ||
		status != "64" || n != 0 {
		t.Errorf("after wrong usage the service is %s with status %s and %d restarts, want failed, 64 and 0",
			state, status, n)
	}
}

// dropIn sets a second drop-in of the service, or removes it.
func (s *systemd) dropIn(text string) {
	s.t.Helper()
	const path = "/etc/systemd/system/pulsegate.service.d/z.conf"
	cmd := exec.Command("nsenter", "--target="+strconv.Itoa(s.cmd.Process.Pid), "--mount", "tee", path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("write %s: %v\n%s", path, err, out)
	}
	s.systemctl("daemon-reload")
}
