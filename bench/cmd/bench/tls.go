package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Names of contestants over TLS.
const (
	fullLane = "full lane"
	proxy    = "nginx"
	alone    = "crypto/tls alone"
)

// shaking is the mode of the program peer that makes handshakes only.
const shaking = "tlshandshake"

// handshakeRatio is a goal.
const handshakeRatio = "full handshakes per CPU time / those of " + alone

// tlsContestants returns the servers that are measured over TLS, with a token in every
// request.
func tlsContestants() []contestant {
	all := []contestant{
		{name: report.Floor, peer: "tlsfloor",
			what: "epoll loop and crypto/tls, one read and one fixed write, nothing parsed", stores: "no"},
		{name: "nethttp", peer: "nethttp", what: "net/http with crypto/tls, fixed answer, nothing decoded", stores: "no"},
		{name: fullLane, what: "`pulsegate serve --fast-lane=off`", stores: "durable", flags: []string{"--fast-lane=off"}},
		{name: proxy, what: "nginx, `proxy_pass` to `pulsegate serve` without TLS; with the CPU of both", stores: "durable",
			nginx: true},
		pulsegate(),
	}
	for i := range all {
		all[i].tls = true
	}
	return all
}

// measureTLS measures the servers over TLS.
func (c *ingestCommand) measureTLS(ctx context.Context) error {
	all := tlsContestants()
	r, err := c.singles(ctx, "bench-ingest", all, report.Floor, closedLoop+
		"\n\nTLS 1.3, a certificate with a key on P-256, and a token in every request. The first seconds of each load, "+
		"with the handshakes, count for the latencies alone.")
	if err != nil {
		return err
	}
	r.Goals = c.goals(r, 1000,
		ownBar(1000, "CPU per request", "cpu", report.Floor, 1.5), ownBar(1000, "CPU per request", "cpu", "nethttp", 0.8),
		ownBar(1000, "CPU per request", "cpu", fullLane, 0.5), ownBar(1000, "CPU per request", "cpu", proxy, 0.6),
	)
	handshakes := &report.Table{Columns: []report.Column{{Title: "full handshakes per second of CPU", Figure: "rate",
		Format: "%.0f"}}}
	if err := compare(&c.common, handshakes, []contestant{{name: alone, peer: shaking, tls: true}, all[len(all)-1]},
		(*contestant).row,
		func(one *contestant) (report.Figures, error) { return c.handshakes(ctx, one) }); err != nil {
		return err
	}
	r.Goals = append(r.Goals,
		handshakes.Goals(report.Bar{What: handshakeRatio, Row: report.Own, Base: alone, Figure: "rate", AtLeast: true,
			Limit: 0.85, Format: "%.2f"})...)
	return c.write("tls", r)
}

// shakers is the number of handshakes under way at one time.
const shakers = 8

// handshakes measures how many full handshakes a new server makes in a second of CPU time.
func (c *ingestCommand) handshakes(ctx context.Context, one *contestant) (_ report.Figures, err error) {
	s, err := c.start(ctx, one)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var n uint64
	nodes, _ := s.pids()
	cpu, err := cpuDuring(nodes, func() (err error) {
		n, err = shakeHands(ctx, s.nodes[0].public, c.duration())
		return err
	})
	return report.Figures{"rate": float64(n) / cpu.Seconds()}, err
}

// shakeHands makes full handshakes for a time, each on a new connection, and returns how many
// have succeeded.
func shakeHands(ctx context.Context, addr string, d time.Duration) (uint64, error) {
	end := time.Now().Add(d)
	var n atomic.Uint64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range shakers {
		wg.Go(func() {
			dialer := &net.Dialer{Timeout: answerTimeout}
			for time.Now().Before(end) && ctx.Err() == nil {
				c, err := tls.DialWithDialer(dialer, "tcp", addr,
					&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
				if err != nil {
					failed.Store(&err)
					return
				}
				n.Add(1)
				tcp := c.NetConn().(*net.TCPConn)
				_ = tcp.SetLinger(0) // no port stays in TIME_WAIT
				tcp.Close()
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, fmt.Errorf("make a handshake: %w", *err)
	}
	if n.Load() == 0 {
		return 0, fmt.Errorf("make handshakes: none within %v", d)
	}
	return n.Load(), nil
}
