package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// drain rejects new requests, answers those in progress, and closes the store.
func (s *server) drain() error {
	s.log.Info("draining", "delay", s.opt.DrainDelay.String(), "timeout", s.opt.DrainTimeout.String())
	s.life.stopping(s.opt.DrainDelay+s.opt.DrainTimeout, "draining")
	s.health.Drain()
	s.stopBackground()
	// During the delay readings are accepted, and a failure of the store is handled as
	// usual.
	if why := s.life.delay(s.opt.DrainDelay, s.failed); why != "" {
		return s.stopFailed(why)
	}
	s.running.Store(false)
	s.core.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.DrainTimeout)
	defer cancel()
	err := s.close(ctx)
	if err == nil {
		s.log.Info("stopped", "stored", s.core.Stored())
	}
	return err
}

// close closes what start has opened, after the requests in progress or when ctx ends.
func (s *server) close(ctx context.Context) error {
	err := s.stopPublic(ctx)
	if err != nil {
		err = fmt.Errorf("requests were cut off after %v: %w", s.opt.DrainTimeout, err)
	}
	if s.core != nil {
		err = errors.Join(err, s.core.Close(ctx))
	}
	if s.health != nil {
		err = errors.Join(err, s.health.Close(ctx))
	}
	s.alerts.stop(true) // after the last commit
	s.roster.Close()
	stopTracing(s.tracer, s.log)
	if s.listeners.admin != nil {
		err = errors.Join(err, s.listeners.admin.Close())
	}
	if s.stopBackground != nil {
		s.stopBackground()
		s.background.Wait()
	}
	if s.store != nil {
		if e := s.store.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("close store: %w", e))
		}
	}
	return errors.Join(err, s.access.close())
}

// stopPublic answers the requests of the public listener, whose streams end.
func (s *server) stopPublic(ctx context.Context) error {
	if s.live != nil {
		s.live.Close()
	}
	if s.feed != nil {
		s.feed.Drain()
	}
	return s.listeners.shutdownPublic(ctx)
}

// shutdownPublic answers the requests that have arrived at the public listener, and closes it.
func (s *listeners) shutdownPublic(ctx context.Context) error {
	if s.public == nil {
		return nil
	}
	var wg sync.WaitGroup
	lanes := s.lanes()
	errs := make([]error, len(lanes))
	for i, lane := range lanes {
		wg.Go(func() { errs[i] = lane.Shutdown(ctx) })
	}
	err := s.public.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.public.Close())
	}
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

// A runningLane serves connections beside net/http.
type runningLane interface {
	Shutdown(context.Context) error
	Beat() bool
}

// lanes returns the fast lane and the fronts.
func (s *listeners) lanes() (all []runningLane) {
	if s.lane != nil {
		all = append(all, s.lane)
	}
	for _, running := range s.fronts {
		all = append(all, running)
	}
	return all
}

// failureGrace is how long the store withholds the failed group's result, while health
// checks report the failure and the server begins to stop.
const failureGrace = 500 * time.Millisecond

// stopFailed ends a server whose store has failed. Waiting clients are answered that
// the outcome is unknown. The store is not closed normally: its next start recovers it.
func (s *server) stopFailed(why string) error {
	s.life.stopping(2*failureGrace+time.Second, "store failed: "+why)
	s.core.Drain()
	s.alerts.stop(false)
	time.Sleep(failureGrace) // so that readyz reports the failure first
	ctx, cancel := context.WithTimeout(context.Background(), failureGrace+time.Second)
	defer cancel()
	_ = s.stopPublic(ctx) // requests cut off here were not acknowledged
	return errors.Join(errors.New(why), s.access.close())
}

// fail is called by the store when a write has failed. When it returns, the failed group
// is answered. While the store is being opened or closed, nothing receives from failed,
// and that call may block indefinitely: the process exits here.
func (s *server) fail(why string) {
	if s.running.Load() {
		s.health.Reporter(checkStore)(errors.New(why))
		select {
		case s.failed <- why:
		default:
		}
		time.Sleep(failureGrace)
	}
	if !s.running.Load() {
		s.log.end(why)
		os.Exit(1)
	}
}
