package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
	"github.com/pulsegate/pulsegate/internal/certtest"
)

// Names of contestants over TLS.
const (
	fullLane = "full lane"
	proxy    = "nginx"
)

// tlsContestants returns the servers that are measured over TLS, with a token in every
// request.
func tlsContestants() []contestant {
	return []contestant{
		{name: report.Floor, mode: "tlsfloor", what: "epoll loop and crypto/tls, one read and one fixed write, nothing parsed", stores: "no"},
		{name: "nethttp", mode: "tlsnethttp", what: "net/http with crypto/tls, fixed answer, nothing decoded", stores: "no"},
		{name: fullLane, what: "`pulsegate serve --fast-lane=off`", stores: "durable", own: true, flags: []string{"--fast-lane=off"}},
		{name: proxy, what: "nginx, `proxy_pass` to `pulsegate serve` without TLS; with the CPU of both", stores: "durable", own: true, nginx: true},
		{name: report.Own, what: "`pulsegate serve`", stores: "durable", own: true},
	}
}

// runTLS measures the servers over TLS.
func (b *ingestRun) runTLS(ctx context.Context) (err error) {
	if b.wrk, err = findWrk(ctx, b.work, ingestScript); err != nil {
		return err
	}
	if b.secure, err = newSecure(ctx, b.work, b.own()); err != nil {
		return err
	}
	b.wrk.secure = b.secure
	defer func() { b.secure = nil }()
	r := b.newReport("CPU is user and system time of the server's processes, divided by the requests that they answered. Ratios are computed within a round. " + rounded + " " + closedLoop +
		"\n\nTLS 1.3, a certificate with a key on P-256, and a token in every request. The first seconds of each load, with the handshakes, count for the latencies alone.")
	var chosen []contestant
	for _, c := range tlsContestants() {
		if len(b.Servers) > 0 && !slices.Contains(b.Servers, c.name) {
			continue
		}
		if c.nginx {
			if _, err := exec.LookPath("nginx"); err != nil {
				r.Left = append(r.Left, "nginx, because it is not installed (Debian: `apt-get install nginx-light`)")
				continue
			}
		}
		chosen = append(chosen, c)
	}
	omitted, err := b.measure(ctx, chosen)
	if err != nil {
		return err
	}
	r.Left = append(r.Left, omitted...)
	b.handshakes = &report.Table{Head: "what", Columns: []report.Column{{Title: "ratio", Figure: "ratio", Format: "%.2f"}}}
	i := slices.IndexFunc(chosen, func(c contestant) bool { return c.name == report.Own })
	for round := 0; i >= 0 && round < b.Rounds; round++ {
		if err := b.measureHandshakes(ctx, &chosen[i], round); err != nil {
			return err
		}
	}
	r.Goals = b.goals(map[int][]report.Bar{1000: {
		ownBar(1000, "CPU per request", "cpu", report.Floor, 1.5), ownBar(1000, "CPU per request", "cpu", "nethttp", 0.8),
		ownBar(1000, "CPU per request", "cpu", fullLane, 0.5), ownBar(1000, "CPU per request", "cpu", proxy, 0.6),
	}})
	r.Goals = append(r.Goals, b.handshakes.Goals(report.Bar{What: handshakeRatio, Row: handshakeRatio, Figure: "ratio", AtLeast: true, Limit: 0.85, Format: "%.2f"})...)
	return b.write(b.out, "bench-tls", r.Markdown())
}

// handshakeRatio is the name of the row of ingestRun.handshakes.
const handshakeRatio = "full handshakes per CPU time / those of crypto/tls alone"

// A secure is what TLS and tokens need: files for servers, and a token for clients.
type secure struct{ cert, key, tokens, token string }

// newSecure creates the files in dir. The certificate has a key on the curve P-256.
func newSecure(ctx context.Context, dir, own string) (*secure, error) {
	s := &secure{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), tokens: filepath.Join(dir, "tokens")}
	pair := certtest.New("bench").Server(2)
	if err := errors.Join(os.WriteFile(s.cert, pair.Cert, 0o600), os.WriteFile(s.key, pair.Key, 0o600)); err != nil {
		return nil, fmt.Errorf("write certificate: %w", err)
	}
	text, err := exec.CommandContext(ctx, own, "token", "create", "--file", s.tokens, "--audit=", "--gateway", "bench").Output()
	if err != nil {
		return nil, fmt.Errorf("create token: %w", err)
	}
	s.token = strings.TrimSpace(string(text))
	return s, nil
}

// flags returns the flags of a Pulsegate. All clients have one address here, whose share
// must not matter.
func (s *secure) flags(withTLS bool) []string {
	flags := []string{"--tokens=" + s.tokens, "--audit=", "--trusted-proxies=127.0.0.0/8"}
	if withTLS {
		flags = append(flags, "--tls-cert="+s.cert, "--tls-key="+s.key)
	}
	return flags
}

// startNginx starts nginx with TLS in front of a server.
func (b *ingestRun) startNginx(ctx context.Context, dir, upstream string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	const connections = 4096
	config := fmt.Sprintf(`daemon off; pid %[1]s/nginx.pid; error_log stderr warn; worker_processes auto; worker_rlimit_nofile %[2]d;
events { worker_connections %[3]d; }
http {
  access_log off; keepalive_requests 1000000000; proxy_buffering on; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  upstream pulsegate { server %[4]s; keepalive 1024; keepalive_requests 1000000000; }
  server {
    listen %[5]s ssl backlog=4096; ssl_certificate %[6]s; ssl_certificate_key %[7]s; ssl_protocols TLSv1.3;
    location / { proxy_pass http://pulsegate; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; }
  }
}`, dir, 2*connections, connections, upstream, addr, b.secure.cert, b.secure.key)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of nginx: %w", err)
	}
	return startOn(ctx, addr, exec.Command("nginx", "-p", dir, "-c", file))
}

// shakers is the number of handshakes under way at one time.
const shakers = 8

// measureHandshakes measures what a full handshake costs Pulsegate and crypto/tls alone.
func (b *ingestRun) measureHandshakes(ctx context.Context, own *contestant, round int) error {
	alone := &contestant{name: "handshakes", mode: "tlshandshake"}
	cost := map[*contestant]float64{}
	for _, c := range []*contestant{alone, own} {
		dir := filepath.Join(b.work, fmt.Sprint("handshakes-", c.name, round))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("create data directory: %w", err)
		}
		server, err := b.start(ctx, c, dir)
		if err != nil {
			return err
		}
		var n uint64
		cpu, err := cpuDuring(server.pids(), func() (err error) {
			n, err = shakeHands(ctx, server.server.public, b.duration())
			return err
		})
		if err = errors.Join(err, server.stop()); err != nil {
			return err
		}
		cost[c] = cpu.Seconds() / float64(n)
	}
	b.handshakes.Add(b.out, round, handshakeRatio, "", report.Figures{"ratio": cost[alone] / cost[own]})
	fmt.Fprintf(b.out, "round %d  a full handshake: %.0f µs CPU of crypto/tls alone, %.0f µs of %s\n", round+1, cost[alone]*1e6, cost[own]*1e6, own.name)
	return nil
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
				c, err := tls.DialWithDialer(dialer, "tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
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
		return 0, errors.New("make handshakes: none within " + strconv.FormatFloat(d.Seconds(), 'f', 0, 64) + " s")
	}
	return n.Load(), nil
}
