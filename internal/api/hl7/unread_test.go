package hl7_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A sender that wants no answers gets none, and everything that it sends is stored.
func TestNoAnswers(t *testing.T) {
	s := start(t, config{})
	c := s.dial(t)
	var all []string
	for i := range 200 {
		all = append(all, strings.Replace(heartRate(i, 72), "|2.6", "|2.6|||NE|NE", 1))
	}
	c.send(all...)
	polltest.Until(t, "all are stored", func() bool { return s.store.stored.Load() == 200 })
	try(t, c.Conn.(*net.TCPConn).CloseWrite())
	c.want("closed")
	s.wantFigures(t, "endings client 1")
}

// If a message cannot be stored, and its sender takes silence for success, what has arrived after it is stored before
// the connection ends. Other senders send it again.
func TestSilentRefusal(t *testing.T) {
	for asks, stored := range map[string]int64{"NE|NE": 19, "NE|ER": 19, "|ER": 19, "|": 1, "AL|NE": 1, "NE|SU": 1} {
		for _, secure := range []*tls.Config{nil, {Certificates: []tls.Certificate{certtest.New("ca").Server(1).TLS()}}} {
			appends := 0
			s := start(t, config{tls: secure, before: func() error {
				if appends++; appends == 2 {
					return errors.New("the disk is gone")
				}
				return nil
			}})
			c := s.dial(t)
			if secure != nil {
				c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
			}
			var all strings.Builder
			for i := range 20 {
				all.WriteString(strings.Replace(heartRate(i, 72), "|2.6", "|2.6|||"+asks, 1))
			}
			c.send(all.String())
			_, _ = io.Copy(io.Discard, c.Conn) // until the server ends the connection
			_ = c.Close()
			polltest.Until(t, "the connection has ended", func() bool { return slices.Contains(s.figures(t), "endings busy 1") })
			if got := s.store.stored.Load(); got != stored {
				t.Errorf("%s, TLS %v: %d readings are stored, want %d", asks, secure != nil, got, stored)
			}
			listed, _ := s.list.Newest(2, func(*rejections.Rejection) bool { return true })
			if silent := stored > 1; silent != (len(listed) == 1) {
				t.Errorf("%s: listed %+v", asks, listed)
			}
		}
	}
}

// A brokenConn is a connection that cannot be written to. What has arrived can be read, and then the error, if not nil,
// or else the same again, for ever.
type brokenConn struct {
	net.Conn // of a pipe whose other end is closed
	in       *bytes.Reader
	end      error
}

func (c *brokenConn) Read(b []byte) (int, error) {
	if c.in.Len() == 0 && c.end == nil {
		_, _ = c.in.Seek(0, io.SeekStart)
	}
	if c.in.Len() == 0 {
		return 0, c.end
	}
	return c.in.Read(b)
}

// A brokenListener accepts one connection.
type brokenListener struct {
	net.Listener
	once sync.Once
	conn net.Conn
}

func (l *brokenListener) Accept() (c net.Conn, err error) {
	if l.once.Do(func() { c = l.conn }); c != nil {
		return c, nil
	}
	return l.Listener.Accept()
}

// After an answer could not be sent, what has arrived is stored. A client that goes on sending is not read for ever.
func TestUnreadAnswers(t *testing.T) {
	for _, end := range []error{errors.New("connection reset by peer"), nil} {
		ours, theirs := net.Pipe()
		try(t, theirs.Close())
		var in bytes.Buffer
		for i := range 200 {
			in.WriteString(heartRate(i, 72))
		}
		in.WriteString(framed(observation(1, 72, "") + "NTE|" + strings.Repeat("x", 1<<20)))
		if end != nil {
			in.WriteString(heartRate(200, 72)[:100]) // was not received completely
		}
		s := start(t, config{listener: func(l net.Listener) net.Listener {
			return &brokenListener{Listener: l, conn: &brokenConn{Conn: ours, in: bytes.NewReader(in.Bytes()), end: end}}
		}})
		s.wantFigures(t, "endings client 1")
		if got := s.store.stored.Load(); got != 200 {
			t.Errorf("%v: %d readings are stored, want 200", end, got)
		}
	}
}

// A message in which nothing is known is rejected, or if that is to be ignored, accepted and counted by its sender.
func TestNothingKnown(t *testing.T) {
	unknown := func(gateway string) string {
		return framed("MSH|^~\\&|" + gateway +
			"||||||ORU^R01^ORU_R01|1|P|2.6\rPID|||secret\rOBX|1|NM|108^PAUSES^99MAKER||0|/min|||||R\r")
	}
	s := start(t, config{})
	c := s.dial(t)
	c.send(unknown("gw"))
	c.want("AE 1, OBX-3: not a code of a sign in MDC or LN")

	var mu sync.Mutex
	var warned []string
	opt := hl7.ServerOptions{Messages: hl7.Options{IgnoreUnknown: true}, OnUnknown: func(sender string) {
		mu.Lock()
		defer mu.Unlock()
		warned = append(warned, sender)
	}}
	s = start(t, config{opt: opt})
	c = s.dial(t)
	c.send(unknown("gw"), unknown("gw"), unknown(""), heartRate(1, 72), strings.Replace(heartRate(2, 72), "OBX|1",
		"OBX|1|NM|1^^99X||1\rOBX|1", 1), framed("MSH|^~\\&|||||||ORU^R01|1|P|2.6\r"))
	c.want("AA 1", "AA 1", "AA 1", "AA 1", "AA 2", "AA 1")
	s.wantFigures(t, "acknowledgements AA 6", "unknown a loopback address 1", "unknown gw 2")
	for i := range 100 {
		c.send(unknown(fmt.Sprintf("gw-%d", i)))
		c.want("AA 1")
	}
	if n := len(s.figures(t)); n != 1+65 {
		t.Errorf("%d figures, want those of 64 senders and of others", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(warned) != 65 || !slices.Equal(warned[:2], []string{"gw", "a loopback address"}) || warned[64] != "others" {
		t.Errorf("warned of %d: %q", len(warned), warned)
	}
}
