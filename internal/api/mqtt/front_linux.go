package mqtt

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
)

// maxInLoop is the length of the longest packet that a loop handles.
const maxInLoop = fastparse.MaxBodyBytes

// startLoops starts the event loops.
func (s *Server) startLoops(l net.Listener) (front.Loops, error) {
	cfg := eventloop.Config{
		Handler: func(loop *eventloop.Loop) eventloop.Handler {
			return ingest.NewLane(s.opt.Core, loop, method, route,
				func(lane *ingest.Lane) ingest.Front { return &loopFront{service: &s.service, lane: lane} })
		},
		Memory: s.opt.Core.Memory(), MaxMessage: maxInLoop, Loops: s.opt.Loops, Conns: s.opt.Conns,
		StartTimeout: s.opt.StartTimeout, IdleTimeout: s.opt.StartTimeout, WriteTimeout: s.opt.WriteTimeout,
	}
	if s.opt.TLS {
		cfg.TLS = func(tls.ConnectionState) bool { return true }
	}
	served, err := eventloop.Serve(l, cfg)
	if err != nil {
		return nil, err
	}
	return served, nil
}

// A loopFront is the front of a lane. State of a Conn is its *session.
type loopFront struct {
	*service
	lane *ingest.Lane

	// out holds the answers to packets other than publications, of the connection whose input is handled. They are sent
	// together: a client that sends thousands of pings at once does not cost a system call for each.
	out []byte
}

// What Lane.Settle carries to AppendAnswer: the packet identifier in the low bits, and these.
const (
	tagQoS      = 16      // shift
	tagFarewell = 1 << 18 // the last packet of the session
)

// sessionOf returns the session of a connection.
func sessionOf(c *eventloop.Conn) *session {
	st, ok := c.State.(*session)
	if !ok {
		st = new(session)
		c.State = st
	}
	return st
}

// clientOf returns the credentials that a connection has without a token.
func clientOf(c *eventloop.Conn) gate.Credentials { return gate.Credentials{TLS: c.TLS(), Peer: c} }

// Receive implements ingest.Front.
func (f *loopFront) Receive(c *eventloop.Conn, b []byte, _ bool) (taken int) {
	st := sessionOf(c)
	defer f.flush(c)
	for taken < len(b) && !c.Full() {
		rest := b[taken:]
		if st.version != 0 {
			r, verdict := fastparse.RecognisePublish(rest, st.version == 5)
			if verdict == fastparse.Accept && r.Size <= f.opt.MaxBytes {
				if !f.take(c, st, recognised(rest, &r)) {
					return taken
				}
				taken += r.Size
				continue
			}
		}
		size, start, ok, valid := frame(rest)
		why, opens := st.opens(rest[0])
		switch {
		case !opens:
			f.finish(c, st, why)
		case !valid:
			f.finish(c, st, malformed)
		case ok && f.tooLarge(st, rest[0], size):
			f.finish(c, st, packetTooLarge)
		case ok && size > maxInLoop:
			c.Move()
		case !ok || len(rest) < size:
			f.await(c, st, max(size, len(rest)+1))
		case st.version != 0 && rest[0]>>4 == typePublish:
			var p publication
			if p, why = st.decodePublish(rest[0], rest[start:size]); why != success {
				f.finish(c, st, why)
				return taken
			}
			if f.take(c, st, p) {
				taken += size
				continue
			}
		default:
			f.handle(c, st, rest[0], rest[start:size])
			taken += size
			continue
		}
		return taken
	}
	return taken
}

// await waits for the rest of a packet.
func (f *loopFront) await(c *eventloop.Conn, st *session, need int) {
	c.Need(need)
	if c.Within(f.opt.ReadTimeout); st.version == 0 {
		c.Within(f.opt.StartTimeout)
	}
}

// handle handles a packet that is not a PUBLISH.
func (f *loopFront) handle(c *eventloop.Conn, st *session, first byte, body []byte) {
	connected := st.version != 0
	answer, end := f.control(st, first, body, clientOf(c), c.Guest())
	if !connected && st.version != 0 {
		c.Idle(st.quiet)
	}
	switch {
	case end:
		f.settleFarewell(c, st, answer)
	default:
		f.out = append(f.out, answer...)
		f.slow(c, st, len(body), false)
	}
}

// flush sends the answers to packets other than publications.
func (f *loopFront) flush(c *eventloop.Conn) {
	if len(f.out) > 0 {
		c.Owe()
		c.Send(f.out, 1)
		f.out = f.out[:0]
	}
}

// finish ends a connection with a code, after what is owed.
func (f *loopFront) finish(c *eventloop.Conn, st *session, why code) {
	answer, _ := f.end(st, why)
	f.settleFarewell(c, st, answer)
}

func (f *loopFront) settleFarewell(c *eventloop.Conn, st *session, farewell []byte) {
	f.flush(c)
	st.farewell = farewell
	c.End()
	f.lane.Settle(c, f.lane.Job(), tagFarewell)
}

// take delivers a publication. It returns false if the publication stays where it is: the connection is moved, or not
// read for a while.
func (f *loopFront) take(c *eventloop.Conn, st *session, p publication) bool {
	d := f.delivery(st, p, clientOf(c))
	job, ok := f.lane.Take(&d)
	if !ok {
		c.Move()
		return false
	}
	if why, rejected := job.Refused(); rejected {
		if why.Transient && f.hold(c, st, why.RetryAfter) {
			f.lane.Release(job)
			return false
		}
	}
	st.heldSince = 0
	f.counters.publications[p.qos].Add(1)
	f.flush(c)                // an answer may be sent now
	commits := job.Admitted() // before Settle, which may release the job
	f.lane.Settle(c, job, uint32(p.id)|uint32(p.qos)<<tagQoS)
	f.slow(c, st, len(p.payload), commits)
	return true
}

// slow stops reading a connection for a while after many packets that need no commit.
func (f *loopFront) slow(c *eventloop.Conn, st *session, size int, commits bool) {
	if f.rests(st, size, commits) {
		c.Pause(burstPause)
		c.Within(f.opt.ReadTimeout) // once it is read again
	}
}

// hold stops reading a connection for a while. It returns false if that has lasted long enough.
func (f *loopFront) hold(c *eventloop.Conn, st *session, retryAfter time.Duration) bool {
	now := f.opt.Now().UnixMilli()
	if st.heldSince == 0 {
		st.heldSince = now
	}
	pause := ingest.HoldFor(retryAfter, time.Duration(now-st.heldSince)*time.Millisecond)
	if pause > 0 {
		f.held.Add(1)
		c.Pause(pause)
		c.Within(f.opt.ReadTimeout) // once it is read again
	}
	return pause > 0
}

// Answering implements ingest.Front.
func (*loopFront) Answering() {}

// AppendAnswer implements ingest.Front.
func (f *loopFront) AppendAnswer(dst []byte, m *ingest.Message) ([]byte, int) {
	c := m.Conn
	st := sessionOf(c)
	if m.Tag&tagFarewell != 0 {
		if !c.Gone() && !st.silent {
			dst = append(dst, st.farewell...)
		}
		return dst, 0 // not a publication
	}
	r := f.resultOf(m.Job.Outcome())
	qos := byte(m.Tag >> tagQoS & 3)
	switch {
	case c.Gone(), st.silent:
	case !r.ends(st.version, qos):
		dst = st.appendAck(dst, uint16(m.Tag), qos, r)
	case !st.ended:
		answer, _ := f.end(st, r.code)
		dst = append(dst, answer...)
		st.silent = true
		c.End()
	}
	return dst, r.status()
}

// GiveUp implements ingest.Front.
func (f *loopFront) GiveUp(c *eventloop.Conn, b []byte, why eventloop.Reason) {
	st := sessionOf(c)
	if c.Owed() > 0 || st.ended {
		return
	}
	ending := keepAliveTimeout
	switch {
	case why == eventloop.NoMemory:
		ending = serverBusy
	case why == eventloop.Draining:
		ending = shuttingDown
	case len(b) == 0 && st.version == 0:
		return // it never sent anything
	}
	if answer, _ := f.end(st, ending); answer != nil {
		c.Owe()
		c.Send(answer, 1)
	}
}
