package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/systemd"
)

// A lifecycle ties a server to the signals that are meant for it, and to the service
// manager, if there is one.
type lifecycle struct {
	log      *slog.Logger
	notifier *systemd.Notifier // nil: there is no service manager
	unheard  sync.Once         // guards the log's line about that
	watchdog time.Duration     // 0: there is none
	sockets  map[string]net.Listener
	hangups  chan os.Signal
	seconds  chan os.Signal // SIGINT and SIGTERM, if there is a delay that a second one ends
}

// Names of the sockets that a service manager may hand over.
const (
	publicSocket = "public"
	adminSocket  = "admin"
)

// newLifecycle takes what the service manager has left in the environment, and catches
// signals from now on: a store may take long to open. The caller must call end.
func newLifecycle(c *Options, log *slog.Logger) (*lifecycle, error) {
	life := &lifecycle{log: log, hangups: make(chan os.Signal, 1), seconds: make(chan os.Signal, 2)}
	var err error
	if life.notifier, err = systemd.NewNotifier(c.Getenv); err != nil {
		log.Warn("the service manager cannot be notified", "error", err)
	}
	if life.watchdog, err = systemd.WatchdogTimeout(c.Getenv, os.Getpid()); err != nil {
		log.Warn("the service manager's watchdog cannot be notified", "error", err)
	}
	sockets, err := systemd.Sockets(c.Getenv, os.Getpid(), systemd.FirstSocket)
	if err != nil {
		return nil, err
	}
	if life.sockets, err = byName(sockets); err != nil {
		return nil, err
	}
	// A socket has an address already.
	if l := life.sockets[publicSocket]; l != nil {
		c.Addr = l.Addr().String()
	}
	if l := life.sockets[adminSocket]; l != nil {
		c.AdminAddr = l.Addr().String()
	}
	if c.Reload != nil {
		signal.Notify(life.hangups, syscall.SIGHUP)
	}
	if c.DrainDelay > 0 {
		signal.Notify(life.seconds, syscall.SIGINT, syscall.SIGTERM)
	}
	return life, nil
}

// byName returns sockets by the listener that they are for. One alone is the public one,
// whatever its name: a socket unit that names none has its own.
func byName(sockets []systemd.Socket) (map[string]net.Listener, error) {
	named := make(map[string]net.Listener, len(sockets))
	for _, s := range sockets {
		name := s.Name
		if len(sockets) == 1 && name != adminSocket {
			name = publicSocket
		}
		_, tcp := s.Listener.(*net.TCPListener)
		switch {
		case name != publicSocket && name != adminSocket:
			return nil, settings.Usagef("the service manager hands over a socket called %q: FileDescriptorName= must be %s or %s", name, publicSocket, adminSocket)
		case named[name] != nil:
			return nil, settings.Usagef("the service manager hands over more than one socket called %q", name)
		case !tcp:
			return nil, settings.Usagef("the service manager's socket %q is not of TCP", name)
		}
		named[name] = s.Listener
	}
	return named, nil
}

// listen returns the socket of this name that was handed over, or opens one.
func (life *lifecycle) listen(name, addr string) (net.Listener, error) {
	if l := life.sockets[name]; l != nil {
		return l, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open %s listener: %w%s", name, err, listenHint(name, err))
	}
	return l, nil
}

// listenHint returns a remedy for an error of net.Listen, or "".
func listenHint(name string, err error) string {
	flag := "--addr"
	if name == adminSocket {
		flag = "--admin-addr"
	}
	_, noSuchHost := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "; another process listens there, perhaps another pulsegate: choose another port with " + flag + ", or port 0 for a free one"
	case noSuchHost, errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; " + flag + " needs an address of this machine, such as 127.0.0.1"
	case errors.Is(err, syscall.EACCES):
		return "; ports below 1024 need a privilege: choose another port with " + flag
	}
	return ""
}

// tell sends messages to the service manager.
func (life *lifecycle) tell(messages ...string) {
	if err := life.notifier.Send(messages...); err != nil {
		life.unheard.Do(func() { life.log.Warn("the service manager cannot be told", "error", err) })
	}
}

// onEach calls f for each value of c until stop is called, which waits for a call that is
// under way.
func onEach[T any](c <-chan T, f func()) (stop func()) {
	done := make(chan struct{})
	var task sync.WaitGroup
	task.Go(func() {
		for {
			select {
			case <-c:
				f()
			case <-done:
				return
			}
		}
	})
	return func() { close(done); task.Wait() }
}

// While a store is opened, the service manager is asked for more time now and then.
const (
	openingEvery  = 10 * time.Second
	openingExtend = 30 * time.Second
)

// opening keeps the service manager patient while the store in dir is opened, until
// opened is called. There is no limit: if a server is killed while it replays its log,
// the next one begins anew.
func (life *lifecycle) opening(dir string) (opened func()) {
	began := time.Now()
	extend := func() {
		life.tell(systemd.Extend(openingExtend), systemd.Status(fmt.Sprintf("opening %s, for %.0f s now", dir, time.Since(began).Seconds())))
	}
	extend()
	return onEach(time.Tick(openingEvery), extend)
}

// serving reports that s takes requests. From now on the watchdog is satisfied as long
// as the pulse of s is felt, and SIGHUP reloads, until stop is called.
func (life *lifecycle) serving(s *server) (stop func()) {
	life.tell(systemd.Ready, systemd.Status("serving on "+s.publicAddr.String()))
	stopReload := onEach(life.hangups, func() {
		life.tell(systemd.Reloading(), systemd.Status("reloading"))
		s.reload()
		life.tell(systemd.Ready, systemd.Status("reloaded"))
	})
	if life.watchdog == 0 {
		return stopReload
	}
	life.tell(systemd.Watchdog)
	// A part that comes round late once does not matter: it may miss one of four.
	stopWatch := onEach(time.Tick(max(life.watchdog/4, time.Millisecond)), life.watch(newPulse(s)))
	return func() { stopReload(); stopWatch() }
}

// watch returns what satisfies the watchdog as long as the server's pulse is felt.
func (life *lifecycle) watch(p *pulse) func() {
	was := ""
	return func() {
		hangs := p.hangs()
		if hangs == "" {
			life.tell(systemd.Watchdog)
		} else if was == "" {
			life.log.Error("the watchdog is not told that this process lives", "hangs", hangs)
		}
		was = hangs
	}
}

// status shows what has changed with the readiness of s.
func (life *lifecycle) status(s *server, check string, err error) {
	switch {
	case err != nil:
		life.tell(systemd.Status("not ready: " + check)) // the reason is in the log
	case s.health.Ready():
		life.tell(systemd.Status("ready, serving on " + s.publicAddr.String()))
	}
}

// closeGrace is the time that a store may take to be closed. To be killed after it loses
// nothing, and costs the next start a replay of the log.
const closeGrace = time.Minute

// stopping reports that the server ends, within d and what its store takes to close.
func (life *lifecycle) stopping(d time.Duration, status string) {
	status, _, _ = strings.Cut(status, "\n")
	life.tell(systemd.Stopping, systemd.Extend(d+closeGrace), systemd.Status(status))
}

// delay waits for d, for a second signal, or for a failure of the store, whose text it
// returns. After it a signal has its default effect, and ends the process.
func (life *lifecycle) delay(d time.Duration, failed <-chan string) (why string) {
	defer signal.Stop(life.seconds)
	over := time.After(d)
	for range 2 { // the first signal is what has brought the server here
		select {
		case <-over:
			return ""
		case why := <-failed:
			return why
		case <-life.seconds:
		}
	}
	life.log.Info("second signal: the delay ends early")
	return ""
}

// end lets go of the signals, and closes the sockets that nobody took.
func (life *lifecycle) end() {
	signal.Stop(life.hangups)
	signal.Stop(life.seconds)
	for _, l := range life.sockets {
		_ = l.Close() // most are closed already
	}
}
