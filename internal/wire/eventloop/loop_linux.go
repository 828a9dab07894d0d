package eventloop

import (
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"golang.org/x/sys/unix"
)

// A Loop is one goroutine that serves connections. A [Server] creates it.
//
// Its parts have one task each: the poller waits, the timers tell what is due, the input reads
// and calls the handler, the output writes. The Loop decides what happens next, with Conn.next.
type Loop struct {
	server   *Server
	poller   poller
	timers   timers
	table    table
	input    input
	output   output
	buffers  buffers
	inbox    inbox
	acceptor acceptor
	evictor  evictor
	spare    spare

	steps    []*Conn // to step in this turn; each once
	later    []*Conn // to step in the next turn, without waiting
	turn     uint
	live     int // connections that are not forgotten
	pauses   int // connections that pause
	draining bool
	stage    int32         // of the server, for which takeOrders was last called
	rest     time.Duration // see Rest; 0 means none
	gather   time.Duration // see Gather; 0 means none

	// load is live for the loop that places new connections.
	load atomic.Int64

	// asked is set by Beat until the loop has completed a turn.
	asked atomic.Bool

	ended chan struct{} // closed when run has ended
}

// newLoop creates a loop without starting it. listener is the descriptor from which it accepts,
// which it owns even after an error; -1 means none.
func newLoop(s *Server, listener int) (_ *Loop, err error) {
	l := &Loop{
		server:  s,
		timers:  timers{limits: newLimits(&s.cfg), started: time.Now()},
		buffers: buffers{memory: s.cfg.Memory},
		spare:   spare{fd: -1},
		ended:   make(chan struct{}),
	}
	l.acceptor = acceptor{loop: l, listener: listener}
	l.input = input{loop: l, scratch: make([]byte, scratchBytes)}
	l.output = output{loop: l}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := l.poller.open(); err != nil {
		return nil, err
	}
	if err := l.spare.open(); err != nil {
		return nil, err
	}
	l.input.handler = s.cfg.Handler(l)
	return l, nil
}

// close closes the descriptors of the loop itself.
func (l *Loop) close() {
	l.poller.close()
	closeFD(&l.acceptor.listener)
	closeFD(&l.spare.fd)
}

// Wake makes the loop call Woken soon. It may be called by any goroutine, even after
// the loop has ended, and does not block. Calls before Woken count as one.
func (l *Loop) Wake() { l.poller.wake() }

// Rest makes the loop check its connections only after the next Wake or after d,
// whichever comes first. It applies to this turn.
//
// While work is in progress whose completion calls Wake, a loop that rests finds
// more connections ready at once and waits once for all of them; otherwise it is
// woken for each. d bounds the delay if the work takes long.
func (l *Loop) Rest(d time.Duration) { l.rest = d }

// Gather makes the loop wait for d before it checks its connections. It is for Woken:
// the answers just sent bring the next messages, and what arrives within d is read in
// one turn. Nothing ends the wait early, so d should be short.
func (l *Loop) Gather(d time.Duration) { l.gather = d }

// Paused returns the number of paused connections.
func (l *Loop) Paused() int { return l.pauses }

// run turns until the loop is drained or killed.
func (l *Loop) run() {
	defer close(l.ended)
	defer l.close()
	for l.takeOrders() {
		d := l.rest
		if l.rest = 0; d > 0 && len(l.later) == 0 {
			l.poller.rest(d)
		}
		// Answers first: a peer that gets one may have sent its next message before
		// the loop looks, and that message then belongs to this turn.
		l.takeWake()
		l.look(true)
		if l.takeWake() {
			l.look(false)
		}
		l.expire()
		l.steps = append(l.steps, l.later...)
		clear(l.later)
		l.later = l.later[:0]
		for l.stepAll(); l.input.received; l.stepAll() {
			l.input.received = false
			l.input.handler.Round()
		}
		l.load.Store(int64(l.live))
	}
}

// takeWake handles a Wake, and reports whether to check the connections again because
// it has waited.
func (l *Loop) takeWake() (again bool) {
	if !l.poller.called.Swap(false) {
		return false
	}
	l.timers.update()
	l.asked.Store(false)
	for _, a := range l.inbox.take() {
		l.add(a)
	}
	l.input.handler.Woken()
	l.acceptor.resume()
	if l.gather <= 0 {
		return false
	}
	// It is a system call because the runtime's timers are not fine enough: a process
	// with nothing else to do rounds them up to a millisecond.
	t := unix.NsecToTimespec(l.gather.Nanoseconds())
	for unix.Nanosleep(&t, &t) == unix.EINTR { // a signal of the runtime's; t is what is left
	}
	l.gather = 0
	return true
}

// look fetches the events of the connections. It may wait for some if mayWait is set,
// unless there is other work, or a reason to rest.
func (l *Loop) look(mayWait bool) {
	timeoutMs := 0
	// takeWake may just have handled the Wake of an order given after takeOrders: no other
	// one will come. TestOrderWhileResting checks it.
	ordered := l.server.orders.Load() != l.stage
	if mayWait && !ordered && len(l.later) == 0 && len(l.steps) == 0 && l.rest == 0 {
		timeoutMs = -1
		if l.live > 0 || l.acceptor.paused { // until the next tick
			timeoutMs = max(int(l.timers.tick/time.Millisecond), 1)
		}
	}
	events := l.poller.wait(timeoutMs)
	l.turn++
	l.timers.update()
	for i := range events {
		l.event(&events[i])
	}
}

// event handles one event.
func (l *Loop) event(e *unix.EpollEvent) {
	switch e.Fd {
	case wakeSlot:
		return
	case listenSlot:
		l.acceptor.accept()
		return
	}
	c := l.table.find(e.Fd, e.Pad)
	if c == nil {
		return
	}
	if e.Events&unix.EPOLLERR != 0 {
		l.outlast(c, listen.MaxUnread)
		return
	}
	if e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP) != 0 {
		c.readable = true
	}
	if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP) != 0 {
		c.hangsUp = true
	}
	if e.Events&unix.EPOLLOUT != 0 && c.out != nil {
		l.output.flush(c)
		l.enlist(c) // it has another deadline now
	} else if c.next() != wait {
		l.enlist(c)
	}
}

// enlist puts c on the list of this turn.
func (l *Loop) enlist(c *Conn) {
	if !c.listed {
		c.listed = true
		l.steps = append(l.steps, c)
	}
}

// settle enlists c if there is something to do for it, and otherwise sets its deadline.
func (l *Loop) settle(c *Conn) {
	if c.next() == wait {
		l.timers.schedule(c)
	} else {
		l.enlist(c)
	}
}

// stepAll steps every connection in the list, including those that steps add.
func (l *Loop) stepAll() {
	for i := 0; i < len(l.steps); i++ {
		c := l.steps[i]
		l.steps[i] = nil
		c.listed = false
		l.step(c)
	}
	l.steps = l.steps[:0]
}

// step performs the next actions of c. It reads at most once in a turn.
func (l *Loop) step(c *Conn) {
	for {
		switch c.next() {
		case wait:
			l.timers.schedule(c)
			return
		case read, discard:
			if c.turn == l.turn {
				c.listed = true
				l.later = append(l.later, c)
				return
			}
			c.turn = l.turn
			l.input.read(c)
		case offer:
			l.input.offer(c)
		case give:
			l.give(c)
		case linger:
			l.linger(c)
		case shut:
			l.shut(c)
		case forget:
			if c.loop != nil {
				c.loop = nil
				l.live--
			}
			return
		}
		if l.draining {
			c.drain()
		}
	}
}

// expire ends the connections whose deadline has passed.
func (l *Loop) expire() {
	for _, slot := range l.timers.expired() {
		c := l.table.conns[slot]
		if c.paused && c.goal == serve && c.out == nil {
			c.endPause()
			l.settle(c)
			continue
		}
		l.server.expired.Add(1)
		l.input.giveUp(c, TooSlow)
	}
	if l.timers.now > l.acceptor.pausedAt {
		l.acceptor.resume()
	}
	l.evictor.evict(l)
}

// add adds a new connection to the loop.
func (l *Loop) add(a arrival) {
	// Otherwise an answer may wait for the acknowledgement of the previous one. It
	// fails for sockets without such a delay.
	_ = unix.SetsockoptInt(a.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c := &Conn{loop: l, fd: a.fd, place: a.place, session: a.session, fresh: true}
	if a.session != nil {
		a.session.conn, c.tlsState, c.tlsVersion = c, a.session.state, a.session.version
	}
	generation := l.table.add(c)
	l.live++
	const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET
	if err := l.poller.watch(c.fd, events, c.slot, generation); err != nil {
		l.broken(c) // no memory for one more
		return
	}
	within := l.timers.start
	if c.place.Guest {
		within = min(within, l.timers.crowded)
	}
	l.timers.set(c, l.timers.now+within)
	if l.draining || a.session != nil {
		c.readable = true // it may have brought a request, with TLS in its handshake
		l.enlist(c)
	}
}

// linger half-closes a connection that is ending. If it were closed with input unread,
// the kernel would reset it and the peer might lose the last answer (RFC 9112, section
// 9.6).
func (l *Loop) linger(c *Conn) {
	if c.session != nil {
		if c.session.end(); c.fd < 0 || c.out != nil {
			return // called again once the output is sent
		}
	}
	if c.idle || c.fresh || c.ended {
		l.shut(c)
		return
	}
	l.buffers.put(c.place.Holder, c.in)
	c.in = nil
	if err := unix.Shutdown(c.fd, unix.SHUT_WR); err != nil {
		l.broken(c)
		return
	}
	c.lingering = true
	c.readable = true
	l.timers.set(c, l.timers.now+l.timers.linger)
}

// broken closes a connection that failed.
func (l *Loop) broken(c *Conn) {
	l.shut(c)
	l.enlist(c)
}

// outlast drops the output of a connection after a failed write, and closes the connection once everything that has
// arrived is read, at most readLeft bytes. If the connection is ending, or there is no more input, it is closed at
// once.
func (l *Loop) outlast(c *Conn, readLeft int) {
	again := c.noOutput
	c.noOutput = true
	switch {
	case c.lingering, c.ended && !c.offerable, c.goal == end, l.draining:
		l.broken(c)
		return
	case again:
		return
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_WR) // if moved, c has no output either; an error means that it has none now
	l.buffers.put(c.place.Holder, c.out)
	c.out, c.sent, c.readLeft = nil, 0, readLeft
	c.readable, c.hangsUp = true, true
	l.enlist(c)
}

// shut closes the descriptor. Answers still owed are counted but not sent.
func (l *Loop) shut(c *Conn) {
	if c.fd < 0 {
		return
	}
	if c.session != nil {
		c.session.closeNotify()
	}
	// An error reports an earlier failure; the descriptor is closed (close(2)).
	_ = unix.Close(c.fd)
	l.detach(c)
	l.server.left(c.place)
}

// detach removes c from the table. Its descriptor is closed, or has another owner.
func (l *Loop) detach(c *Conn) {
	l.buffers.put(c.place.Holder, c.in)
	l.buffers.put(c.place.Holder, c.out)
	if c.session != nil {
		c.session.release()
	}
	c.in, c.out, c.session, c.fd = nil, nil, nil, -1
	c.endPause()
	l.timers.set(c, never)
	l.table.remove(c)
}

// A table holds the connections of a loop by their slots. An event carries the slot of its
// connection and how often that was used before, so that an event fetched before a connection
// was closed is not attributed to the next one in its slot.
type table struct {
	conns       []*Conn // by slot; nil means it is free
	generations []int32 // by slot: how often it was used
	free        []int32 // slots
}

// add assigns a slot to c, and returns the slot's generation.
func (t *table) add(c *Conn) (generation int32) {
	c.slot = int32(len(t.conns))
	if n := len(t.free); n > 0 {
		c.slot = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		t.conns = append(t.conns, nil)
		t.generations = append(t.generations, 0)
	}
	t.conns[c.slot] = c
	return t.generations[c.slot]
}

func (t *table) remove(c *Conn) {
	t.conns[c.slot] = nil
	t.generations[c.slot]++
	t.free = append(t.free, c.slot)
}

// find returns the connection of an event, or nil if it is closed.
func (t *table) find(slot, generation int32) *Conn {
	if t.generations[slot] != generation {
		return nil
	}
	return t.conns[slot]
}
