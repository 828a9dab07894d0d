package server

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/systemd"
)

// A lifecycle ties a server to whoever started it: to the signals that end it, and
// to the service manager, if that wants to know. The nil lifecycle, which demo has,
// ties it to nobody.
type lifecycle struct {
	log      *slog.Logger
	notifier *systemd.Notifier // nil: nobody listens
	unheard  sync.Once         // guards the log's line about that
	watchdog time.Duration     // 0: nobody wants to hear
	sockets  map[string]net.Listener
	signals  chan os.Signal // nil: nothing waits for a second signal

	stop  chan struct{} // closed by end
	tasks sync.WaitGroup
}

// Names of the sockets that a service manager may hand over.
const (
	publicSocket = "public"
	adminSocket  = "admin"
)

// newLifecycle takes what the service manager has left in the environment. The
// caller must call its end.
func newLifecycle(c *Options, log *slog.Logger) (*lifecycle, error) {
	life := &lifecycle{log: log, stop: make(chan struct{})}
	var err error
	if life.notifier, err = systemd.NewNotifier(c.Getenv); err != nil {
		log.Warn("the service manager is not told anything", "error", err)
	}
	if life.watchdog, err = systemd.WatchdogTimeout(c.Getenv, os.Getpid()); err != nil {
		log.Warn("the service manager's watchdog is not told anything", "error", err)
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
	if c.DrainDelay > 0 {
		life.signals = make(chan os.Signal, 2)
		signal.Notify(life.signals, syscall.SIGINT, syscall.SIGTERM)
	}
	return life, nil
}

// byName tells which socket is for which listener. One alone is the public one,
// whatever its name: a socket unit that does not say has its own.
func byName(sockets []systemd.Socket) (map[string]net.Listener, error) {
	named := make(map[string]net.Listener, len(sockets))
	for _, s := range sockets {
		name := s.Name
		if len(sockets) == 1 && name != adminSocket {
			name = publicSocket
		}
		switch {
		case name != publicSocket && name != adminSocket:
			return nil, UsageError{fmt.Sprintf("the service manager hands over a socket called %q: FileDescriptorName= must be %s or %s", name, publicSocket, adminSocket)}
		case named[name] != nil:
			return nil, UsageError{fmt.Sprintf("the service manager hands over more than one socket called %q", name)}
		}
		if _, ok := s.Listener.(*net.TCPListener); !ok {
			return nil, UsageError{fmt.Sprintf("the service manager's socket %q is not of TCP", name)}
		}
		named[name] = s.Listener
	}
	return named, nil
}

// listen returns the socket of this name that was handed over, or opens one.
func (life *lifecycle) listen(name, addr string) (net.Listener, error) {
	if life != nil && life.sockets[name] != nil {
		return life.sockets[name], nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open %s listener: %w", name, err)
	}
	return l, nil
}

// tell sends messages to the service manager.
func (life *lifecycle) tell(messages ...string) {
	if life == nil {
		return
	}
	if err := life.notifier.Send(messages...); err != nil {
		life.unheard.Do(func() { life.log.Warn("the service manager cannot be told", "error", err) })
	}
}

// While a store is opened, the service manager is told now and then that it goes
// on.
const (
	openingEvery  = 10 * time.Second
	openingExtend = 30 * time.Second
)

// opening keeps the service manager patient while the store in dir is opened,
// until the function that it returns is called. There is no limit: who kills a
// server that replays its log makes the next one begin anew.
func (life *lifecycle) opening(dir string) (opened func()) {
	if life == nil || life.notifier == nil {
		return func() {}
	}
	done := make(chan struct{})
	began := time.Now()
	life.tell(systemd.Extend(openingExtend), systemd.Status("opening "+dir))
	var task sync.WaitGroup
	task.Go(func() {
		tick := time.NewTicker(openingEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				life.tell(systemd.Extend(openingExtend), systemd.Status(fmt.Sprintf("opening %s, for %.0f s now", dir, time.Since(began).Seconds())))
			case <-done:
				return
			}
		}
	})
	return func() { close(done); task.Wait() }
}

// serving says that s takes requests, and begins to satisfy the watchdog.
func (life *lifecycle) serving(s *Server) {
	life.tell(systemd.Ready, systemd.Status("serving on "+s.publicAddr.String()))
	if life.watchdog > 0 {
		life.tasks.Go(func() { life.watch(newPulse(s)) })
	}
}

// watch tells the watchdog that the server lives, as long as its pulse does.
func (life *lifecycle) watch(p *pulse) {
	life.tell(systemd.Watchdog)
	// A part that comes round late once does not matter: it may miss one of four.
	tick := time.NewTicker(max(life.watchdog/4, time.Millisecond))
	defer tick.Stop()
	for was := ""; ; {
		select {
		case <-tick.C:
		case <-life.stop:
			return
		}
		hangs := p.hangs()
		if hangs == "" {
			life.tell(systemd.Watchdog)
		} else if was == "" {
			life.log.Error("the watchdog is not told that this process lives", "hangs", hangs)
		}
		was = hangs
	}
}

// reload calls load, and tells when it begins and ends.
func (life *lifecycle) reload(load func()) {
	life.tell(systemd.Reloading(), systemd.Status("reloading"))
	load()
	life.tell(systemd.Ready, systemd.Status("reloaded"))
}

// status shows what has changed with the readiness of s.
func (life *lifecycle) status(s *Server, check string, err error) {
	switch {
	case life == nil:
	case err != nil:
		life.tell(systemd.Status("not ready: " + check)) // the reason is in the log
	case s.health.Ready():
		life.tell(systemd.Status("ready, serving on " + s.publicAddr.String()))
	}
}

// closeGrace is the time that a store may take to be closed. To be killed behind
// it loses nothing, and costs the next start a replay of the log.
const closeGrace = time.Minute

// stopping says that the server ends, within d and what its store takes to close.
func (life *lifecycle) stopping(d time.Duration, status string) {
	life.tell(systemd.Stopping, systemd.Extend(d+closeGrace), systemd.Status(status))
}

// delay waits for d, for a second signal, or for a failure of the store, whose text
// it returns. From then on a signal has its default effect again, and ends the
// process.
func (life *lifecycle) delay(d time.Duration, failed <-chan string) (why string) {
	if d <= 0 {
		return ""
	}
	over := time.NewTimer(d)
	defer over.Stop()
	var signals chan os.Signal // nil: there is no second one to wait for
	if life != nil && life.signals != nil {
		signals = life.signals
		defer signal.Stop(signals)
	}
	for range 2 { // the first is what has brought the server here
		select {
		case <-over.C:
			return ""
		case why := <-failed:
			return why
		case <-signals:
		}
	}
	life.log.Info("second signal: the delay ends early")
	return ""
}

// end ends what the lifecycle does in the background, and closes the sockets that
// nobody took.
func (life *lifecycle) end() {
	close(life.stop)
	life.tasks.Wait()
	if life.signals != nil {
		signal.Stop(life.signals)
	}
	for _, l := range life.sockets {
		_ = l.Close() // most are closed already
	}
}

// statusLine makes one line of what a store says about its failure.
func statusLine(why string) string {
	line, _, _ := strings.Cut(why, "\n")
	return "store failed: " + line
}
