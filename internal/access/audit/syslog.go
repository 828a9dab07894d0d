package audit

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Syslog sends copies of a log's lines to a syslog server: one message of RFC 5424 for
// each, with the line as its text, facility 13 (log audit), severity 5 (notice) and MSGID
// audit. Over TCP, messages are counted in octets (RFC 6587, section 3.4.1).
//
// Send never blocks: lines wait in a bounded queue, and are dropped and counted when that
// is full. Syslog acknowledges nothing, so lines that were under way when a server went
// down are lost uncounted. The numbers of the records show it.
type Syslog struct {
	network, address string
	hostname         string
	onTrouble        func(error)

	queue chan string
	lost  atomic.Uint64
	quit  chan struct{}
	stop  sync.Once
	done  sync.WaitGroup

	ctx    context.Context // ends when Close has waited for long enough
	cancel context.CancelFunc

	// Of run:
	conn  net.Conn      // nil: none
	gone  chan struct{} // closed when the server has closed conn
	letGo func() bool   // undoes what ends conn with ctx
}

// Bounds of a Syslog.
const (
	syslogQueue   = 4096 // lines, of up to 2 KiB
	syslogTimeout = 5 * time.Second
	leastRetry    = 1 * time.Second
	longestRetry  = 30 * time.Second
	drainTimeout  = 2 * time.Second
)

// NewSyslog returns a Syslog that sends to a target: unix:/dev/log, udp:host:514 or
// tcp:host:601. hostname is this machine's in messages; empty: none. onTrouble is called
// when the server cannot be reached, and, with nil, when it can again; it may be nil. The
// caller must Close it.
func NewSyslog(target, hostname string, onTrouble func(error)) (*Syslog, error) {
	network, address, _ := strings.Cut(target, ":")
	switch network {
	case "unix":
		network = "unixgram"
		if address == "" {
			return nil, fmt.Errorf("audit: syslog %q names no socket", target)
		}
	case "udp", "tcp":
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			return nil, fmt.Errorf("audit: syslog %q is not of the form %s:host:port", target, network)
		}
	default:
		return nil, fmt.Errorf("audit: syslog %q is not of the form unix:PATH, udp:HOST:PORT or tcp:HOST:PORT", target)
	}
	s := &Syslog{
		network: network, address: address, hostname: syslogName(hostname), onTrouble: onTrouble,
		queue: make(chan string, syslogQueue), quit: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Go(s.run)
	return s, nil
}

// syslogName returns a name as the header of a message takes it.
func syslogName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, name)
	if name == "" {
		return "-" // RFC 5424, section 6: NILVALUE
	}
	return name[:min(len(name), 255)]
}

// Send sends a copy of a line, with its newline or without, as soon as it can. It never
// waits.
func (s *Syslog) Send(line []byte) {
	select {
	case s.queue <- strings.TrimSuffix(string(line), "\n"):
	default:
		s.lost.Add(1)
	}
}

// Lost returns how many lines were not sent.
func (s *Syslog) Lost() uint64 { return s.lost.Load() }

// Close sends what waits, for up to two seconds.
func (s *Syslog) Close() {
	defer s.cancel()
	defer time.AfterFunc(drainTimeout, s.cancel).Stop()
	s.stop.Do(func() { close(s.quit) })
	s.done.Wait()
}

// run sends what is in the queue until s is closed.
func (s *Syslog) run() {
	defer s.hangUp()
	for {
		select {
		case <-s.quit:
			s.drain()
			return
		case line := <-s.queue:
			if !s.deliver(line) {
				s.lost.Add(1)
				s.drain()
				return
			}
		}
	}
}

// deliver sends a line, and tries until it can. It reports false when s is closed first.
func (s *Syslog) deliver(line string) bool {
	err := s.write(line)
	if err == nil {
		return true
	}
	s.report(fmt.Errorf("send to syslog %s: %w", s.address, err))
	for wait := leastRetry; ; wait = min(2*wait, longestRetry) {
		timer := time.NewTimer(wait)
		select {
		case <-s.quit:
			timer.Stop()
			return s.write(line) == nil
		case <-timer.C:
		}
		if s.write(line) == nil {
			s.report(nil)
			return true
		}
	}
}

func (s *Syslog) report(err error) {
	if s.onTrouble != nil {
		s.onTrouble(err)
	}
}

// drain sends what is left, or counts it as lost.
func (s *Syslog) drain() {
	for answers := true; ; {
		select {
		case line := <-s.queue:
			if answers = answers && s.write(line) == nil; !answers {
				s.lost.Add(1)
			}
		default:
			return
		}
	}
}

// write sends one line, on a new connection if there is none.
func (s *Syslog) write(line string) error {
	if s.conn != nil {
		select {
		case <-s.gone: // a write would not notice
			s.hangUp()
		default:
		}
	}
	if s.conn == nil {
		if err := s.dial(); err != nil {
			return err
		}
	}
	err := s.conn.SetWriteDeadline(time.Now().Add(syslogTimeout))
	if err == nil {
		_, err = s.conn.Write(s.message(line))
	}
	if err != nil {
		s.hangUp()
	}
	return err
}

func (s *Syslog) dial() error {
	dialer := net.Dialer{Timeout: syslogTimeout}
	conn, err := dialer.DialContext(s.ctx, s.network, s.address)
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	s.conn, s.gone = conn, gone
	s.letGo = context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	if s.network != "tcp" {
		return nil // nothing comes, and nothing ends
	}
	s.done.Go(func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // until the server closes it, or hangUp does
	})
	return nil
}

func (s *Syslog) hangUp() {
	if s.conn != nil {
		s.letGo()
		_ = s.conn.Close() // nothing can be done about it
		s.conn = nil
	}
}

// message returns the message that carries a line.
func (s *Syslog) message(line string) []byte {
	const priority = 13*8 + 5
	when := field([]byte(line), "time")
	if when == "" {
		when = "-"
	}
	text := fmt.Appendf(nil, "<%d>1 %s %s pulsegate - audit - %s", priority, when, s.hostname, line)
	if s.network != "tcp" {
		return text
	}
	return append(append(strconv.AppendInt(nil, int64(len(text)), 10), ' '), text...)
}
