package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"golang.org/x/sys/unix"
)

// ownNamespaces runs the test process again, once, in its own mount and network namespaces, if
// it may create them: only this process and its children see what the tests mount and listen
// on.
//
// Otherwise every process that creates a mount namespace during the test, such as a container, keeps
// a copy of each mounted disk. A disk whose power was cut then survives its unmount: it is
// mounted again in its old state, without power, and every file on it gives an input/output
// error (seen in parallel with the tests of deploy/test). The README's commands also listen on
// the default addresses, which another process may use.
func ownNamespaces() error {
	const made = "OWN_NAMESPACES_MADE"
	if os.Getenv(made) != "" {
		return os.Unsetenv(made)
	}
	runtime.LockOSThread() // the namespaces belong to the thread until exec makes them the process's
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return nil // tests that need namespaces report it
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	if err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), made+"=1")); err != nil {
		return fmt.Errorf("start again in namespaces: %w", err)
	}
	return nil
}

// endWithTest makes the kernel kill a process when the test process has ended, also by a time limit: no cleanup
// follows that. strace -D runs a server in the same process.
func endWithTest(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// TestServerEndsWithTest kills a test process that has started two servers, one of them under strace.
func TestServerEndsWithTest(t *testing.T) {
	t.Parallel()
	const inside = "TEST_PROCESS_TO_KILL"
	if os.Getenv(inside) != "" {
		for _, wrapper := range [][]string{nil, strace(t, filepath.Join(t.TempDir(), "trace"), "fdatasync:delay_enter=1ms")} {
			b := newHarness(t, fastLane)
			b.startUnder(wrapper)
			fmt.Println("server", b.server.cmd.Process.Pid)
		}
		select {} // until it is killed
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestServerEndsWithTest$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1", "BUILT_PULSEGATE="+program(t), "TMPDIR="+t.TempDir())
	endWithTest(cmd)
	out, err := cmd.StdoutPipe()
	try(t, err)
	try(t, cmd.Start())
	var servers []int
	for lines := bufio.NewScanner(out); len(servers) < 2 && lines.Scan(); {
		var pid int
		if _, err := fmt.Sscanf(lines.Text(), "server %d", &pid); err == nil {
			servers = append(servers, pid)
		} else {
			t.Log(lines.Text())
		}
	}
	try(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	if len(servers) != 2 {
		t.Fatalf("%d servers were started, want 2", len(servers))
	}
	for _, pid := range servers {
		polltest.Until(t, "the server has ended", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || bytes.Contains(stat, []byte(") Z ")) // whoever inherits it may not wait for it
		})
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
