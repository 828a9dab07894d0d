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

// A Syslog sends copies of a log's lines to a syslog server: one RFC 5424 message per
// line, with the line as its text, facility 13 (log audit), severity 5 (notice) and MSGID
// audit. Over TCP it uses octet counting (RFC 6587, section 3.4.1).
//
// Send never blocks: lines wait in a bounded queue; when it is full, they are dropped and
// counted. The protocol has no acknowledgements, so lines in flight when a server goes
// down are lost without being counted. Gaps in the records' numbers reveal them.
type Syslog struct {
	network, address string
	hostname         string
	onTrouble        func(error)

	queue chan string
	lost  atomic.Uint64
	quit  chan struct{} // closed by Close
	done  sync.WaitGroup

	ctx    context.Context // canceled when Close has waited for drainTimeout
	cancel context.CancelFunc

	// The following fields belong to run.
	failing   bool          // reported with onTrouble
	conn      net.Conn      // nil means not connected
	gone      chan struct{} // closed when the server has closed conn
	stopAbort func() bool   // stops closing conn when ctx is canceled
}

// Bounds of a Syslog.
const (
	syslogQueue   = 4096 // lines, of up to 2 KiB
	syslogTimeout = 5 * time.Second
	minRetry      = 1 * time.Second
	maxRetry      = 30 * time.Second
	drainTimeout  = 2 * time.Second
)

// NewSyslog returns a Syslog that sends to target: unix:/dev/log, udp:host:514 or
// tcp:host:601. hostname is the host name in messages; it may be empty. onTrouble, if not
// nil, is called with an error when the server becomes unreachable, and with nil when it
// is reachable again. The caller must Close the Syslog.
func NewSyslog(target, hostname string, onTrouble func(error)) (*Syslog, error) {
	network, address, _ := strings.Cut(target, ":")
	switch network {
	case "unix":
		network = "unixgram"
		if address == "" {
			return nil, fmt.Errorf("syslog %q lacks the path of a socket", target)
		}
	case "udp", "tcp":
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			return nil, fmt.Errorf("syslog %q is not of the form %s:host:port", target, network)
		}
	default:
		return nil, fmt.Errorf("syslog %q is not of the form unix:PATH, udp:HOST:PORT or tcp:HOST:PORT", target)
	}
	s := &Syslog{
		network: network, address: address, hostname: syslogName(hostname), onTrouble: onTrouble,
		queue: make(chan string, syslogQueue), quit: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Go(s.run)
	return s, nil
}

// syslogName returns name in the form required by a message header.
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

// Send queues a copy of a line, with or without its newline. It never blocks. It must not
// be called after Close.
func (s *Syslog) Send(line []byte) { s.send("audit", line) }

// SendClients is Send for a line of the log of clients. Its MSGID is audit-clients.
func (s *Syslog) SendClients(line []byte) { s.send("audit-clients", line) }

func (s *Syslog) send(id string, line []byte) {
	select {
	case s.queue <- id + " - " + strings.TrimSuffix(string(line), "\n"):
	default:
		s.lost.Add(1)
	}
}

// Lost returns the number of lines that were dropped.
func (s *Syslog) Lost() uint64 { return s.lost.Load() }

// Close sends the queued lines, for at most two seconds. It must be called only once.
func (s *Syslog) Close() {
	defer s.cancel()
	defer time.AfterFunc(drainTimeout, s.cancel).Stop()
	close(s.quit)
	close(s.queue)
	s.done.Wait()
}

// run sends queued lines until s is closed.
func (s *Syslog) run() {
	defer s.hangUp()
	for line := range s.queue {
		if !s.deliver(line) {
			s.lost.Add(1)
		}
	}
}

// deliver sends a line and retries until it succeeds. It returns false if s is closed
// first.
func (s *Syslog) deliver(line string) bool {
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		err := s.write(line)
		if failing := err != nil; failing != s.failing && s.onTrouble != nil {
			if failing {
				err = fmt.Errorf("send to syslog %s: %w", s.address, err)
			}
			s.onTrouble(err)
		}
		if s.failing = err != nil; !s.failing {
			return true
		}
		select {
		case <-s.quit:
			return s.write(line) == nil // the server may be back
		case <-time.After(wait):
		}
	}
}

// write sends one line. It connects first if necessary.
func (s *Syslog) write(line string) error {
	if s.conn != nil {
		select {
		case <-s.gone: // a write to a closed peer may succeed
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
	s.stopAbort = context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	if s.network != "tcp" {
		return nil // a datagram socket shows no end
	}
	s.done.Go(func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // until the server or hangUp closes it
	})
	return nil
}

func (s *Syslog) hangUp() {
	if s.conn != nil {
		s.stopAbort()
		_ = s.conn.Close() // an error changes nothing
		s.conn = nil
	}
}

// message returns the syslog message for a line, which follows its MSGID.
func (s *Syslog) message(line string) []byte {
	const priority = 13*8 + 5
	when := field([]byte(line), "time")
	if when == "" {
		when = "-"
	}
	text := fmt.Appendf(nil, "<%d>1 %s %s pulsegate - %s", priority, when, s.hostname, line)
	if s.network != "tcp" {
		return text
	}
	return append(append(strconv.AppendInt(nil, int64(len(text)), 10), ' '), text...)
}
