package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

const (
	// keepAlive is what a CONNECT announces. A server may shorten it.
	keepAlive = time.Minute
	// checkEvery bounds the time between two looks at what is overdue.
	checkEvery = time.Second
	// maxWriteBytes is the size from which packets are not added to a write.
	maxWriteBytes = 64 << 10
	// maxLinkFaults bounds the violations that a link reports.
	maxLinkFaults = 100
)

// A link is the MQTT connection of one gateway. It is shared by as many [connection]s as
// the gateway may have publications in flight, and each has a packet identifier of its
// own, which a publication keeps when it is sent again.
type link struct {
	t       *transport
	version byte
	qos     byte
	hello   []byte // the CONNECT
	abort   context.CancelCauseFunc
	queue   chan *connection // tries that are due; has a place for each

	mu     sync.Mutex // guards faults
	faults []string
}

// A session is one connection of a link. The goroutine of serve writes. Another one reads, closes a broken
// connection, and returns what was in flight.
type session struct {
	l         *link
	conn      net.Conn // nil means not connected; then the channels are nil, and block
	pingEvery time.Duration
	places    chan struct{} // one for each further publication that may be in flight
	releases  chan uint16   // identifiers for which a PUBREL is due
	ended     chan struct{} // closed when everything has been returned

	// State of serve.
	out      []byte        // packets to write
	unasked  []*connection // their publications with QoS 0
	placed   bool          // serve has a place
	full     bool          // there was no place when serve last wanted one
	waited   bool          // what is due has waited for a place
	deadline time.Time     // for writing
	wrote    time.Time

	mu       sync.Mutex    // guards the following fields
	inFlight []*connection // by packet identifier, from 1; nil after the end
	why      failure       // why the connection was ended, if not by the server
	pinged   bool          // since wrote, without an answer
}

// failedDropped is the end of a connection because of [Drop]; it is not reported as a failure.
const failedDropped failure = "dropped"

func newLink(t *transport, opt *Options, number int32, abort context.CancelCauseFunc) *link {
	version := opt.mqttVersion()
	name := string(appendNumbered(nil, "gw-", number))
	user := opt.MQTT.user
	if user == "" && opt.Token == "" && len(opt.MQTT.certs) == 0 {
		user = name
	}
	return &link{
		t: t, version: version, qos: byte(opt.QoS), abort: abort, queue: make(chan *connection, opt.InFlight),
		hello: connect(version, "sim-"+opt.Run+"-"+name, user, opt.Token, uint16(keepAlive/time.Second)),
	}
}

// serve performs tries until ctx is done. It waits for the goroutines that it starts.
func (l *link) serve(ctx context.Context) {
	s := &session{}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		queue := l.queue
		if s.conn != nil && !s.place() {
			queue = nil
		}
		places := s.places
		if s.placed {
			places = nil
		}
		select {
		case <-ctx.Done():
			if s.conn != nil {
				_, _ = s.conn.Write([]byte{packets.Disconnect << 4, 0}) // the run is over: an error changes nothing
				s.conn.Close()
				<-s.ended
			}
			return
		case <-s.ended:
			s = &session{}
		case <-places:
			s.placed, s.waited = true, s.waited || len(l.queue) > 0
		case id := <-s.releases:
			for s.out = appendPubrel(s.out, id); len(s.releases) > 0; {
				s.out = appendPubrel(s.out, <-s.releases)
			}
			s.write(ctx, false)
		case now := <-tick.C:
			s.check(ctx, now)
		case c := <-queue:
			if s.conn == nil {
				next, failed := l.connect(ctx)
				if failed != "" {
					l.fail(c, failed)
					continue
				}
				s = next
				s.place()
			}
			s.publish(ctx, c)
		}
	}
}

// fail returns c and all other tries that are due.
func (l *link) fail(c *connection, why failure) {
	for due := len(l.queue); ; due-- {
		c.begin(-1)
		c.failed = why
		l.t.returned <- c
		if due == 0 {
			return
		}
		c = <-l.queue
	}
}

// place takes a place if serve has none. It reports whether serve has one.
func (s *session) place() bool {
	if !s.placed {
		select {
		case <-s.places:
			s.placed = true
		default:
			s.full = true
		}
	}
	if s.placed && s.full {
		s.waited, s.full = s.waited || len(s.l.queue) > 0, false
	}
	return s.placed
}

// publish publishes c, for which there is a place, and those that are due and for which there are places.
func (s *session) publish(ctx context.Context, c *connection) {
	drop, over := false, false
	for {
		if !c.live { // it only asked for a connection
			c.begin(-1)
			s.l.t.returned <- c
		} else if drop, over = s.take(c); over {
			s.l.queue <- c // the connection has ended: the next one has it
			<-s.ended
			return
		}
		if drop || len(s.out) >= maxWriteBytes || !s.place() || len(s.l.queue) == 0 {
			break
		}
		c = <-s.l.queue
	}
	if len(s.l.queue) == 0 {
		s.waited = false
	}
	s.write(ctx, drop)
}

// take appends a publication to out. drop means that the connection must be closed after it, and over that it has ended
// already.
func (s *session) take(c *connection) (drop, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight == nil {
		return false, true
	}
	now := s.l.t.elapsed()
	if s.waited {
		c.free = now
	}
	c.begin(now)
	s.out = append(s.out, c.out...)
	if s.l.qos == 0 {
		s.unasked = append(s.unasked, c)
		return false, false
	}
	c.out[0] |= dupFlag // if it is sent again
	s.inFlight[c.id], s.placed = c, false
	return c.request.drop && c.tries == 1, false
}

// write writes out, if it is not empty. After an error, or with drop, it ends the connection.
func (s *session) write(ctx context.Context, drop bool) {
	if len(s.out) == 0 {
		return
	}
	t := s.l.t
	s.wrote = time.Now()
	if s.deadline.Sub(s.wrote) < t.timeout { // not for every write, because that is costly
		s.deadline = s.wrote.Add(t.timeout + t.timeout/8)
		s.conn.SetWriteDeadline(s.deadline)
	}
	err := ctx.Err() // after setting the deadline, which connect shortens when ctx is done
	if err == nil {
		_, err = s.conn.Write(s.out)
	}
	for _, c := range s.unasked {
		c.ended = t.elapsed()
		c.answer = answer{verdict: unconfirmed}
		if err != nil {
			c.failed = failedBroken
		}
		t.returned <- c
	}
	s.out, s.unasked = s.out[:0], s.unasked[:0]
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.end(failedTimeout)
	case err != nil:
		s.end(failedBroken)
	case drop:
		s.end(failedDropped)
	}
}

// end closes the connection and waits until what was in flight has been returned.
func (s *session) end(why failure) {
	s.mu.Lock()
	s.why = cmp.Or(s.why, why)
	s.mu.Unlock()
	s.conn.Close()
	<-s.ended
}

// check ends the connection if the server owes an answer for too long, and sends a PINGREQ if one is due.
func (s *session) check(ctx context.Context, now time.Time) {
	if s.conn == nil {
		return
	}
	s.mu.Lock()
	t := s.l.t
	overdue := s.pinged && now.Sub(s.wrote) > t.timeout || slices.ContainsFunc(s.inFlight, func(c *connection) bool {
		return c != nil && t.elapsed()-c.sent > t.timeout
	})
	ping := !overdue && !s.pinged && s.pingEvery > 0 && now.Sub(s.wrote) >= s.pingEvery
	s.pinged = s.pinged || ping
	s.mu.Unlock()
	if overdue {
		s.end(failedTimeout)
	} else if ping {
		s.out = append(s.out, packets.Pingreq<<4, 0)
		s.write(ctx, false)
	}
}

// connect connects and starts a goroutine that reads.
func (l *link) connect(ctx context.Context) (*session, failure) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := l.t.dial(dialing)
	if err != nil {
		return nil, failedConnect
	}
	unwatch := context.AfterFunc(dialing, func() { conn.Close() })
	defer unwatch()
	in := newPacketReader(conn, l.version)
	var p packets.Packet
	if _, err = conn.Write(l.hello); err == nil {
		p, err = in.next()
	}
	if failed := l.greeted(&p, err); failed != "" {
		conn.Close()
		return nil, failed
	}
	window, pingEvery := cap(l.queue), keepAlive/2
	if most := int(p.Properties.ReceiveMaximum); l.qos > 0 && most > 0 {
		window = min(window, most)
	}
	if p.Properties.ServerKeepAliveFlag {
		pingEvery = time.Duration(p.Properties.ServerKeepAlive) * time.Second / 2
	}
	s := &session{
		l: l, conn: conn, pingEvery: pingEvery, wrote: time.Now(), inFlight: make([]*connection, cap(l.queue)+1),
		places: make(chan struct{}, window), releases: make(chan uint16, window), ended: make(chan struct{}),
	}
	for range window {
		s.places <- struct{}{}
	}
	go s.read(ctx, in)
	return s, ""
}

// greeted evaluates the first packet of a server, or the error in its place.
func (l *link) greeted(p *packets.Packet, err error) failure {
	if err == nil && (p.FixedHeader.Type != packets.Connack || p.SessionPresent) {
		err = notMQTT("the first packet is not a CONNACK without a session")
	}
	switch code := p.ReasonCode; {
	case errors.Is(err, ErrProtocol):
		l.addFault(err)
		return failedNotMQTT
	case err != nil:
		return failedConnect
	case code != 0:
		failed := named("CONNACK", code)
		if l.version == mqtt311 && (code == 4 || code == 5) || l.version == mqtt5 && (code == 0x86 || code == 0x87 ||
			code == 0x8c) {
			l.abort(fmt.Errorf("the server rejects the credentials: %s", failed))
		}
		return failed
	case p.Properties.MaximumQosFlag && p.Properties.MaximumQos < l.qos:
		l.abort(fmt.Errorf("the server supports QoS %d at most", p.Properties.MaximumQos))
		return failedConnect
	}
	return ""
}

// named returns the name of a reason in reports.
func named(packet string, code byte) string { return fmt.Sprintf("%s 0x%02x", packet, code) }

func (l *link) addFault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < maxLinkFaults {
		l.faults = append(l.faults, err.Error())
	}
}

// read evaluates what the server sends until the connection ends, and then returns what
// was in flight.
func (s *session) read(ctx context.Context, in *packetReader) {
	defer close(s.ended)
	// A write that blocks at the end of the run must not outlast it for long.
	unwatch := context.AfterFunc(ctx, func() { s.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) })
	defer unwatch()
	for {
		p, err := in.next()
		if err == nil {
			err = s.receive(&p)
		}
		if errors.Is(err, ErrProtocol) {
			s.l.addFault(err)
		}
		if err != nil {
			break
		}
	}
	s.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.inFlight {
		switch {
		case c == nil:
			continue
		case c.received: // acknowledged: only the end of the handshake is missing
		case s.why == failedDropped:
			c.dropped = true
		default:
			c.failed = cmp.Or(s.why, failedBroken)
		}
		s.l.t.returned <- c
	}
	s.inFlight = nil
}

// receive evaluates a packet. An error ends the connection.
func (s *session) receive(p *packets.Packet) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := p.FixedHeader.Type
	switch kind {
	case packets.Pingresp:
		s.pinged = false
		return nil
	case packets.Disconnect:
		s.why = cmp.Or(s.why, named("DISCONNECT", p.ReasonCode))
		return io.EOF
	case packets.Connack:
		return notMQTT("a second CONNACK")
	}
	var c *connection
	if int(p.PacketID) < len(s.inFlight) {
		c = s.inFlight[p.PacketID]
	}
	expected := packets.Puback
	if s.l.qos == 2 {
		expected = packets.Pubrec
		if c != nil && c.received {
			expected = packets.Pubcomp
		}
	}
	if c == nil || kind != expected {
		return notMQTT("an acknowledgement that nothing in flight waits for")
	}
	if kind != packets.Pubcomp {
		c.ended = s.l.t.elapsed()
		c.answer = s.l.judge(c, p.ReasonCode)
		if c.received = kind == packets.Pubrec && p.ReasonCode < failureCode; c.received {
			s.releases <- p.PacketID
			return nil
		}
	}
	s.inFlight[p.PacketID] = nil
	s.places <- struct{}{}
	s.l.t.returned <- c
	return nil
}

// failureCode is the least reason code of MQTT 5 that reports a failure.
const failureCode = 0x80

// farAhead is less than what a server tolerates by default of clocks that are fast.
const farAhead = 4 * time.Minute

// mayBeRejected reports whether the server should reject a reading of the request, or may because of
// the device's clock.
func mayBeRejected(r *request) bool {
	latest := time.Now().Add(farAhead).UnixMilli()
	return r.kind == malformedRequest || slices.ContainsFunc(r.samples, func(s sample) bool { return s.timeMs > latest })
}

// judge classifies an acknowledgement with a reason code.
func (l *link) judge(c *connection, code byte) answer {
	if code < failureCode {
		if l.version == mqtt311 && mayBeRejected(&c.request) {
			return answer{verdict: refusedWhole, part: true} // 3.1.1 acknowledges what is rejected, too
		}
		return answer{verdict: accepted, stored: len(c.request.samples)}
	}
	a := answer{verdict: refusedWhole, part: c.request.kind == batchRequest, problem: named("reason", code)}
	switch code {
	case 0x80: // unspecified error
		a.verdict = uncertain
	case 0x97: // quota exceeded
		a.verdict, a.status = refusedNow, 429
		a.retryAfter = min(firstBackoff<<min(c.tries-1, 7), maxBackoff)
		c.out[0] &^= dupFlag // what follows is a new publication
	}
	return a
}
