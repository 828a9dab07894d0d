package eventloop

import (
	"sync"

	"github.com/pulsegate/pulsegate/internal/wire/share"
	"golang.org/x/sys/unix"
)

// acceptsPerTurn bounds how long accepting delays the other connections.
const acceptsPerTurn = 128

// An acceptor accepts the connections of a Server. It belongs to the first loop. When there can
// be no more, it pauses: the listener is not watched until the next tick.
type acceptor struct {
	loop     *Loop
	listener int // own descriptor of the listener's socket; -1: closed, or with TLS
	paused   bool
	pausedAt int64 // tick
}

// listen starts to watch the listener.
func (a *acceptor) listen() error {
	a.paused = false
	// Level-triggered: epoll reports connections not accepted in this turn again.
	return a.loop.poller.watch(a.listener, unix.EPOLLIN, listenSlot, 0)
}

// accept accepts connections and places each with the least loaded loop. more reports whether
// the backlog may hold further ones.
func (a *acceptor) accept() (more bool) {
	s := a.loop.server
	for range acceptsPerTurn {
		if s.conns.Full() {
			a.pause()
			return false
		}
		fd, peer, err := unix.Accept4(a.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			s.accepted.Add(1)
			place, ok := s.conns.Enter(addrOf(peer))
			if !ok {
				_ = unix.Close(fd) // its address has more than its share
				continue
			}
			s.place(arrival{fd, place, nil}, a.loop)
		case unix.EAGAIN:
			return false
		case unix.EINTR, unix.ECONNABORTED:
		default:
			// EMFILE, ENFILE, ENOBUFS and ENOMEM pass when others close. So may
			// network errors, which accept(2) returns as its own.
			s.acceptErrors.Add(1)
			a.pause()
			return false
		}
	}
	return true
}

func (a *acceptor) pause() {
	// An error means that it is not watched.
	_ = a.loop.poller.unwatch(a.listener)
	a.paused, a.pausedAt = true, a.loop.timers.now
	a.loop.server.crowded.Store(true)
}

func (a *acceptor) resume() {
	s := a.loop.server
	if !a.paused || s.conns.Full() {
		return
	}
	s.crowded.Store(false)
	if a.listen() != nil {
		a.paused, a.pausedAt = true, a.loop.timers.now // no memory; at the next tick again
	}
}

// stop accepts the backlog, as far as there are places, and closes the listener: connections in
// the backlog may have sent requests.
func (a *acceptor) stop() {
	if a.listener >= 0 {
		for a.accept() {
		}
		a.paused = false
		// Closing it does not suffice if another process has the socket open: epoll(7), question 6.
		_ = a.loop.poller.unwatch(a.listener) // an error means that it is not watched
		closeFD(&a.listener)
	}
}

// left releases the place of a connection. If accepting has paused for lack of places, it
// resumes before the next tick.
func (s *Server) left(place share.Place) {
	s.conns.Leave(place)
	if s.crowded.Load() {
		s.loops[0].Wake() // the one that accepts
	}
}

// An arrival is a connection that no loop has yet.
type arrival struct {
	fd      int
	place   share.Place
	session *session // nil means no TLS
}

// place passes a new connection to the loop with the fewest connections or, while the Server
// stops, to the one that accepts: others may have ended. It runs on the goroutine of the loop
// from, or on another one if from is nil.
func (s *Server) place(a arrival, from *Loop) {
	least := s.loops[0]
	if s.orders.Load() == running {
		for _, l := range s.loops[1:] {
			if l.load.Load() < least.load.Load() {
				least = l
			}
		}
	}
	least.load.Add(1)
	if least == from {
		least.add(a)
		return
	}
	if !least.inbox.put(a) {
		_ = unix.Close(a.fd) // the loop has ended
		s.left(a.place)
	}
	least.Wake()
}

// An inbox holds the arrivals that other goroutines have placed with a loop.
type inbox struct {
	mu       sync.Mutex
	arrivals []arrival // guarded by mu
	closed   bool      // guarded by mu
}

// put adds an arrival, and reports false if the inbox is closed.
func (b *inbox) put(a arrival) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.arrivals = append(b.arrivals, a)
	}
	return !b.closed
}

// take returns the arrivals and empties the inbox.
func (b *inbox) take() []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	arrivals := b.arrivals
	b.arrivals = nil
	return arrivals
}

// close closes an empty inbox. It reports false if there are arrivals to take.
func (b *inbox) close() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = len(b.arrivals) == 0
	return b.closed
}

// evictPerTick bounds how long the search for idle connections delays the others.
const evictPerTick = 4096

// An evictor closes idle connections of a loop to make room for others. It goes through the
// connections in turn, like the hand of a clock.
type evictor struct {
	hand   int
	at     int64  // tick of the last eviction
	guests uint64 // of the server, at that tick
}

// evict closes connections that have been idle for CrowdedTimeout, if guests have
// come for their places since the last tick ([share.Conns.GiveWay]).
func (e *evictor) evict(l *Loop) {
	s, now := l.server, l.timers.now
	if now == e.at {
		return
	}
	guests, crowded := s.conns.Guests(), s.crowded.Load()
	newGuests := guests != e.guests
	e.at, e.guests = now, guests
	if crowded {
		s.conns.Want() // others may wait that cannot even be guests
	}
	if !newGuests && !crowded {
		return
	}
	for range min(evictPerTick, len(l.table.conns)) {
		e.hand = (e.hand + 1) % len(l.table.conns)
		c := l.table.conns[e.hand]
		if c == nil || !c.isIdle() {
			continue
		}
		within := l.timers.idleOf(c)
		if c.fresh {
			within = l.timers.start
		}
		if since := l.timers.deadlines[c.slot] - within; now-since < l.timers.crowded {
			continue
		}
		if s.conns.GiveWay(c.place) {
			s.expired.Add(1)
			l.broken(c)
		}
	}
}

// isIdle reports whether c only waits for the start of a message. Guests do not count:
// their timeout is short anyway.
func (c *Conn) isIdle() bool {
	return c.in == nil && c.out == nil && c.owed == 0 && c.goal == serve && !c.paused && !c.listed && !c.place.Guest &&
		c.expect == 0
}
