package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

const (
	// idleStep is the number of connections opened concurrently.
	idleStep = 500

	// idleSettle is the time for a server to release the memory of requests.
	idleSettle = time.Second

	// idleAddresses is the number of loopback addresses of the clients. Pulsegate allows
	// a single address at most half of its connections.
	idleAddresses = 8
)

// idleServers returns the servers whose idle connections are measured.
func idleServers() []string { return []string{"fasthttp", "nethttp", report.Own} }

// overTLS is the name of Pulsegate with TLS and a token.
const overTLS = report.Own + " over TLS"

// runIdle measures the memory of idle connections.
func (b *ingestRun) runIdle(ctx context.Context) error {
	if err := raiseFileLimit(b.Idle); err != nil {
		return err
	}
	setting := b.setting("bench-ingest")
	var chosen []contestant
	for _, name := range idleServers() {
		for _, c := range b.contestants {
			if c.name == name {
				chosen = append(chosen, c)
			}
		}
	}
	secure, err := newSecure(ctx, b.work, b.own())
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(chosen, func(c contestant) bool { return c.own }); i >= 0 {
		c := chosen[i]
		c.name = overTLS
		chosen = append(chosen, c)
	}
	ctx, cancel := context.WithTimeout(ctx, (2*perStart+b.IdleWait)*time.Duration(len(chosen)*b.Rounds))
	defer cancel()
	defer func() { b.secure = nil }()
	t := &report.Table{Head: "server", Columns: []report.Column{
		{Title: "with none, MiB", Figure: "none", Format: "%.1f"},
		{Title: fmt.Sprintf("with %d, MiB", b.Idle), Figure: "all", Format: "%.1f"},
		{Title: "more, MiB", Figure: "more", Format: "%.1f"},
		{Title: "bytes a connection", Figure: "each", Format: "%.0f", Show: report.Median},
		{Title: fmt.Sprintf("with %d after %v, MiB", b.Idle, b.IdleWait), Figure: "later", Format: "%.1f"},
	}}
	for round := range b.Rounds {
		for i := range chosen {
			b.secure = nil
			if chosen[i].name == overTLS {
				b.secure = secure
			}
			f, err := b.measureIdle(ctx, &chosen[i])
			if err != nil {
				return fmt.Errorf("measure idle connections of %s: %w", chosen[i].name, err)
			}
			f["more"] = f["all"] - f["none"]
			f["each"] = f["more"] * (1 << 20) / float64(b.Idle)
			if later, ok := f["later"]; ok {
				f["more later"] = later - f["none"]
			}
			t.Add(b.out, round, chosen[i].name, fmt.Sprintf("**%s**: %s", chosen[i].name, chosen[i].what), f)
		}
	}
	r := report.Report{
		Setting: setting,
		Notes: []string{
			fmt.Sprintf("Load: as many connections are opened, post a reading and are closed; then %d connections post one reading each and stay open", b.Idle),
			fmt.Sprintf("Rounds: %d, in each of which every server is restarted", b.Rounds),
		},
		Text:   "Resident memory of the server's process (VmRSS): medians, with the range over the rounds in brackets. Kernel memory for sockets is not included.",
		Tables: []*report.Table{t},
		Goals: t.Goals(
			report.Bar{What: fmt.Sprintf("%d idle connections: MiB more than with none", b.Idle), Row: report.Own, Figure: "more", Limit: 60, Format: "%.1f"},
			report.Bar{What: fmt.Sprintf("%d idle connections over TLS: MiB more than with none, after %v", b.Idle, b.IdleWait), Row: overTLS, Figure: "more later", Limit: 100, Format: "%.1f"},
		),
	}
	return b.write(b.out, "bench-idle", r.Markdown())
}

// measureIdle measures the memory of a fresh server before and after opening
// connections that post one reading each and stay open.
func (b *ingestRun) measureIdle(ctx context.Context, c *contestant) (f report.Figures, err error) {
	server, remove, err := b.startFresh(ctx, c, "idle")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop(), remove()) }()
	addr, pid := server.server.public, server.server.pid()
	readings := newSingles(addr, b.secure)
	// Open and close as many connections first, so that memory kept for requests does
	// not count for idle connections.
	for came := 0; came < b.Idle; came += idleStep {
		conns, err := use(ctx, came, addr, min(idleStep, b.Idle-came), readings, b.secure)
		hangUp(conns)
		if err != nil {
			return nil, err
		}
	}
	f = report.Figures{}
	resident := func(name string, after time.Duration) error {
		if err := sleep(ctx, after); err != nil {
			return err
		}
		now, err := memory(pid)
		f[name] = report.MiB(now.VmRSS)
		return err
	}
	if err := resident("none", idleSettle); err != nil {
		return nil, err
	}
	var all []net.Conn
	defer func() { hangUp(all) }()
	for len(all) < b.Idle {
		conns, err := use(ctx, len(all), addr, min(idleStep, b.Idle-len(all)), readings, b.secure)
		all = append(all, conns...)
		if err != nil {
			return nil, fmt.Errorf("with %d connections: %w", len(all), err)
		}
	}
	if err := resident("all", idleSettle); err != nil {
		return nil, err
	}
	if b.secure == nil {
		return f, nil // it has had no handshakes, whose garbage is given back later
	}
	return f, resident("later", b.IdleWait)
}

// newSingles returns a source of requests with one reading each, and with the token of s.
func newSingles(addr string, s *secure) source {
	authorization := ""
	if s != nil {
		authorization = "Authorization: Bearer " + s.token + "\r\n"
	}
	at := time.Now().Add(-baseAge)
	return func() []byte {
		at = at.Add(time.Millisecond)
		body := fmt.Sprintf(`{"device":"wearable-idle","time":%d,"spo2_pct":97.5}`, at.UnixMilli())
		return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, addr, authorization, len(body), body)
	}
}

// use opens n connections, of which the first has the number first, and posts one request
// over each, with TLS if s is not nil. The number determines the local address.
func use(ctx context.Context, first int, addr string, n int, next source, s *secure) (conns []net.Conn, err error) {
	for i := range n {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+(first+i)%idleAddresses))}}
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return conns, fmt.Errorf("connect: %w", err)
		}
		if s != nil {
			// The server's address is known, and what is measured is its memory.
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
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

// hangUp resets connections, so that none stays in TIME_WAIT.
func hangUp(conns []net.Conn) {
	for _, conn := range conns {
		if secured, ok := conn.(*tls.Conn); ok {
			conn = secured.NetConn()
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // Close ends it in any case
		conn.Close()
	}
}
