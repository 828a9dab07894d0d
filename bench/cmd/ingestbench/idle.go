package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

const (
	// idleStep is how many connections are used at a time.
	idleStep = 500

	// idleSettle is the time that a server gets to give back what it holds for
	// requests.
	idleSettle = time.Second
)

// idleServers are those whose idle connections are weighed.
func idleServers() []string { return []string{"fasthttp", "nethttp", report.Own} }

// runIdle weighs idle connections.
func (b *bench) runIdle(ctx context.Context) error {
	if err := raiseFileLimit(b.cfg.idle); err != nil {
		return err
	}
	result := &report.Idle{Setting: b.setting(), Rounds: b.cfg.rounds, Connections: b.cfg.idle}
	var chosen []contestant
	for _, name := range idleServers() {
		for _, c := range b.contestants {
			if c.name == name {
				chosen = append(chosen, c)
				result.Servers = append(result.Servers, report.IdleServer{Name: c.name, What: c.what})
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*perStart*time.Duration(len(chosen)*b.cfg.rounds))
	defer cancel()
	for round := range b.cfg.rounds {
		for i := range chosen {
			run, err := b.measureIdle(ctx, &chosen[i])
			if err != nil {
				return fmt.Errorf("weigh idle connections of %s: %w", chosen[i].name, err)
			}
			fmt.Fprintf(b.out, "round %d  %-10s %5.1f MiB resident with no connection, %5.1f MiB with %d\n",
				round+1, chosen[i].name, report.MiB(run.None), report.MiB(run.All), b.cfg.idle)
			result.Servers[i].Runs = append(result.Servers[i].Runs, run)
		}
	}
	return b.write("bench-idle", result.Markdown())
}

// measureIdle starts a server, opens connections that post one reading each and
// then stay open, and stops it.
func (b *bench) measureIdle(ctx context.Context, c *contestant) (_ report.IdleRun, err error) {
	server, remove, err := b.startFresh(ctx, c, "idle")
	if err != nil {
		return report.IdleRun{}, err
	}
	defer func() { err = errors.Join(err, server.stop(), remove()) }()
	addr, pid := server.server.addr, server.server.pid()
	readings := newSingles(addr)
	// As many come and go first, so that what a server keeps of its work is not
	// taken for the price of connections.
	for came := 0; came < b.cfg.idle; came += idleStep {
		conns, err := use(ctx, addr, min(idleStep, b.cfg.idle-came), readings)
		hangUp(conns)
		if err != nil {
			return report.IdleRun{}, err
		}
	}
	var run report.IdleRun
	time.Sleep(idleSettle)
	if run.None, err = resident(pid); err != nil {
		return report.IdleRun{}, err
	}
	var all []net.Conn
	defer func() { hangUp(all) }()
	for len(all) < b.cfg.idle {
		conns, err := use(ctx, addr, min(idleStep, b.cfg.idle-len(all)), readings)
		all = append(all, conns...)
		if err != nil {
			return report.IdleRun{}, fmt.Errorf("with %d connections: %w", len(all), err)
		}
	}
	time.Sleep(idleSettle)
	if run.All, err = resident(pid); err != nil {
		return report.IdleRun{}, err
	}
	return run, nil
}

// newSingles returns a source of requests with one reading each.
func newSingles(addr string) source {
	at := time.Now().Add(-baseAge)
	return func() []byte {
		at = at.Add(time.Millisecond)
		body := fmt.Sprintf(`{"device":"wearable-idle","time":%d,"spo2_pct":97.5}`, at.UnixMilli())
		return append(form{}.head(addr, len(body)), body...)
	}
}

// use opens n connections, and posts one request over each.
func use(ctx context.Context, addr string, n int, next source) (conns []net.Conn, err error) {
	var dialer net.Dialer
	for range n {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return conns, fmt.Errorf("connect: %w", err)
		}
		conns = append(conns, conn)
		if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
			return conns, fmt.Errorf("send reading: %w", err)
		}
		if _, err := conn.Write(next()); err != nil {
			return conns, fmt.Errorf("send reading: %w", err)
		}
	}
	for _, conn := range conns {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return conns, fmt.Errorf("read answer: %w", err)
		}
		if resp.StatusCode != http.StatusOK || resp.Close {
			return conns, fmt.Errorf("answer with status %d, closes: %v", resp.StatusCode, resp.Close)
		}
	}
	return conns, nil
}

// hangUp resets connections, so that none of them lingers.
func hangUp(conns []net.Conn) {
	for _, conn := range conns {
		_ = conn.(*net.TCPConn).SetLinger(0) // it ends in any case
		conn.Close()
	}
}

var residentLine = regexp.MustCompile(`(?m)^VmRSS:\s*(\d+) kB$`)

// resident returns the resident memory of a process in bytes.
func resident(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read resident memory: %w", err)
	}
	m := residentLine.FindSubmatch(text)
	if m == nil {
		return 0, errors.New("read resident memory: unknown form of /proc/PID/status")
	}
	kilobytes, err := strconv.ParseUint(string(m[1]), 10, 50)
	if err != nil {
		return 0, fmt.Errorf("read resident memory: %w", err)
	}
	return kilobytes << 10, nil
}
