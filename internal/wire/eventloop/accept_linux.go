package eventloop

import (
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"golang.org/x/sys/unix"
)

// acceptsPerTurn bounds how long accepting delays the other connections.
const acceptsPerTurn = 128

// accept accepts connections and places each with the least loaded loop. When there can
// be no more, accepting pauses: the listener is not watched until the next tick. more
// reports whether the backlog may hold further ones.
func (l *Loop) accept() (more bool) {
	s := l.server
	for range acceptsPerTurn {
		if s.full() {
			l.pauseAccepting()
			return false
		}
		fd, peer, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			s.accepted.Add(1)
			place, ok := s.conns.Enter(addrOf(peer))
			if !ok {
				_ = unix.Close(fd) // its address has more than its share
				continue
			}
			s.leastLoaded().place(arrival{fd, place, nil}, l)
		case unix.EAGAIN:
			return false
		case unix.EINTR, unix.ECONNABORTED:
		default:
			// EMFILE, ENFILE, ENOBUFS and ENOMEM pass when others close. So may
			// network errors, which accept(2) returns as its own.
			s.acceptErrors.Add(1)
			l.pauseAccepting()
			return false
		}
	}
	return true
}

// leastLoaded returns the loop with the fewest connections. While the Server stops it
// returns the one that accepts: others may have ended.
func (s *Server) leastLoaded() *Loop {
	least := s.loops[0]
	if s.orders.Load() != running {
		return least
	}
	for _, l := range s.loops[1:] {
		if l.load.Load() < least.load.Load() {
			least = l
		}
	}
	return least
}

// An arrival is a connection that no loop has yet.
type arrival struct {
	fd      int
	place   share.Place
	session *session // nil: no TLS
}

// place passes a new connection to l. It runs on the goroutine of the loop from, or on
// another one if from is nil.
func (l *Loop) place(a arrival, from *Loop) {
	l.load.Add(1)
	if l == from {
		l.add(a)
		return
	}
	l.inboxMu.Lock()
	if l.inboxClosed {
		_ = unix.Close(a.fd) // the loop has ended
		l.server.left(a.place)
	} else {
		l.inbox = append(l.inbox, a)
	}
	l.inboxMu.Unlock()
	l.Wake()
}

// takeInbox adds the connections that were placed with l.
func (l *Loop) takeInbox() {
	l.inboxMu.Lock()
	arrivals := l.inbox
	l.inbox = nil
	l.inboxMu.Unlock()
	for _, a := range arrivals {
		l.add(a)
	}
}

// closeInbox ends placing. It reports false when there are connections to add.
func (l *Loop) closeInbox() bool {
	l.inboxMu.Lock()
	defer l.inboxMu.Unlock()
	if len(l.inbox) > 0 {
		return false
	}
	l.inboxClosed = true
	return true
}

// listen starts to watch the listener. Only one loop does.
func (l *Loop) listen() error {
	l.listens = listening
	// Level-triggered: epoll reports connections not accepted in this turn again.
	return l.watch(l.server.listener, unix.EPOLLIN, listenSlot, 0)
}

// A listenState is the relation of a loop to the listener.
type listenState uint8

const (
	foreign listenState = iota // another loop's, or closed
	listening
	paused
)

func (l *Loop) acceptsNone() bool { return l.listens == paused }

func (l *Loop) pauseAccepting() {
	// An error means that it is not watched.
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, l.server.listener, nil)
	l.listens, l.pausedAt = paused, l.now
	l.server.crowded.Store(true)
}

func (l *Loop) resumeAccepting() {
	if l.listens != paused || l.server.full() {
		return
	}
	l.server.crowded.Store(false)
	if l.listen() != nil {
		l.listens, l.pausedAt = paused, l.now // no memory; at the next tick again
	}
}

// full reports whether no connection can be taken.
func (s *Server) full() bool { return s.conns.Full() }

// left releases the place of a connection. If accepting has paused for lack of places, it
// resumes before the next tick.
func (s *Server) left(place share.Place) {
	s.conns.Leave(place)
	if s.crowded.Load() {
		s.loops[0].Wake() // the one that accepts
	}
}

// stopListening accepts the backlog, as far as there are places, and closes the listener:
// connections in the backlog may have sent requests.
func (l *Loop) stopListening() {
	if l.listens != foreign {
		for l.accept() {
		}
		l.listens = foreign
		_ = unix.Close(l.server.listener) // it is watched by no one else
	}
}

// evictPerTick bounds how long the search for idle connections delays the others.
const evictPerTick = 4096

// evictIdle closes connections that have been idle for CrowdedTimeout, if guests have
// come for their places since the last tick ([share.Conns.GiveWay]). It goes through the
// connections in turn, like the hand of a clock.
func (l *Loop) evictIdle() {
	s := l.server
	if l.now == l.evicted {
		return
	}
	guests, crowded := s.conns.Guests(), s.crowded.Load()
	newGuests := guests != l.turned
	l.evicted, l.turned = l.now, guests
	if crowded {
		s.conns.Want() // others may wait that cannot even be guests
	}
	if !newGuests && !crowded {
		return
	}
	for range min(evictPerTick, len(l.conns)) {
		l.hand = (l.hand + 1) % len(l.conns)
		c := l.conns[l.hand]
		if c == nil || !c.isIdle() {
			continue
		}
		within := s.idleTicks
		if c.fresh {
			within = s.startTicks
		}
		if since := c.deadline - within; l.now-since < s.crowdedTicks {
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
	return c.in == nil && c.out == nil && c.owed == 0 && c.goal == serve && !c.paused && !c.listed && !c.place.Guest && c.expect == 0 && c.deadline != never
}
