package server

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/systemd"
)

// A lifecycle connects a server to the process's signals and to the service manager,
// if there is one.
type lifecycle struct {
	log      *slog.Logger
	notifier *systemd.Notifier       // nil means no service manager
	warned   sync.Once               // logs the first failure to notify it
	watchdog time.Duration           // 0 means none
	sockets  map[string]net.Listener // by name: inherited, or opened by the server's listeners
	hangups  chan os.Signal
	seconds  chan os.Signal // SIGINT and SIGTERM, if a second one may end the drain delay
}

// Names of the sockets that a service manager may pass.
const (
	publicSocket = "public"
	adminSocket  = "admin"
)

// A socketAddr is the option with the address of a socket.
type socketAddr struct {
	socket string
	addr   *string
}

// flag returns the flag that sets the address.
func (a socketAddr) flag() string {
	if a.socket == publicSocket {
		return "--addr"
	}
	return "--" + a.socket + "-addr"
}

// addrs returns the addresses of all sockets, in the order in which they are opened.
func (c *Options) addrs() []socketAddr {
	all := []socketAddr{{publicSocket, &c.Addr}, {adminSocket, &c.AdminAddr}}
	for _, in := range frontInputs() {
		all = append(all, socketAddr{in.socket, in.addr(c)})
	}
	return all
}

// socketNames returns the names of all sockets.
func socketNames() (names []string) {
	for _, at := range new(Options).addrs() {
		names = append(names, at.socket)
	}
	return names
}

// newLifecycle reads the service manager's environment variables, and catches signals
// from now on, because opening a store may take long. The caller must call end.
func newLifecycle(c *Options, log *slog.Logger) (*lifecycle, error) {
	life := &lifecycle{log: log, hangups: c.Hangups, seconds: make(chan os.Signal, 2)}
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
	for _, at := range c.addrs() {
		if l := life.sockets[at.socket]; l != nil {
			*at.addr = l.Addr().String() // an inherited socket already has an address
		}
	}
	if life.hangups == nil {
		life.hangups = make(chan os.Signal, 1)
		if c.Reload != nil {
			signal.Notify(life.hangups, syscall.SIGHUP)
		}
	}
	if c.DrainDelay > 0 {
		signal.Notify(life.seconds, syscall.SIGINT, syscall.SIGTERM)
	}
	return life, nil
}

// byName returns sockets by the listener that they are for. A single socket is the public
// one, whatever its name: a socket unit without FileDescriptorName= gets a default name.
func byName(sockets []systemd.Socket) (map[string]net.Listener, error) {
	named := make(map[string]net.Listener, len(sockets))
	for _, s := range sockets {
		name := s.Name
		known := slices.Contains(socketNames(), name)
		if len(sockets) == 1 && !known {
			name, known = publicSocket, true
		}
		_, tcp := s.Listener.(*net.TCPListener)
		switch {
		case !known:
			return nil, settings.Usagef("the service manager passed a socket named %q: FileDescriptorName= must be one of %s",
				name, strings.Join(socketNames(), ", "))
		case named[name] != nil:
			return nil, settings.Usagef("the service manager passed more than one socket named %q", name)
		case !tcp:
			return nil, settings.Usagef("the service manager's socket %q is not a TCP socket", name)
		}
		named[name] = s.Listener
	}
	return named, nil
}

// notify sends messages to the service manager.
func (life *lifecycle) notify(messages ...string) {
	if err := life.notifier.Send(messages...); err != nil {
		life.warned.Do(func() { life.log.Warn("the service manager cannot be notified", "error", err) })
	}
}

// onEach calls f for each value of c until stop is called. stop waits for a call in
// progress.
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

// While a store is being opened, the service manager is asked for more time at this
// interval.
const (
	openingEvery  = 10 * time.Second
	openingExtend = 30 * time.Second
)

// opening asks the service manager for more time while the store in dir is opened,
// until opened is called. There is no limit: a server that was killed while it replayed
// its log would have to start over.
func (life *lifecycle) opening(dir string) (opened func()) {
	began := time.Now()
	extend := func() {
		life.notify(systemd.Extend(openingExtend),
			systemd.Status(fmt.Sprintf("opening %s, for %.0f s now", dir, time.Since(began).Seconds())))
	}
	extend()
	return onEach(time.Tick(openingEvery), extend)
}

// serving reports that s accepts requests. From now until stop is called, the watchdog
// is satisfied as long as the server makes progress, and SIGHUP reloads.
func (life *lifecycle) serving(s *server) (stop func()) {
	life.notify(systemd.Ready, systemd.Status("serving on "+s.listeners.publicAddr.String()))
	stopReload := onEach(life.hangups, func() {
		life.notify(systemd.Reloading(), systemd.Status("reloading"))
		s.reload()
		life.notify(systemd.Ready, systemd.Status("reloaded"))
	})
	if life.watchdog == 0 {
		return stopReload
	}
	life.notify(systemd.Watchdog)
	// A part may miss one of four checks: one late iteration does not matter.
	stopWatch := onEach(time.Tick(max(life.watchdog/4, time.Millisecond)), life.watch(newPulse(s)))
	return func() { stopReload(); stopWatch() }
}

// watch returns a function that satisfies the watchdog as long as the server makes
// progress.
func (life *lifecycle) watch(p *pulse) func() {
	was := ""
	return func() {
		hangs := p.hangs()
		if hangs == "" {
			life.notify(systemd.Watchdog)
		} else if was == "" {
			life.log.Error("the watchdog is not notified: a part of the server makes no progress", "hangs", hangs)
		}
		was = hangs
	}
}

// status reports a change of the readiness of s.
func (life *lifecycle) status(s *server, check string, err error) {
	switch {
	case err != nil:
		life.notify(systemd.Status("not ready: " + check)) // the reason is in the log
	case s.health.Ready():
		life.notify(systemd.Status("ready, serving on " + s.listeners.publicAddr.String()))
	}
}

// closeGrace is the time that closing a store may take. If the process is killed after
// it, nothing is lost, and the next start replays the log.
const closeGrace = time.Minute

// stopping reports that the server exits within d plus the time to close its store.
func (life *lifecycle) stopping(d time.Duration, status string) {
	status, _, _ = strings.Cut(status, "\n")
	life.notify(systemd.Stopping, systemd.Extend(d+closeGrace), systemd.Status(status))
}

// delay waits for d, for a second signal, or for a failure of the store, whose text it
// returns. Afterwards signals have their default effect and end the process.
func (life *lifecycle) delay(d time.Duration, failed <-chan string) (why string) {
	defer signal.Stop(life.seconds)
	over := time.After(d)
	for range 2 { // the first signal began the shutdown
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

// end stops catching signals, and closes the sockets that were not served.
func (life *lifecycle) end() {
	signal.Stop(life.hangups)
	signal.Stop(life.seconds)
	for _, l := range life.sockets {
		_ = l.Close() // most are closed already
	}
}
