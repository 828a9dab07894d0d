package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
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
	// What is compared with another load of the same round.
	b.ratios = &report.Table{Head: "what", Columns: []report.Column{{Title: "ratio", Figure: "ratio", Format: "%.2f"}}}
	i := slices.IndexFunc(chosen, func(c contestant) bool { return c.name == report.Own })
	for round := 0; i >= 0 && round < b.Rounds; round++ {
		if err := b.measureHandshakes(ctx, &chosen[i], round); err != nil {
			return err
		}
	}
	b.allocations(r, "Those of a request are crypto/tls's.")
	apart, err := b.measureApart(ctx, chosen)
	if err != nil {
		return err
	}
	if apart == nil {
		r.Left = append(r.Left, "servers and clients apart, because there is only one processor")
		apart = new(report.Table)
	}
	r.Tables = append(r.Tables, apart)
	own := func(connections, what, figure, base string, limit float64) report.Bar {
		return report.Bar{What: connections + ": " + what + " / that of " + base, Row: report.Own, Figure: figure, Base: base, Limit: limit, Format: "%.2f"}
	}
	ratio := func(name string, limit float64) report.Bar {
		return report.Bar{What: name, Row: name, Figure: "ratio", Limit: limit, Format: "%.2f"}
	}
	r.Goals = b.goals(map[int][]report.Bar{1000: {
		own("1000 connections", "CPU per request", "cpu", report.Floor, 1.5), own("1000 connections", "CPU per request", "cpu", "nethttp", 0.8),
		atLeast(own("1000 connections", "requests/s", "rate", fullLane, 2.5)), own("1000 connections", "CPU per request", "cpu", proxy, 0.6),
	}})
	r.Goals = append(r.Goals, apart.Goals(atLeast(own(fmt.Sprint(slices.Max(b.Connections), " connections, apart"), "requests/s", "rate", fullLane, 2.5)))...)
	r.Goals = append(r.Goals, b.ratios.Goals(atLeast(ratio(handshakeRatio, 0.85)), ratio(floodRatio, 3), ratio(floodApartRatio, 3))...)
	r.After = append(r.After, "The clients that flood with handshakes run at the lowest priority (nice 19), send a recorded first message and leave before they compute anything, as if they were on another machine.")
	return b.write(b.out, "bench-tls", r.Markdown())
}

// Names of the rows of ingestRun.ratios.
const (
	handshakeRatio  = "full handshakes per CPU time / those of crypto/tls alone"
	floodRatio      = "64 connections: p99 with a flood of handshakes / without"
	floodApartRatio = "64 connections, apart: p99 with a flood of handshakes / without"
)

func (b *ingestRun) addRatio(round int, name string, ratio float64) {
	b.ratios.Add(b.out, round, name, "", report.Figures{"ratio": ratio})
}

// A secure is what TLS and tokens need: files for servers, and a token for clients.
type secure struct{ cert, key, tokens, token string }

// newSecure creates the files in dir. The certificate has a key on the curve P-256.
func newSecure(ctx context.Context, dir, own string) (*secure, error) {
	s := &secure{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), tokens: filepath.Join(dir, "tokens")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	err = errors.Join(
		os.WriteFile(s.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(s.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	if err != nil {
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	addr := l.Addr().String()
	l.Close()
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
	p, err := start(ctx, exec.Command("nginx", "-p", dir, "-c", file))
	if err != nil {
		return nil, err
	}
	p.public = addr
	for deadline := time.Now().Add(startTimeout); ; {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return p, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("start nginx: %w: %s", err, p.text()), p.stop())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

const (
	floodClients = 8  // handshakes under way at one time
	floodLoad    = 64 // established connections

	// floodTime is the least time of a load beside a flood: its own handshakes are among the
	// others.
	floodTime = 2 * time.Second
)

// measureHandshakes measures what a full handshake costs Pulsegate and crypto/tls alone,
// and the latency of established connections of Pulsegate with and without a flood of
// handshakes.
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
		err = func() error {
			before, err := cpuTime(server.pids()...)
			if err != nil {
				return err
			}
			n, err := flood(ctx, server.server.public, b.duration())
			if err != nil {
				return err
			}
			after, err := cpuTime(server.pids()...)
			cost[c] = (after - before).Seconds() / float64(n)
			if err != nil || c == alone {
				return err
			}
			flooded, err := b.measureFlood(ctx, server, round)
			b.addRatio(round, floodRatio, flooded)
			return err
		}()
		if err = errors.Join(err, server.stop()); err != nil {
			return err
		}
	}
	b.addRatio(round, handshakeRatio, cost[alone]/cost[own])
	fmt.Fprintf(b.out, "round %d  a full handshake: %.0f µs CPU of crypto/tls alone, %.0f µs of %s\n", round+1, cost[alone]*1e6, cost[own]*1e6, own.name)
	return nil
}

// measureApart measures what the processors that servers and clients share would hide: the
// requests per second of a server with one processor, whose clients have another one, and
// the latency of its established connections during a flood.
func (b *ingestRun) measureApart(ctx context.Context, chosen []contestant) (*report.Table, error) {
	if runtime.NumCPU() < 2 {
		return nil, nil
	}
	b.apart, b.wrk.apart = true, true
	defer func() { b.apart, b.wrk.apart = false, false }()
	connections := slices.Max(b.Connections)
	t := &report.Table{
		Text: fmt.Sprintf("%d connections, the server on one processor (GOMAXPROCS 1) and the loader on another one:", connections), Head: "server",
		Columns: append(append([]report.Column{
			{Title: "CPU per request, µs", Figure: "cpu", Format: "%.1f"},
			{Title: "requests/s", Figure: "rate", Format: "%.0f"},
		}, latencyColumns("%.2f")...),
			report.Column{Title: "the server's processor is busy, %", Figure: "busy", Format: "%.0f"},
			report.Column{Title: "the loader's, %", Figure: "loader busy", Format: "%.0f"}),
	}
	for round := range b.Rounds {
		for i := range chosen {
			c := &chosen[i]
			if c.name != fullLane && c.name != report.Own {
				continue
			}
			runs, err := b.measureOne(ctx, c, round, []int{connections})
			if err != nil {
				return nil, fmt.Errorf("measure %s apart: %w", c.name, err)
			}
			t.Add(b.out, round, c.name, "**"+c.name+"**: "+c.what, runs[0])
			if c.name == report.Own {
				err = b.floodApart(ctx, c, round)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// floodApart is measureFlood on a fresh server with a processor to itself.
func (b *ingestRun) floodApart(ctx context.Context, c *contestant, round int) error {
	server, remove, err := b.startFresh(ctx, c, fmt.Sprint("flood", round))
	if err != nil {
		return err
	}
	ratio, err := b.measureFlood(ctx, server, round)
	if err = errors.Join(err, server.stop(), remove()); err == nil {
		b.addRatio(round, floodApartRatio, ratio)
	}
	return err
}

// measureFlood returns the p99 of established connections with a flood, divided by that
// without. Another process runs the flood, at the lowest priority: what is measured is
// what the server does to its own connections, not the load on the machine.
func (b *ingestRun) measureFlood(ctx context.Context, server *running, round int) (float64, error) {
	base := time.Now().Add(-baseAge)
	b.wrk.lead = nil
	load := func() (time.Duration, error) {
		base = base.Add(baseStep)
		l, err := b.wrk.run(ctx, server.server.public, floodLoad, max(b.duration(), floodTime), base.UnixMilli())
		if err != nil {
			return 0, err
		}
		return l.p99, l.check()
	}
	usual, err := load()
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	flooder := exec.CommandContext(ctx, "nice", "-n", "19", self, "flood", server.server.public)
	start := flooder.Start
	if b.apart {
		start = func() error { return onProcessor(clientProcessor, flooder.Start) }
	}
	if err := start(); err != nil {
		return 0, fmt.Errorf("start flood: %w", err)
	}
	flooded, err := load()
	_ = flooder.Process.Kill() // it runs until then
	_ = flooder.Wait()
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(b.out, "round %d  p99 of %d connections: %v, with a flood of handshakes %v\n", round+1, floodLoad, usual, flooded)
	return flooded.Seconds() / usual.Seconds(), nil
}

// floodCommand begins handshakes until it is killed. The part tls of ingest runs it.
//
// Its clients send the same first message again and again and leave after the first bytes of the
// answer, for which the server has computed all but the check of a hash. So they take little CPU
// time themselves, of which the loader needs much.
type floodCommand struct {
	Addr string `arg:"" help:"Address of the server."`
}

func (c *floodCommand) Run(ctx context.Context) error {
	hello, err := clientHello()
	if err != nil {
		return fmt.Errorf("record first message of a handshake: %w", err)
	}
	errs := make([]error, floodClients)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = beginHandshake(ctx, c.Addr, hello)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func beginHandshake(ctx context.Context, addr string, hello []byte) error {
	dialer := &net.Dialer{Timeout: answerTimeout}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("begin a handshake: %w", err)
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetLinger(0) // no port stays in TIME_WAIT
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return fmt.Errorf("begin a handshake: %w", err)
	}
	if _, err := c.Write(hello); err != nil {
		return fmt.Errorf("begin a handshake: %w", err)
	}
	if _, err := c.Read(make([]byte, 64)); err != nil {
		return fmt.Errorf("begin a handshake: %w", err)
	}
	return nil
}

// clientHello returns the first message of a TLS client.
func clientHello() ([]byte, error) {
	client, server := net.Pipe()
	defer server.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer client.Close()
	wg.Go(func() {
		// It fails, because nobody answers.
		_ = tls.Client(client, floodTLS()).Handshake()
	})
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	return b[:n], err
}

// floodTLS configures clients that make handshakes.
func floodTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
}

// flood makes full handshakes for a time, each on a new connection, and returns how many
// have succeeded.
func flood(ctx context.Context, addr string, d time.Duration) (uint64, error) {
	end := time.Now().Add(d)
	var n atomic.Uint64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range floodClients {
		wg.Go(func() {
			dialer := &net.Dialer{Timeout: answerTimeout}
			for time.Now().Before(end) && ctx.Err() == nil {
				c, err := tls.DialWithDialer(dialer, "tcp", addr, floodTLS())
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
