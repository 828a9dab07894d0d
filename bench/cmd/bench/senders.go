package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

const (
	dialers = 64 // connections opened at the same time

	// clientAddresses is the number of loopback addresses of the clients. Pulsegate allows
	// a single address at most half of its connections.
	clientAddresses = 8
)

// connect opens n connections, each of which sends a reading.
func (s *cluster) connect(ctx context.Context, n int) (all []net.Conn, err error) {
	for len(all) < n && err == nil {
		opened := make([]net.Conn, min(dialers, n-len(all)))
		failed := make([]error, len(opened))
		var wg sync.WaitGroup
		for i := range opened {
			wg.Go(func() { opened[i], failed[i] = s.dial(ctx, len(all)+i) })
		}
		wg.Wait()
		for i := range opened {
			if opened[i] != nil {
				all = append(all, opened[i])
			}
		}
		err = cmp.Or(failed...)
	}
	return all, err
}

// dial opens a connection, and sends a reading, which must be stored.
func (s *cluster) dial(ctx context.Context, number int) (net.Conn, error) {
	addr := s.nodes[0].public
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+number%clientAddresses))}}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	token := ""
	if s.secure != nil {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) // the server's address is known
		token = "Authorization: Bearer " + s.secure.token + "\r\n"
	}
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return c, err
	}
	reading :=
		fmt.Sprintf(`{"device":"wearable-%06d","time":"%s","systolic_mmhg":118,"diastolic_mmhg":76,"spo2_pct":97.5,`+
			`"heart_rate_bpm":72.5,"resting_heart_rate_bpm":58.5}`, number, time.Now().Add(-baseAge).UTC().Format(stampForm))
	if _, err := fmt.Fprintf(c,
		"POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, addr, token, len(reading), reading); err != nil {
		return c, fmt.Errorf("send: %w", err)
	}
	var answer [1024]byte
	for n := 0; !bytes.Contains(answer[:n], []byte(`{"status":"stored"}`)); {
		m, err := c.Read(answer[n:])
		if n += m; err != nil || n == len(answer) {
			return c, fmt.Errorf("read answer: %w: got %q", err, answer[:n])
		}
	}
	return c, nil
}

// closeAll resets connections, so that none stays in TIME_WAIT.
func closeAll(all []net.Conn) {
	for _, conn := range all {
		if secured, ok := conn.(*tls.Conn); ok {
			conn = secured.NetConn()
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // Close ends it in any case
		conn.Close()
	}
}

// idle measures what a new server holds without connections, and with n connections that have sent
// a reading each and stay open. As many were opened and closed before.
func (l *loads) idle(ctx context.Context, c *contestant, n int, held func(s *cluster, open bool) (report.Figures,
	error)) (without, with report.Figures, err error) {
	s, err := l.start(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for _, open := range []bool{false, true} {
		all, err := s.connect(ctx, n)
		defer closeAll(all)
		if err != nil {
			return nil, nil, fmt.Errorf("with %d connections: %w", len(all), err)
		}
		if !open {
			closeAll(all)
		}
		f, err := held(s, open)
		if err != nil {
			return nil, nil, err
		}
		without, with = with, f
	}
	return without, with, nil
}
