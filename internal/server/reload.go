package server

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reload reads again what may change while the server runs: the settings of the
// log, tokens and certificates. What cannot be used changes nothing, and is
// reported.
func (s *Server) reload() {
	if err := errors.Join(s.reloadLogging(), s.access.reload()); err != nil {
		s.log.Error("reload: not all of it could be used", "error", err)
		return
	}
	s.log.Info("reloaded")
}

// catchHangups makes SIGHUP, which would end the process, wait in the channel. The
// caller must call signal.Stop.
func catchHangups() chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// onHangup calls a function at each SIGHUP, and for one that has come before, until
// stop is called. stop waits for a call that is under way.
func onHangup(hangups <-chan os.Signal, call func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				call()
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// Run serves until ctx ends, for a service manager if there is one. SIGHUP reloads.
func Run(ctx context.Context, c *Options, logs *Log) error {
	life, err := newLifecycle(c, logs.log)
	if err != nil {
		return err
	}
	defer life.end()
	c.life = life
	hangups := catchHangups() // from now on: a store may take long to open
	defer signal.Stop(hangups)
	TakeResources(c, logs.log)
	srv, err := Start(c, logs)
	if err != nil {
		return err
	}
	defer onHangup(hangups, func() { life.reload(srv.reload) })()
	life.serving(srv)
	return srv.Run(ctx)
}
