package eventloop

import (
	"golang.org/x/sys/unix"
)

// acceptsPerTurn bounds how long new connections keep the others waiting.
const acceptsPerTurn = 128

// accept takes new connections and places each with the loop that has least to
// do. When there can be no more, accepting pauses: the listener is not watched until the
// next tick.
func (l *Loop) accept() {
	s := l.server
	for range acceptsPerTurn {
		if s.open.Load() >= int64(s.cfg.MaxConns) {
			l.pause()
			return
		}
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			s.open.Add(1)
			s.accepted.Add(1)
			s.leastLoaded().place(fd, l)
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED:
		default:
			// EMFILE, ENFILE, ENOBUFS and ENOMEM pass when others close. So may
			// errors of the network, which accept(2) tells as its own.
			s.acceptErrors.Add(1)
			l.pause()
			return
		}
	}
}

// leastLoaded returns the loop with the fewest connections. When the Server stops
// it is the one that accepts: others may have ended.
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

// place gives a new connection to l, on the goroutine of from.
func (l *Loop) place(fd int, from *Loop) {
	l.load.Add(1)
	if l == from {
		l.add(fd)
		return
	}
	l.inboxMu.Lock()
	if l.inboxClosed {
		_ = unix.Close(fd) // the loop has ended
		l.server.open.Add(-1)
	} else {
		l.inbox = append(l.inbox, fd)
	}
	l.inboxMu.Unlock()
	l.Wake()
}

// takeInbox adds the connections that were placed with l.
func (l *Loop) takeInbox() {
	l.inboxMu.Lock()
	fds := l.inbox
	l.inbox = nil
	l.inboxMu.Unlock()
	for _, fd := range fds {
		l.add(fd)
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

// listen begins to watch the listener. Only one loop does.
func (l *Loop) listen() error {
	l.listens = listening
	// Level-triggered: what is not accepted in this turn is told again.
	return l.watch(l.server.listener, unix.EPOLLIN, listenSlot, 0)
}

// A listenState is what a loop has to do with the listener.
type listenState uint8

const (
	foreign listenState = iota // another loop's, or closed
	listening
	paused
)

func (l *Loop) pauses() bool { return l.listens == paused }

func (l *Loop) pause() {
	// An error means that it is not watched.
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, l.server.listener, nil)
	l.listens, l.pausedAt = paused, l.now
}

func (l *Loop) resume() {
	if l.server.open.Load() < int64(l.server.cfg.MaxConns) && l.listen() != nil {
		l.listens, l.pausedAt = paused, l.now // no memory; at the next tick again
	}
}

// deafen closes the listener, behind the connections that wait in its queue: they
// may have brought requests.
func (l *Loop) deafen() {
	if l.listens != foreign {
		l.accept()
		l.listens = foreign
		_ = unix.Close(l.server.listener) // it is watched by no one else
	}
}
