package eventloop

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	eventsPerTurn = 512
	scratchBytes  = 64 << 10
	wheelSlots    = 512
)

// Events with a negative slot do not belong to a connection.
const (
	wakeSlot   int32 = -1
	listenSlot int32 = -2
)

// A Loop is one goroutine that serves connections. A [Server] creates it.
type Loop struct {
	server  *Server
	handler Handler
	epoll   int
	started time.Time
	events  []unix.EpollEvent
	scratch []byte
	staged  []byte // records that are to be sent at once; see session

	// conns holds the connection in each slot, or nil if the slot is free; generations
	// counts the uses of each slot. An event carries both numbers, so that an event
	// fetched before its connection was closed is not attributed to the next connection
	// in the slot.
	conns       []*Conn
	generations []int32
	free        []int32 // slots

	list     []*Conn // to step in this turn; each once
	later    []*Conn // to step in the next turn, without waiting
	turn     uint
	received bool // Receive was called since the last Round
	live     int  // connections that are not forgotten
	draining bool
	stage    int32 // of the server, for which takeOrders was last called
	listens  listenState
	pausedAt int64  // tick
	paused   int    // connections that pause
	hand     int    // where evictIdle continues
	evicted  int64  // tick of the last evictIdle
	turned   uint64 // guests of the server at the last evictIdle
	buffers  buffers
	wheel    *wheel
	due      []int32 // scratch of expire
	now      int64   // tick

	// load is live for the loop that places new connections.
	load atomic.Int64

	// asked is set by Beat until the loop has completed a turn.
	asked atomic.Bool

	inboxMu sync.Mutex
	inbox   []arrival // guarded by inboxMu

	inboxClosed bool // guarded by inboxMu

	// A loop that waits for events is woken by an event of wake, and one that rests
	// by roused; sleep says which. Nothing is sent to a loop that is awake, because it
	// checks called before it sleeps.
	sleep  atomic.Int32 // a sleepKind
	called atomic.Bool
	roused chan struct{}
	wakeMu sync.Mutex
	wake   int // eventfd; -1 when the loop has ended; guarded by wakeMu

	// spare is an unused descriptor, or -1. Moving a connection needs a second descriptor
	// for a moment: if none is left, spare is closed to make room.
	spare int

	rest      time.Duration // see Rest; 0: none
	gather    time.Duration // see Gather; 0: none
	restTimer *time.Timer

	ended chan struct{} // closed when run has ended
}

// newLoop creates a loop without starting it.
func newLoop(s *Server) (_ *Loop, err error) {
	l := &Loop{
		server:  s,
		epoll:   -1,
		wake:    -1,
		spare:   -1,
		started: time.Now(),
		events:  make([]unix.EpollEvent, eventsPerTurn),
		scratch: make([]byte, scratchBytes),
		buffers: buffers{memory: s.cfg.Memory},
		wheel:   newWheel(wheelSlots, 0),
		roused:  make(chan struct{}, 1),
		ended:   make(chan struct{}),

		restTimer: time.NewTimer(time.Hour),
	}
	defer func() {
		if err != nil {
			l.closeOwn()
		}
	}()
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	// Edge-triggered: every write is an event, so the counter need not be read.
	if err := l.watch(l.wake, unix.EPOLLIN|unix.EPOLLET, wakeSlot, 0); err != nil {
		return nil, err
	}
	if l.spare, err = newSpare(); err != nil {
		return nil, err
	}
	l.handler = s.cfg.Handler(l)
	return l, nil
}

// closeOwn closes the descriptors of the loop itself.
func (l *Loop) closeOwn() {
	l.wakeMu.Lock()
	defer l.wakeMu.Unlock()
	for _, fd := range []*int{&l.epoll, &l.wake, &l.spare} {
		if *fd >= 0 {
			_ = unix.Close(*fd) // there is nothing to lose in them
			*fd = -1
		}
	}
}

func (l *Loop) watch(fd int, events uint32, slot, generation int32) error {
	e := unix.EpollEvent{Events: events, Fd: slot, Pad: generation}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

// Wake makes the loop call Woken soon. It may be called by any goroutine, even after
// the loop has ended, and does not block. Calls before Woken count as one.
func (l *Loop) Wake() {
	if l.called.Swap(true) {
		return
	}
	switch l.sleep.Load() {
	case awake:
		return
	case resting:
		select {
		case l.roused <- struct{}{}:
		default: // it is roused already
		}
		return
	}
	l.wakeMu.Lock()
	defer l.wakeMu.Unlock()
	if l.wake >= 0 {
		// The one error is that the counter is full. Then there was an event.
		_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// What a loop sleeps on.
const (
	awake   int32 = iota
	waiting       // for events
	resting       // for Wake
)

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

// run turns until the loop is drained or killed.
func (l *Loop) run() {
	defer close(l.ended)
	defer l.closeOwn()
	for l.takeOrders() {
		l.sleepIn()
		// Answers first: a peer that gets one may have sent its next message before
		// the loop looks, and that message then belongs to this turn.
		l.takeWake()
		l.look(true)
		if l.takeWake() {
			l.look(false)
		}
		l.expire()
		l.list = append(l.list, l.later...)
		clear(l.later)
		l.later = l.later[:0]
		for l.stepAll(); l.received; l.stepAll() {
			l.received = false
			l.handler.Round()
		}
		l.load.Store(int64(l.live))
	}
}

// takeWake handles a Wake, and reports whether to check the connections again because
// it has waited.
func (l *Loop) takeWake() (again bool) {
	if !l.called.Swap(false) {
		return false
	}
	l.now = l.ticks(time.Since(l.started))
	l.asked.Store(false)
	l.takeInbox()
	l.handler.Woken()
	l.resumeAccepting()
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

// sleepIn rests, if Rest was called and there is nothing else to do.
func (l *Loop) sleepIn() {
	d := l.rest
	if l.rest = 0; d <= 0 || len(l.later) > 0 {
		return
	}
	l.sleep.Store(resting)
	// A Wake before this sees sleep or is seen by called.
	if !l.called.Load() {
		l.restTimer.Reset(d)
		select {
		case <-l.roused:
		case <-l.restTimer.C:
		}
	}
	l.sleep.Store(awake)
}

// look fetches the events of the connections. It may wait for some if mayWait is set,
// unless there is other work, or a reason to rest.
func (l *Loop) look(mayWait bool) {
	timeoutMs := 0
	// takeWake may just have handled the Wake of an order given after takeOrders: no other
	// one will come. TestOrderWhileResting checks it.
	ordered := l.server.orders.Load() != l.stage
	if mayWait && !ordered && len(l.later) == 0 && len(l.list) == 0 && l.rest == 0 {
		l.sleep.Store(waiting)
		if !l.called.Load() {
			timeoutMs = l.timeoutMs()
		}
	}
	n, err := unix.EpollWait(l.epoll, l.events, timeoutMs)
	l.sleep.Store(awake)
	if err != nil && !errors.Is(err, unix.EINTR) {
		// Promise: the descriptor and the events are valid, which leaves no other
		// error (epoll_wait(2)).
		panic("eventloop: wait for events: " + err.Error())
	}
	l.turn++
	l.now = l.ticks(time.Since(l.started))
	for i := range l.events[:max(n, 0)] {
		l.event(&l.events[i])
	}
}

// timeoutMs returns how long the loop may sleep: until the next tick if a timer is set
// or accepting has paused, otherwise forever.
func (l *Loop) timeoutMs() int {
	if l.wheel.count == 0 && !l.acceptsNone() {
		return -1
	}
	return max(int(l.server.cfg.Tick/time.Millisecond), 1)
}

// ticks returns d in ticks, rounded up.
func (l *Loop) ticks(d time.Duration) int64 {
	return int64((d + l.server.cfg.Tick - 1) / l.server.cfg.Tick)
}

// event handles one event.
func (l *Loop) event(e *unix.EpollEvent) {
	switch e.Fd {
	case wakeSlot:
		return
	case listenSlot:
		l.accept()
		return
	}
	c := l.conns[e.Fd]
	if c == nil || l.generations[e.Fd] != e.Pad {
		return
	}
	if e.Events&unix.EPOLLERR != 0 {
		if c.session != nil {
			c.session.failed = true
		}
		l.broken(c)
		return
	}
	if e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP) != 0 {
		c.readable = true
	}
	if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP) != 0 {
		c.hangsUp = true
	}
	if e.Events&unix.EPOLLOUT != 0 && c.out != nil {
		l.flush(c)
		l.enlist(c) // it has another deadline now
	} else if c.next() != wait {
		l.enlist(c)
	}
}

// enlist puts c on the list of this turn.
func (l *Loop) enlist(c *Conn) {
	if !c.listed {
		c.listed = true
		l.list = append(l.list, c)
	}
}

// stepAll steps every connection in the list, including those added meanwhile.
func (l *Loop) stepAll() {
	for i := 0; i < len(l.list); i++ {
		c := l.list[i]
		l.list[i] = nil
		c.listed = false
		l.step(c)
	}
	l.list = l.list[:0]
}

// step performs the next actions of c. It reads at most once in a turn.
func (l *Loop) step(c *Conn) {
	for {
		switch c.next() {
		case wait:
			l.schedule(c)
			return
		case read, discard:
			if c.turn == l.turn {
				c.listed = true
				l.later = append(l.later, c)
				return
			}
			c.turn = l.turn
			l.read(c)
		case offer:
			l.offer(c)
		case give:
			l.give(c)
		case linger:
			l.linger(c)
		case shut:
			l.shut(c)
		case forget:
			l.forget(c)
			return
		}
		if l.draining {
			c.drain()
		}
	}
}

// schedule sets the deadline of a connection that waits.
func (l *Loop) schedule(c *Conn) {
	switch {
	case c.fd < 0:
	case c.lingering, c.out != nil: // set when that began
	case c.owed > 0:
		c.deadline = never
	case c.paused:
		l.setDeadline(c, c.pauseEnd)
	case c.in != nil:
		l.setDeadline(c, c.began+c.within)
	case c.fresh:
	case c.expect > 0:
		l.setDeadline(c, c.expect)
	default:
		if c.idleEnd == 0 { // since the last message or answer; parts of a TLS record are neither
			c.idleEnd = l.now + l.server.idleTicks
		}
		l.setDeadline(c, c.idleEnd)
	}
}

// setDeadline sets the deadline of c. It moves the timer only if the deadline is
// earlier: most deadlines are extended many times before they expire.
func (l *Loop) setDeadline(c *Conn, at int64) {
	if c.deadline = at; at < c.armed {
		c.armed = at
		l.wheel.set(c.slot, at)
	}
}

// expire ends the connections whose deadline has passed.
func (l *Loop) expire() {
	l.due = l.wheel.advance(l.now, l.due[:0])
	for _, slot := range l.due {
		c := l.conns[slot]
		c.armed = never
		switch {
		case c.deadline == never:
		case c.deadline > l.now:
			l.setDeadline(c, c.deadline)
		case c.paused && c.goal == serve && c.out == nil:
			l.unpause(c)
		default:
			l.server.expired.Add(1)
			l.giveUp(c, TooSlow)
		}
	}
	if l.now > l.pausedAt {
		l.resumeAccepting()
	}
	l.evictIdle()
}

// giveUp ends a connection whose message will not be completed.
func (l *Loop) giveUp(c *Conn, why Reason) {
	if c.in == nil || c.out != nil || c.lingering {
		l.shut(c)
	} else {
		in := c.in
		c.in = nil
		l.handler.GiveUp(c, in, why)
		l.buffers.put(c.place.Holder, in)
		c.goal = end
	}
	l.enlist(c)
}
