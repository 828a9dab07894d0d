// Package server is one running Pulsegate: its listeners, what they serve, and its life
// from the first signal to the last answer. The commands serve and demo start it.
//
// # Promise
//
// When [Server.Run] returns nil, every request that was admitted is answered, what was
// acknowledged is on stable storage, and the store is closed.
//
// # Not here
//
// What is served is in the packages of internal/api, what is stored in those of
// internal/storage. Flags and the environment are the matter of cmd.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/health"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/mux"
	"github.com/pulsegate/pulsegate/reply"
)

// A Server is a running service: a store, the core that writes to it, and the
// listeners.
type Server struct {
	stderr       io.Writer
	log          *slog.Logger
	life         *lifecycle
	logging      *Log
	store        *pebblestore.Store
	core         *ingest.Core
	health       *health.Health
	problems     *problem.Set
	tracer       *tracing.Tracer // nil: nothing is traced
	access       *access
	public       *http.Server
	lane         *ingest.FastLane                      // nil: public serves all
	admin        *http.Server                          // nil: none
	retention    *retention                            // nil: readings are kept for ever
	reread       func() (*LogOptions, []string, error) // Options.Reload
	drainDelay   time.Duration
	drainTimeout time.Duration

	publicAddr net.Addr
	ended      chan error  // a listener ended by itself
	failed     chan string // the store failed; why
	running    atomic.Bool // run waits for failed
}

// Start opens the store and starts to listen. Whoever gets a Server must
// call its Run.
func Start(c *Options, logs *Log) (_ *Server, err error) {
	stderr, log := logs.printer(), logs.log
	if err := c.check(log); err != nil {
		return nil, err
	}
	cfg, err := c.ingestConfig()
	if err != nil {
		return nil, err
	}
	flags, err := c.flagLimits()
	if err != nil {
		return nil, err
	}
	s := &Server{
		stderr:       stderr,
		log:          log,
		problems:     problem.New(),
		life:         c.life,
		logging:      logs,
		reread:       c.Reload,
		drainDelay:   c.DrainDelay,
		drainTimeout: c.DrainTimeout,
		ended:        make(chan error, 2),
		failed:       make(chan string, 1),
	}
	if s.access, err = openAccess(&c.AccessOptions, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.access.close())
		}
	}()
	if !s.access.gate.Open() {
		cfg.Gate = s.access.gate
	}
	opened := s.life.opening(c.Data)
	storeOptions := c.storeOptions(log, s.fail)
	storeOptions.Erased = s.erased
	s.store, err = pebblestore.Open(c.Data, storeOptions)
	opened()
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.store.Close())
		}
	}()
	if err = s.access.started(c.Addr, c.AdminAddr); err != nil {
		return nil, err
	}
	if s.tracer, err = c.TraceOptions.open(c.Version, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stopTracing()
		}
	}()
	cfg.Trace = s.tracer
	requests := metrics.NewRequests()
	requests.Told = logs.access.answered
	if s.core, err = ingest.New(s.store, s.problems, cfg); err != nil {
		return nil, err
	}
	s.health = health.New(health.Options{OnChange: s.healthChanged}, health.Check{
		Name:  "store",
		Every: time.Second,
		Run:   func(context.Context) error { return s.store.Ready() },
	})
	reads := query.New(s.store, s.store, query.Config{
		Problems: s.problems,
		Flags:    flags,
		Param:    mux.Var,
		Gate:     s.access.gate,
		Failed:   func(err error) { log.Error("reading stored readings failed", "error", err) },

		PieceTimeout: min(2*c.ReadTimeout, 30*time.Second),
	})
	posts := requests.Route(readingsTemplate)
	s.public = s.httpServer(c, s.tracer.Handler(routes(requests, s.core, reads, c.MaxReads, s.health, s.problems)))
	s.public.ConnContext = listen.Mark
	if err = s.listenPublic(c, posts); err != nil {
		return nil, errors.Join(err, s.core.Close(context.Background()))
	}
	s.retention = s.newRetention(c.Retain)
	if c.AdminAddr != "" {
		shown := metrics.Handler(c.Version, s.health.Ready, s.collectors(requests)...)
		s.admin = s.httpServer(c, s.withUpkeep(s.withLevel(adminRoutes(s.health, shown))))
		s.admin.ReadTimeout = 0  // net/http would end the context of a longer profile
		s.admin.WriteTimeout = 0 // a profile takes as long as was asked for
		if _, err = s.listen(s.admin, c.AdminAddr, adminSocket); err != nil {
			s.core.Drain()
			return nil, errors.Join(err, s.stopPublic(context.Background()), s.core.Close(context.Background()))
		}
	}
	s.health.Start(context.Background())
	log.Info("data", "dir", c.Data, "durability", "every answer of stored or duplicate follows an fdatasync", "devices", s.store.Stats().Devices)
	warnVolatile(log, c.Data)
	s.retention.start()
	return s, nil
}

// PublicAddr returns the address of the public listener.
func (s *Server) PublicAddr() net.Addr { return s.publicAddr }

// maxHeaderBytes bounds the header of a request.
const maxHeaderBytes = 16 << 10

func (s *Server) httpServer(c *Options, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           endLast(h),
		ReadHeaderTimeout: min(c.ReadTimeout, 10*time.Second),
		ReadTimeout:       c.ReadTimeout,
		WriteTimeout:      2 * c.ReadTimeout, // from the end of the header; commits are waited for within it
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.logging.httpErrors(),

		DisableGeneralOptionsHandler: true, // endLast is to see every request

		// WriteTimeout ends a stream; the connection of a client that takes nothing more
		// would stay.
		HTTP2: &http.HTTP2Config{WriteByteTimeout: 2 * c.ReadTimeout},
	}
}

// listenPublic opens the public listener. Where there is a fast lane, connections
// begin there, and public serves those that leave it. With TLS there is none.
//
// posts counts the requests of the fast lane, as it does those of public.
func (s *Server) listenPublic(c *Options, posts *metrics.Route) error {
	l, err := s.life.listen(publicSocket, c.Addr)
	if err != nil {
		return err
	}
	if s.access.tls != nil {
		s.public.Handler = s.access.endOutlived(s.public.Handler)
		s.public.TLSConfig = s.access.tls.TLSConfig()
		s.public.ErrorLog = s.access.httpErrors(s.public.ErrorLog)
	} else if c.FastLane == "on" {
		s.lane, err = s.core.FastLane(l, ingest.FastLaneConfig{
			Loops:         c.Loops,
			MaxConns:      c.MaxConns,
			MaxGuests:     maxGuests,
			HeaderTimeout: s.public.ReadHeaderTimeout,
			ReadTimeout:   s.public.ReadTimeout,
			WriteTimeout:  s.public.WriteTimeout,
			IdleTimeout:   s.public.IdleTimeout,
			Observe: func(status int, message []byte, took time.Duration) {
				posts.Observe(status, took)
				s.logging.access.fastLane(status, message, took)
			},
		})
		switch {
		case err == nil:
			l = s.lane
		case !errors.Is(err, ingest.ErrNoFastLane):
			return errors.Join(fmt.Errorf("start fast lane: %w", err), l.Close())
		}
	}
	if s.lane == nil {
		l = listen.Bound(l, listen.Limits{MaxConns: c.MaxConns, MaxGuests: maxGuests})
	}
	if s.public.TLSConfig == nil {
		l = listen.Watch(l)
	}
	s.publicAddr = s.serve(s.public, l, publicSocket)
	return nil
}

// stopPublic answers what has arrived at the public listener, and closes it.
func (s *Server) stopPublic(ctx context.Context) error {
	var wg sync.WaitGroup
	var laneErr error
	if s.lane != nil {
		wg.Go(func() { laneErr = s.lane.Shutdown(ctx) })
	}
	err := s.public.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.public.Close())
	}
	wg.Wait()
	return errors.Join(err, laneErr)
}

// listen opens a listener and serves it in the background.
func (s *Server) listen(h *http.Server, addr, name string) (net.Addr, error) {
	l, err := s.life.listen(name, addr)
	if err != nil {
		return nil, err
	}
	return s.serve(h, listen.Bound(l, listen.Limits{MaxConns: maxAdminConns}), name), nil
}

// serve serves a listener in the background, with TLS if h has a configuration.
func (s *Server) serve(h *http.Server, l net.Listener, name string) net.Addr {
	serve := h.Serve
	if h.TLSConfig != nil {
		serve = func(l net.Listener) error { return h.ServeTLS(l, "", "") }
	}
	go func() {
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.ended <- fmt.Errorf("%s listener: %w", name, err)
		}
	}()
	// Scripts look for this line, whatever the log's level and format.
	fmt.Fprintf(s.stderr, "listening addr=%s listener=%s\n", l.Addr(), name)
	return l.Addr()
}

// Run serves until ctx ends, and then in good order to the end. It returns nil
// when everything that was admitted is answered and stored.
func (s *Server) Run(ctx context.Context) error {
	s.running.Store(true)
	select {
	case <-ctx.Done():
		return s.Drain()
	case why := <-s.failed:
		return s.stopFailed(why)
	case err := <-s.ended:
		return errors.Join(err, s.Drain())
	}
}

// Drain refuses what comes, answers what is under way, and closes the store.
func (s *Server) Drain() error {
	s.log.Info("draining", "delay", s.drainDelay.String(), "timeout", s.drainTimeout.String())
	s.life.stopping(s.drainDelay+s.drainTimeout, "draining")
	s.health.Drain()
	// Within the delay readings are taken, and a store that fails is met as ever.
	if why := s.life.delay(s.drainDelay, s.failed); why != "" {
		return s.stopFailed(why)
	}
	s.running.Store(false)
	s.core.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), s.drainTimeout)
	defer cancel()
	err := s.stopPublic(ctx)
	if err != nil {
		err = fmt.Errorf("requests were cut off after %v: %w", s.drainTimeout, err)
	}
	err = errors.Join(err, s.core.Close(ctx), s.health.Close(ctx))
	s.stopTracing()
	if s.admin != nil {
		err = errors.Join(err, s.admin.Close())
	}
	s.retention.end()
	if e := s.store.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("close store: %w", e))
	}
	err = errors.Join(err, s.access.close())
	if err == nil {
		s.log.Info("stopped", "stored", s.core.Stored())
	}
	return err
}

// stopFailed ends a server whose store has failed. Those who wait for an answer
// are told that the outcome is unknown. The store is not closed as if nothing had
// happened: its next start recovers it.
func (s *Server) stopFailed(why string) error {
	s.life.stopping(2*failureGrace+time.Second, statusLine(why))
	s.core.Drain()
	time.Sleep(failureGrace) // in which readyz says it
	ctx, cancel := context.WithTimeout(context.Background(), failureGrace+time.Second)
	defer cancel()
	_ = s.stopPublic(ctx) // whoever is cut off has no acknowledgement
	return errors.Join(errors.New(why), s.access.close())
}

// failureGrace is how long the store holds back what failed, while the server
// tells its health checks and begins to stop.
const failureGrace = 500 * time.Millisecond

// fail is told by the store that it cannot write any more. When it returns, the
// group that failed is answered. While the store is opened or closed, nobody waits for
// failed, and what opens or closes it may wait for ever.
func (s *Server) fail(why string) {
	if s.running.Load() {
		s.health.Reporter("store")(errors.New(why))
		select {
		case s.failed <- why:
		default:
		}
		time.Sleep(failureGrace)
	}
	if !s.running.Load() {
		s.logging.end("pulsegate: " + why + "\n")
		os.Exit(1)
	}
}

func (s *Server) healthChanged(name string, err error) {
	s.life.status(s, name, err)
	if err != nil {
		s.log.Warn("not ready", "check", name, "error", err)
		return
	}
	s.log.Info("ready", "check", name)
}

// adminRoutes serves the profiles, to peers on this machine only: a profile of a
// process may hold what the process holds.
//
// It serves the health checks as well: they are answered here while all public
// connections are in use.
func adminRoutes(state *health.Health, measures http.Handler) http.Handler {
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", measures)
	routes.Handle("GET /livez", state.Livez())
	routes.Handle("GET /readyz", state.Readyz())
	routes.Handle("GET /healthz", state.Healthz())
	var contention profile.Contention
	forbidden := reply.New(http.StatusForbidden, "text/plain; charset=utf-8", []byte("profiles are served to loopback peers only\n"))
	local := func(path string, h http.HandlerFunc) {
		routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil || !IsLoopback(host) {
				forbidden.ServeHTTP(w, r)
				return
			}
			h(w, r)
		})
	}
	local("/debug/pprof/", pprof.Index)
	local("/debug/pprof/cmdline", pprof.Cmdline)
	local("/debug/pprof/profile", pprof.Profile)
	local("/debug/pprof/symbol", pprof.Symbol)
	local("/debug/pprof/trace", pprof.Trace)
	local(profile.ContentionPath, contention.ServeHTTP)
	return routes
}
