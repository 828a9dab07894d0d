package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 40 * time.Second // Pulsegate drains for 30 s at most
)

// A process is a server that this program has started.
type process struct {
	cmd           *exec.Cmd
	public, admin string // addresses
	ended         chan error
}

var listening = regexp.MustCompile(`^listening addr=(\S+) listener=(public|admin)$`)

// startServer starts a server and waits until it listens on both of its listeners.
func startServer(ctx context.Context, path string, args []string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), "GOMEMLIMIT="+strconv.Itoa(memoryLimit))
	// In a group of its own, a key that interrupts this program does not reach it: it
	// is stopped in order. If this program is killed, the kernel asks it to end.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	found := make(chan [2]string, 2)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				found <- [2]string{m[2], m[1]}
			}
		}
		io.Copy(io.Discard, stderr) // a line that is too long ends the Scanner
		p.ended <- p.cmd.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for p.public == "" || p.admin == "" {
		select {
		case one := <-found:
			if one[0] == "public" {
				p.public = one[1]
			} else {
				p.admin = one[1]
			}
		case err := <-p.ended:
			return nil, fmt.Errorf("start server: it ended: %w", err)
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("start server: it does not listen: %w", ctx.Err()), p.stop())
		}
	}
	return p, nil
}

// stop asks the server to end, waits, and kills it if it does not.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("stop server: %w", err)
		}
		return nil
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("stop server: killed after %v: %w", stopTimeout, <-p.ended)
	}
}

// A usage is what a process has used so far.
type usage struct {
	cpu          time.Duration // user and system
	peakRSSBytes int64
}

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every architecture that
// Go runs on (proc_pid_stat(5)).
const tick = time.Second / 100

func (p *process) usage() (usage, error) {
	var u usage
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return u, fmt.Errorf("read CPU time: %w", err)
	}
	// The second field is the program's name in parentheses, and may hold anything.
	// From field 14 on stand utime and stime.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("read CPU time: %w", err)
		}
		u.cpu += time.Duration(n) * tick
	}
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return u, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return u, fmt.Errorf("read memory: %w", err)
			}
			u.peakRSSBytes = kilobytes << 10
		}
	}
	return u, nil
}
