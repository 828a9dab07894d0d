package eventloop

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const eventsPerTurn = 512

// Events with a negative slot do not belong to a connection.
const (
	wakeSlot   int32 = -1
	listenSlot int32 = -2
)

// A poller waits for events on descriptors, and for calls of wake. Only wake may be called by
// other goroutines than the loop's.
type poller struct {
	epoll     int
	events    []unix.EpollEvent
	restTimer *time.Timer

	// A loop that waits for events is woken by an event of wakeFD, and one that rests by
	// roused; sleep says which. Nothing is sent to a loop that is awake, because it checks
	// called before it sleeps.
	sleep  atomic.Int32
	called atomic.Bool
	roused chan struct{}

	mu     sync.Mutex
	wakeFD int // eventfd; -1 when the poller is closed; guarded by mu
}

// What a loop sleeps on.
const (
	awake   int32 = iota
	waiting       // for events
	resting       // for wake
)

// open creates the descriptors. The caller must call close even after an error.
func (p *poller) open() (err error) {
	p.events = make([]unix.EpollEvent, eventsPerTurn)
	p.restTimer = time.NewTimer(time.Hour)
	p.roused = make(chan struct{}, 1)
	p.wakeFD = -1
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("create epoll: %w", err)
	}
	if p.wakeFD, err = newEventFD(); err != nil {
		return err
	}
	// Edge-triggered: every write is an event, so the counter need not be read.
	return p.watch(p.wakeFD, unix.EPOLLIN|unix.EPOLLET, wakeSlot, 0)
}

// newEventFD returns the descriptor of an eventfd, or -1.
func newEventFD() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("create eventfd: %w", err)
	}
	return fd, nil
}

// close closes the poller's own descriptors.
func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	closeFD(&p.epoll)
	closeFD(&p.wakeFD)
}

// closeFD closes a descriptor in which nothing can be lost, unless it is -1, and sets it to -1.
func closeFD(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
		*fd = -1
	}
}

func (p *poller) watch(fd int, events uint32, slot, generation int32) error {
	e := unix.EpollEvent{Events: events, Fd: slot, Pad: generation}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

func (p *poller) unwatch(fd int) error { return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// wake ends the current wait or rest, or makes the next one end at once, unless called is
// cleared before.
func (p *poller) wake() {
	if p.called.Swap(true) {
		return
	}
	switch p.sleep.Load() {
	case awake:
		return
	case resting:
		select {
		case p.roused <- struct{}{}:
		default: // it is roused already
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wakeFD >= 0 {
		// The one error is that the counter is full. Then there was an event.
		_, _ = unix.Write(p.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// rest waits for wake, at most for d.
func (p *poller) rest(d time.Duration) {
	p.sleep.Store(resting)
	// A wake before this sees sleep or is seen by called.
	if !p.called.Load() {
		p.restTimer.Reset(d)
		select {
		case <-p.roused:
		case <-p.restTimer.C:
		}
	}
	p.sleep.Store(awake)
}

// wait returns events. If there are none, it waits for some for at most timeoutMs, or without a
// limit if that is negative. The events are valid until the next call.
func (p *poller) wait(timeoutMs int) []unix.EpollEvent {
	if timeoutMs != 0 {
		p.sleep.Store(waiting)
		if p.called.Load() {
			timeoutMs = 0
		}
	}
	n, err := unix.EpollWait(p.epoll, p.events, timeoutMs)
	p.sleep.Store(awake)
	if err != nil && !errors.Is(err, unix.EINTR) {
		// Promise: the descriptor and the events are valid, which leaves no other
		// error (epoll_wait(2)).
		panic("eventloop: wait for events: " + err.Error())
	}
	return p.events[:max(n, 0)]
}
