package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reload reads again what may change while the server runs. What cannot be used
// changes nothing, and is reported.
func (s *server) reload(context.Context) {
	if err := s.access.reload(); err != nil {
		s.log.Error("reload: not all of it could be used", "error", err)
		return
	}
	s.log.Info("reloaded")
}

// reloadOnHangup calls reload at each SIGHUP until stop is called.
func (s *server) reloadOnHangup(ctx context.Context) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				s.reload(ctx)
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		cancel()
		wg.Wait()
	}
}
