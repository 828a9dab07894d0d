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
//
// The goroutine of serve connects and writes; a goroutine per connection to the server
// reads. The one that reads ends a broken connection and returns what was in flight.
type link struct {
	t        *transport
	version  byte
	qos      byte
	hello    []byte // the CONNECT
	abort    context.CancelCauseFunc
	wake     chan struct{} // has capacity 1
	inFlight []*connection // by packet identifier, from 1; guarded by mu

	// State of serve.
	out      []byte        // packets to write
	unasked  []*connection // their publications with QoS 0
	deadline time.Time     // for writing
	checked  time.Time

	mu        sync.Mutex // guards the following fields
	queue     []*connection
	flying    int  // connections in inFlight
	window    int  // upper bound of flying
	full      bool // the window was full when the queue was last looked at
	control   []byte
	conn      net.Conn // nil means not connected
	why       failure  // why the connection was ended, if not by the server
	pingEvery time.Duration
	wrote     time.Time // when conn was last written to
	pinged    bool      // since then, without an answer
	faults    []string
}

// failedDropped is the end of a connection because of [Drop]; it is not reported as a failure.
const failedDropped failure = "dropped"

func newLink(t *transport, opt *Options, number int32, abort context.CancelCauseFunc) *link {
	version := byte(mqtt311)
	if opt.MQTTVersion == "5" {
		version = mqtt5
	}
	name := string(appendNumbered(nil, "gw-", number))
	user := opt.MQTT.user
	if user == "" && opt.Token == "" && len(opt.MQTT.certs) == 0 {
		user = name
	}
	return &link{
		t: t, version: version, qos: byte(opt.QoS), abort: abort, wake: make(chan struct{}, 1),
		hello:    connect(version, "sim-"+opt.Run+"-"+name, user, opt.Token, uint16(keepAlive/time.Second)),
		inFlight: make([]*connection, opt.InFlight+1),
	}
}

// submit queues a try. The caller gives c up until it comes back through
// transport.returned.
func (l *link) submit(c *connection) {
	l.mu.Lock()
	l.queue = append(l.queue, c)
	l.mu.Unlock()
	l.signal()
}

// signal wakes serve.
func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// serve performs tries until ctx is done. It waits for the goroutine that it starts.
func (l *link) serve(ctx context.Context) {
	var readers sync.WaitGroup
	defer readers.Wait()
	defer l.disconnect()
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
		for wait := time.Duration(0); wait == 0; {
			if now := time.Now(); now.Sub(l.checked) >= checkEvery {
				l.checked = now
				l.check(now)
			}
			conn, drop := net.Conn(nil), false
			if conn, wait, drop = l.fill(); conn != nil {
				l.write(ctx, conn, drop)
			} else if wait == 0 {
				l.connect(ctx, &readers)
			}
			timer.Reset(cmp.Or(wait, checkEvery))
		}
	}
}

// fill moves what is to be written now to l.out, and returns the connection to write it to.
// Without a connection, it returns nil, and a wait of 0 if one is needed. A wait is until fill should
// be called again. drop means that the connection must be closed after the write.
func (l *link) fill() (conn net.Conn, wait time.Duration, drop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait = checkEvery
	if l.conn != nil && l.why != "" {
		return nil, wait, false // it is ending; read calls signal when it has ended
	}
	l.out = append(l.out[:0], l.control...)
	l.control = l.control[:0]
	var now time.Duration
	if len(l.queue) > 0 { // before the first request, the start of the run is not set
		now = l.t.elapsed()
	}
	kept := l.queue[:0]
	for _, c := range l.queue {
		switch {
		case c.resumes > now:
			wait = min(wait, c.resumes-now)
			kept = append(kept, c)
		case l.conn == nil, drop, len(l.out) >= maxWriteBytes:
			wait = 0
			kept = append(kept, c)
		case !c.live: // it only asked for a connection
			c.begin(-1)
			l.t.returned <- c
		case l.flying >= l.window:
			l.full = true // whoever is removed from inFlight calls signal
			kept = append(kept, c)
		default:
			if l.full {
				c.free = now // the server caused the wait
			}
			drop = l.take(c, now)
		}
	}
	l.full = l.full && len(kept) > 0
	clear(l.queue[len(kept):])
	l.queue = kept
	if l.conn == nil || len(l.out) == 0 && !drop {
		return nil, wait, false
	}
	l.wrote = time.Now()
	return l.conn, wait, drop
}

// take appends a publication to l.out. It reports whether the connection must be closed after it.
func (l *link) take(c *connection, now time.Duration) (drop bool) {
	c.begin(now)
	l.out = append(l.out, c.out...)
	if l.qos == 0 {
		l.unasked = append(l.unasked, c)
		return false
	}
	c.out[0] |= dupFlag // if it is sent again
	l.inFlight[c.id] = c
	l.flying++
	return c.request.drop && c.tries == 1
}

// write writes l.out. The goroutine that reads learns of errors by the closed connection.
func (l *link) write(ctx context.Context, conn net.Conn, drop bool) {
	now := time.Now()
	if l.deadline.Sub(now) < l.t.timeout { // not for every write, because that is costly
		l.deadline = now.Add(l.t.timeout + l.t.timeout/8)
		conn.SetWriteDeadline(l.deadline)
	}
	err := ctx.Err() // after setting the deadline, which connect shortens when ctx is done
	if err == nil {
		_, err = conn.Write(l.out)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.end(conn, failedTimeout)
	case err != nil:
		l.end(conn, failedBroken)
	case drop:
		l.end(conn, failedDropped)
	}
	for _, c := range l.unasked {
		c.ended = l.t.elapsed()
		c.answer = answer{verdict: unconfirmed}
		if err != nil {
			c.failed = failedBroken
		}
		l.t.returned <- c
	}
	l.unasked = l.unasked[:0]
}

// check ends the connection if the server owes an answer for too long, and queues a PINGREQ
// if one is due.
func (l *link) check(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return
	}
	overdue := l.pinged && now.Sub(l.wrote) > l.t.timeout
	for _, c := range l.inFlight {
		overdue = overdue || c != nil && l.t.elapsed()-c.sent > l.t.timeout
	}
	switch {
	case overdue:
		l.endLocked(l.conn, failedTimeout)
	case !l.pinged && l.pingEvery > 0 && now.Sub(l.wrote) >= l.pingEvery:
		l.control, l.pinged = append(l.control, packets.Pingreq<<4, 0), true
	}
}

// end closes the connection.
func (l *link) end(conn net.Conn, why failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(conn, why)
}

func (l *link) endLocked(conn net.Conn, why failure) {
	if l.conn == conn {
		l.why = cmp.Or(l.why, why)
	}
	conn.Close()
}

// disconnect says goodbye.
func (l *link) disconnect() {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		_, _ = conn.Write([]byte{packets.Disconnect << 4, 0}) // the run is over: an error changes nothing
		conn.Close()
	}
}

// connect connects and starts a goroutine that reads. If that fails, so do the tries that are due.
func (l *link) connect(ctx context.Context, readers *sync.WaitGroup) {
	conn, in, hello, failed := l.dial(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if failed == "" {
		l.conn, l.why, l.full, l.pinged = conn, "", false, false
		l.deadline, l.wrote = time.Time{}, time.Now()
		l.window, l.pingEvery = len(l.inFlight)-1, keepAlive/2
		if most := int(hello.Properties.ReceiveMaximum); l.qos > 0 && most > 0 {
			l.window = min(l.window, most)
		}
		if hello.Properties.ServerKeepAliveFlag {
			l.pingEvery = time.Duration(hello.Properties.ServerKeepAlive) * time.Second / 2
		}
		// A write that blocks at the end of the run must not outlast it for long.
		unwatch := context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) })
		readers.Go(func() {
			defer unwatch()
			l.read(conn, in)
		})
		return
	}
	now := l.t.elapsed() // the queue is not empty
	kept := l.queue[:0]
	for _, c := range l.queue {
		if c.resumes > now {
			kept = append(kept, c)
			continue
		}
		c.begin(-1)
		c.failed = failed
		l.t.returned <- c
	}
	l.queue = kept
}

// dial connects and waits for the CONNACK.
func (l *link) dial(ctx context.Context) (net.Conn, *packetReader, *packets.Packet, failure) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := l.t.dial(dialing)
	if err != nil {
		return nil, nil, nil, failedConnect
	}
	unwatch := context.AfterFunc(dialing, func() { conn.Close() })
	defer unwatch()
	in := newPacketReader(conn, l.version)
	var p packets.Packet
	if _, err = conn.Write(l.hello); err == nil {
		p, err = in.next()
	}
	if err == nil && (p.FixedHeader.Type != packets.Connack || p.SessionPresent) {
		err = notMQTT("the first packet is not a CONNACK without a session")
	}
	failed := failure("")
	switch code := p.ReasonCode; {
	case errors.Is(err, ErrNotMQTT):
		l.addFault(err)
		failed = failedNotMQTT
	case err != nil:
		failed = failedConnect
	case code != 0:
		failed = named("CONNACK", code)
		if l.version == mqtt311 && (code == 4 || code == 5) || l.version == mqtt5 && (code == 0x86 || code == 0x87 || code == 0x8c) {
			l.abort(fmt.Errorf("sim: the server rejects the credentials: %s", failed))
		}
	case p.Properties.MaximumQosFlag && p.Properties.MaximumQos < l.qos:
		failed = failedConnect
		l.abort(fmt.Errorf("sim: the server supports QoS %d at most", p.Properties.MaximumQos))
	}
	if failed != "" {
		conn.Close()
	}
	return conn, in, &p, failed
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
func (l *link) read(conn net.Conn, in *packetReader) {
	for {
		p, err := in.next()
		if err == nil {
			err = l.receive(&p)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, ErrNotMQTT) {
			l.addFault(err)
		}
		conn.Close()
		break
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.flying, l.control = nil, 0, l.control[:0]
	for id, c := range l.inFlight {
		if c == nil {
			continue
		}
		l.inFlight[id] = nil
		switch {
		case c.received: // acknowledged: only the end of the handshake is missing
		case l.why == failedDropped:
			c.dropped = true
		default:
			c.failed = cmp.Or(l.why, failedBroken)
		}
		l.t.returned <- c
	}
	l.signal() // the queue may wait
}

// receive evaluates a packet. An error ends the connection.
func (l *link) receive(p *packets.Packet) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := p.FixedHeader.Type
	switch kind {
	case packets.Pingresp:
		l.pinged = false
		return nil
	case packets.Disconnect:
		l.why = cmp.Or(l.why, named("DISCONNECT", p.ReasonCode))
		return io.EOF
	case packets.Connack:
		return notMQTT("a second CONNACK")
	}
	var c *connection
	if int(p.PacketID) < len(l.inFlight) {
		c = l.inFlight[p.PacketID]
	}
	expected := packets.Puback
	if l.qos == 2 {
		expected = packets.Pubrec
		if c != nil && c.received {
			expected = packets.Pubcomp
		}
	}
	if c == nil || kind != expected {
		return notMQTT("an acknowledgement that nothing in flight waits for")
	}
	if kind != packets.Pubcomp {
		c.ended = l.t.elapsed()
		c.answer = l.judge(c, p.ReasonCode)
		if c.received = kind == packets.Pubrec && p.ReasonCode < failureCode; c.received {
			l.control = appendPubrel(l.control, p.PacketID)
			l.signal()
			return nil
		}
	}
	l.inFlight[p.PacketID] = nil
	l.flying--
	if len(l.queue) > 0 {
		l.signal()
	}
	l.t.returned <- c
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
