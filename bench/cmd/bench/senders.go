package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// A sender is a connection of HTTP or MQTT that sends one reading after another.
type sender struct {
	net.Conn
	device, value int
	at            time.Time
	head          []byte // of a request of HTTP; nil means MQTT
	packet, body  []byte // the last ones
	answer        [1024]byte
	acknowledged  atomic.Uint64
}

// devicesEach is the number of devices whose readings a sender sends in rotation.
const devicesEach = 10

func newSender(addr string, number int, s *secure) *sender {
	token := ""
	if s != nil {
		token = "Authorization: Bearer " + s.token + "\r\n"
	}
	return &sender{device: number * devicesEach, at: time.Now().Add(-baseAge),
		head: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\nContent-Length: ", path, addr, token)}
}

const (
	dialers = 64 // connections opened at the same time

	// clientAddresses is the number of loopback addresses of the clients. Pulsegate allows
	// a single address at most half of its connections.
	clientAddresses = 8
)

// connect opens n connections, each of which sends a reading.
func (s *cluster) connect(ctx context.Context, n int) (all []*sender, err error) {
	for len(all) < n && err == nil {
		opened := make([]*sender, min(dialers, n-len(all)))
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

// dial opens a connection, with a CONNECT if it is one of MQTT, and sends a reading.
func (s *cluster) dial(ctx context.Context, number int) (_ *sender, err error) {
	addr := s.nodes[0].public
	c := newSender(addr, number, s.secure)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+number%clientAddresses))}}
	if c.Conn, err = dialer.DialContext(ctx, "tcp", addr); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if s.secure != nil {
		c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true}) // the server's address is known
	}
	if s.mqtt || s.broker {
		c.head = nil
		err = c.open(number, s.secure)
	}
	if err == nil {
		err = c.send()
	}
	return c, err
}

// open sends a CONNECT of MQTT 3.1.1.
func (s *sender) open(number int, secure *secure) error {
	flags, credentials := byte(2), []byte(nil) // a clean session
	if secure != nil {
		flags |= 0xc0
		credentials = field(field(nil, "bench"), secure.token)
	}
	const keepAlive = 1200 // seconds
	body := append(field(nil, "MQTT"), 4, flags, keepAlive>>8, keepAlive&0xff)
	body = append(field(body, fmt.Sprint("bench-", number)), credentials...)
	return s.exchange(append(binary.AppendUvarint([]byte{0x10}, uint64(len(body))), body...), []byte{0x20, 2, 0, 0})
}

// field appends a field of a packet.
func field(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

// reading returns the next reading.
func (s *sender) reading() []byte {
	s.value++
	if s.value%devicesEach == 0 {
		s.at = s.at.Add(time.Millisecond)
	}
	n := s.value
	s.body = append(s.body[:0], `{"device":"`...)
	s.body = append(s.name(s.body), `","time":"`...)
	s.body = s.at.UTC().AppendFormat(s.body, stampForm)
	s.body = fmt.Appendf(s.body, `","systolic_mmhg":%d,"diastolic_mmhg":%d,"spo2_pct":%d.5,"heart_rate_bpm":%d.5,"resting_heart_rate_bpm":%d.5}`,
		110+n%40, 60+n%30, 90+n%10, 60+n%37, 50+n%20)
	return s.body
}

func (s *sender) name(b []byte) []byte {
	return fmt.Appendf(b, "wearable-%06d", s.device+s.value%devicesEach)
}

// send sends the next reading and waits until it is acknowledged.
func (s *sender) send() (err error) {
	if err := s.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	reading := s.reading()
	if s.head != nil {
		s.packet = fmt.Appendf(append(s.packet[:0], s.head...), "%d\r\n\r\n%s", len(reading), reading)
		err = s.exchange(s.packet, []byte(`{"status":"stored"}`))
	} else {
		topic := s.name([]byte("pulsegate/"))
		id := binary.BigEndian.AppendUint16(nil, uint16(1+s.value%60_000))
		s.packet = binary.AppendUvarint(append(s.packet[:0], 0x32), uint64(2+len(topic)+2+len(reading)))
		s.packet = append(append(field(s.packet, string(topic)), id...), reading...)
		err = s.exchange(s.packet, append([]byte{0x40, 2}, id...))
	}
	if err == nil {
		s.acknowledged.Add(1)
	}
	return err
}

// exchange sends a message and reads the answer, which must have want in it.
func (s *sender) exchange(message, want []byte) error {
	if _, err := s.Write(message); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	for n := 0; !bytes.Contains(s.answer[:n], want); {
		m, err := s.Read(s.answer[n:])
		if n += m; err != nil || n == len(s.answer) {
			return fmt.Errorf("read answer: %w: got %q", err, s.answer[:n])
		}
	}
	return nil
}

// closeAll resets connections, so that none stays in TIME_WAIT.
func closeAll(senders []*sender) {
	for _, s := range senders {
		conn := s.Conn
		if secured, ok := conn.(*tls.Conn); ok {
			conn = secured.NetConn()
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // Close ends it in any case
		conn.Close()
	}
}

// idle measures what a new server holds without connections, and with n connections that have sent
// a reading each and stay open. As many were opened and closed before.
func (l *loads) idle(ctx context.Context, c *contestant, n int, held func(s *cluster, open bool) (report.Figures, error)) (without, with report.Figures, err error) {
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
