package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 40 * time.Second // Pulsegate drains for at most 30 s
	keptLines    = 20               // lines of a process's standard error to keep, for messages
)

var (
	listening = regexp.MustCompile(`listening addr=(\S+) listener=(public|admin)`)
	stopped   = regexp.MustCompile(`stopped stored=(\d+)`)
)

// A process is a server started by this program.
type process struct {
	cmd           *exec.Cmd
	public, admin string // addresses; "": no such listener

	found chan [2]string // address and listener
	ended chan struct{}  // closed when the process has ended and was waited for

	mu    sync.Mutex
	lines []string // last lines of its standard error
	err   error    // of Wait; set before ended is closed
}

// startOwn starts the Pulsegate in the directory programs with an empty data directory. env is
// added to this program's environment.
func startOwn(ctx context.Context, programs, data string, env []string, flags ...string) (*process, error) {
	args := append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--data=" + data}, flags...)
	cmd := exec.Command(filepath.Join(programs, report.Own), args...)
	cmd.Env = append(os.Environ(), env...)
	return start(ctx, cmd, "public", "admin")
}

// start starts a server and waits until it has logged the addresses of its listeners.
// The server has its own process group, so that an interrupt from the keyboard does not
// reach it and it can be stopped in order. If this program is killed, the kernel sends
// SIGTERM to the server.
func start(ctx context.Context, cmd *exec.Cmd, listeners ...string) (*process, error) {
	p := &process{cmd: cmd, found: make(chan [2]string, 4), ended: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go p.watch(stderr)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for len(listeners) > 0 {
		select {
		case f := <-p.found:
			*map[string]*string{"public": &p.public, "admin": &p.admin}[f[1]] = f[0]
			listeners = slices.DeleteFunc(listeners, func(l string) bool { return l == f[1] })
		case <-p.ended:
			return nil, fmt.Errorf("start %s: it ended: %s", cmd.Path, p.text())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("start %s: it does not listen: %w: %s", cmd.Path, ctx.Err(), p.text()), p.stop())
		}
	}
	return p, nil
}

// freeAddr returns a free address.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// startOn starts a server that does not log its address, and waits until it accepts connections
// there.
func startOn(ctx context.Context, addr string, cmd *exec.Cmd) (*process, error) {
	p, err := start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	p.public = addr
	return p, p.await(ctx, func(context.Context) error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// await calls ready until it returns nil. If the process ends or takes too long, it stops the process.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*startTimeout)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
			continue
		case <-p.ended:
			err = errors.New("it ended")
		case <-ctx.Done():
		}
		return errors.Join(fmt.Errorf("start %s: %w: %s", p.cmd.Path, err, p.text()), p.stop())
	}
}

// awaitOK waits until a GET of url is answered with 200.
func (p *process) awaitOK(ctx context.Context, url string) error {
	return p.await(ctx, func(ctx context.Context) error {
		_, err := exchange(ctx, http.MethodGet, url, nil, nil)
		return err
	})
}

// watch reads standard error to its end and waits for the process.
func (p *process) watch(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		line := lines.Text()
		if m := listening.FindStringSubmatch(line); m != nil {
			select {
			case p.found <- [2]string{m[1], m[2]}:
			default:
			}
		}
		p.mu.Lock()
		p.lines = append(p.lines, line)
		if len(p.lines) > keptLines {
			p.lines = slices.Delete(p.lines, 0, 1)
		}
		p.mu.Unlock()
	}
	io.Copy(io.Discard, stderr) // a line that is too long stops the Scanner
	err := p.cmd.Wait()
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	close(p.ended)
}

// text returns the last lines of standard error.
func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stored returns how many readings the server has stored, as logged at its end.
func (p *process) stored() (n uint64, ok bool) {
	if m := stopped.FindStringSubmatch(p.text()); m != nil {
		_, err := fmt.Sscan(m[1], &n)
		return n, err == nil
	}
	return 0, false
}

// stop sends SIGTERM and waits. It kills the process after a timeout.
func (p *process) stop() error { return p.stopBy(syscall.SIGTERM) }

func (p *process) stopBy(sig syscall.Signal) error {
	_ = p.cmd.Process.Signal(sig) // an error means that the process has ended
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.ended:
	case <-timeout.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("stop %s: killed after %v", p.cmd.Path, stopTimeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("stop %s: %w: %s", p.cmd.Path, p.err, strings.Join(p.lines, "\n"))
	}
	return nil
}
