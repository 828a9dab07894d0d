// Package server runs one Pulsegate: its listeners and the handlers that they serve, its
// limits, and its life from the first signal to the last answer. The commands serve and
// demo run it.
//
// # Promise
//
// When [Run] returns nil, every admitted request has been answered, every
// acknowledged reading is on stable storage, and the store is closed.
//
// # Not here
//
// The handlers are in the packages of internal/api, the store in those of
// internal/storage. Package cmd reads flags and the environment.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/health"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/api/dashboard"
	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/live"
	"github.com/pulsegate/pulsegate/internal/api/openapi"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/mux"
)

// A server is a running service: a store, the core that writes to it, and the
// listeners. Fields that start has not reached are nil.
type server struct {
	opt      *Options
	log      *Log
	life     *lifecycle
	problems *problem.Set

	access        *access
	holders       share.Holders // of connections, memory of bodies and places of readers
	store         store
	embedded      *pebblestore.Store // store, if it is the embedded one; otherwise nil
	tracer        *tracing.Tracer    // nil: no tracing
	traceEndpoint string             // host and port of its collector
	origins       *origins           // nil: none
	hosts         *hosts             // for which the public listener answers; nil: all
	requests      *metrics.Requests
	handshakes    metrics.Handshakes // of the public listener
	trim          trimmer            // after handshakes
	ballast       [][]byte           // nil: without TLS
	live          *live.Hub
	core          *ingest.Core
	health        *health.Health
	conns         *share.Conns // of the public listener
	public        *http.Server
	lane          *ingest.FastLane // nil: public serves all requests
	admin         *http.Server     // nil: none
	retention     *admin.Retention // nil: readings are kept for ever
	page          *dashboard.Handler

	background     sync.WaitGroup     // of what startBackground starts
	stopBackground context.CancelFunc // ends them; nil: not started

	publicAddr net.Addr
	listening  []listening // in the order in which they were opened
	ended      chan error  // the error of a listener that failed
	failed     chan string // why the store failed
	running    atomic.Bool // Run receives from failed
}

// A listening describes an open listener.
type listening struct {
	addr     net.Addr
	listener string // publicSocket or adminSocket
}

// Run opens the store, serves until ctx ends, and then drains: it refuses new requests,
// answers those in progress, and closes the store. SIGHUP reloads. The error is a
// [settings.UsageError] if the options are invalid.
//
// onServing, which may be nil, is called once requests are accepted, with the address of
// the public listener. If it returns an error, the server ends.
func Run(ctx context.Context, opt *Options, log *Log, onServing func(context.Context, net.Addr) error) error {
	own := *opt
	life, err := newLifecycle(&own, log.Logger)
	if err != nil {
		return err
	}
	defer life.end()
	own.Fit(log.Logger)
	if err := own.Check(); err != nil {
		return err
	}
	s := &server{
		opt: &own, log: log, life: life, problems: own.problems(),
		access: &access{opt: &own, gate: new(gate.Gate), log: log.Logger},
		ended:  make(chan error, 2), failed: make(chan string, 1),
	}
	if own.TLSCert != "" {
		s.ballast = newBallast(own.usableBytes)
	}
	if err := s.start(); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), own.DrainTimeout)
		defer cancel()
		return errors.Join(err, s.close(ctx))
	}
	defer life.serving(s)()
	s.running.Store(true)
	if onServing != nil {
		if err := onServing(ctx, s.publicAddr); err != nil {
			return errors.Join(err, s.drain())
		}
	}
	select {
	case <-ctx.Done():
		return s.drain()
	case why := <-s.failed:
		return s.stopFailed(why)
	case err := <-s.ended:
		return errors.Join(err, s.drain())
	}
}

// checkDamage is the name of the readyz check that fails once a stored file was found
// damaged.
const checkDamage = "damage"

// start opens the store and the listeners. After an error, close closes what it has opened.
func (s *server) start() error {
	for _, step := range []func() error{
		s.access.open, s.bind, s.openStore, s.access.started, s.startTracing, s.openCore, s.servePublic, s.serveAdmin,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	s.announce()
	s.health.Start(context.Background())
	s.startBackground()
	return nil
}

// announce logs how the server runs, the address of each listener and, last, that the server is
// ready.
func (s *server) announce() {
	s.access.announce()
	if s.tracer != nil {
		s.log.Info("tracing", "endpoint", s.traceEndpoint, "sample", s.opt.TraceSample, "slow", settings.FormatDuration(s.opt.TraceSlow))
	}
	if s.embedded != nil {
		s.log.Info("data", "dir", s.opt.Data, "durability", "every answer of stored or duplicate follows an fdatasync", "devices", s.store.DeviceCount())
		warnVolatile(s.log.Logger, s.opt.Data)
	} else {
		s.log.Info("data", "store", s.opt.Store, "durability", "every answer of stored or duplicate follows a synchronous commit", "standbys", !s.opt.PostgresSingle)
	}
	for _, l := range s.listening {
		s.log.print("listening", slog.String("addr", l.addr.String()), slog.String("listener", l.listener))
	}
	s.log.print("ready", slog.String("url", s.url()), slog.String("data", s.opt.storeName()), slog.String("version", s.opt.Version))
}

// url returns the URL of the public listener, for clients on this machine.
func (s *server) url() string {
	scheme := "http"
	if s.access.tls != nil {
		scheme = "https"
	}
	addr := s.publicAddr.String()
	if host, port, err := net.SplitHostPort(addr); err == nil && net.ParseIP(host).IsUnspecified() {
		addr = net.JoinHostPort("localhost", port)
	}
	return scheme + "://" + addr
}

// openCore makes the core, which writes to the store, with the counters of its requests, and
// the hub to which it reports what it has stored.
func (s *server) openCore() (err error) {
	limits, err := s.opt.limits()
	if err != nil {
		return err
	}
	cfg := s.opt.ingest(limits)
	if !s.access.gate.Open() {
		cfg.Gate = s.access.gate
	}
	cfg.Trace = s.tracer
	if s.holders.Exempt, err = s.opt.trustedProxies(); err != nil {
		return err
	}
	cfg.Holders = &s.holders
	flags, err := s.opt.flagLimits()
	if err != nil {
		return err
	}
	s.live = live.New(s.store, live.Options{Service: s.readings("reading live readings failed"), Flags: flags, MaxSubscribers: s.opt.MaxLive})
	cfg.OnCommitted = s.live.Publish
	s.requests = metrics.NewRequests()
	s.requests.OnAnswered = s.log.access.answered
	s.core, err = ingest.New(s.store, s.problems, cfg)
	return err
}

// servePublic serves the public listener.
func (s *server) servePublic() error {
	flags, err := s.opt.flagLimits()
	if err != nil {
		return err
	}
	limits, err := s.opt.limits()
	if err != nil {
		return err
	}
	shared := s.readings("reading stored readings failed")
	shared.Bound = query.NewBound(s.opt.MaxReads)
	reads := query.New(s.store, s.store, query.Options{Service: shared, Flags: flags, Limits: limits, Subjects: s.store, StaleAfter: s.opt.StaleAfter})
	records := fhir.New(s.store, s.store, fhir.Options{Service: shared, Version: s.opt.Version, Base: s.opt.FHIRURL})
	if s.origins, err = newOrigins(s.opt.CORSOrigins); err != nil {
		return err
	}
	s.hosts = s.opt.publicHosts(s.origins)
	posts := s.requests.Route(readingsTemplate)
	s.conns = &share.Conns{Max: s.opt.MaxConns, MaxGuests: maxGuests, Holders: &s.holders}
	s.page, err = dashboard.New(dashboard.Options{Service: s.readings("gathering metrics failed"), Metrics: metrics.NewValues(dashboard.SystemMetrics, s.collectors()...)})
	if err != nil {
		return err
	}
	handler := s.routes(reads, records, openapi.Handler(openapi.Describe(openapi.Options{
		Version:    s.opt.Version,
		Problems:   s.problems,
		Ingest:     s.opt.ingest(limits),
		StaleAfter: s.opt.StaleAfter,
		Tokens:     !s.access.gate.Open(),
	})))
	s.public = s.httpServer(s.forwarded(handler))
	return s.listenPublic(posts)
}

// readings returns what the packages that serve readings share. Their errors are logged with a text.
func (s *server) readings(failed string) query.Service {
	return query.Service{
		Problems: s.problems, Param: mux.Var, Gate: s.access.gate, Holders: &s.holders, PieceTimeout: s.pieceTimeout(),
		OnError: func(err error) { s.log.Error(failed, "error", err) },
	}
}

// pieceTimeout is how long a client may take to read a piece of an answer.
func (s *server) pieceTimeout() time.Duration { return min(2*s.opt.ReadTimeout, 30*time.Second) }

// serveAdmin serves the admin listener, if configured.
func (s *server) serveAdmin() error {
	if s.opt.AdminAddr == "" {
		return nil
	}
	s.admin = s.httpServer(s.withDeadlines(s.adminRoutes(metrics.Handler(s.opt.Version, s.health.Ready, s.collectors()...))))
	s.admin.ReadTimeout, s.admin.WriteTimeout = 0, 0 // see withDeadlines
	s.listenAdmin()
	return nil
}

// startBackground starts the history of the system, the removal of readings that are older than the
// options allow, the merging of small segments, and the verification of the stored tables.
func (s *server) startBackground() {
	var ctx context.Context
	ctx, s.stopBackground = context.WithCancel(context.Background())
	s.background.Go(func() { s.page.Run(ctx) })
	if s.retention != nil {
		s.log.Info("old readings are removed", "keep", settings.FormatDuration(s.opt.Retain), "every", settings.FormatDuration(s.retention.Every()))
		s.background.Go(func() { s.retention.Run(ctx) })
	}
	if s.embedded != nil {
		s.background.Go(func() { s.embedded.Tidy(ctx) })
	}
	if s.opt.Scrub != 0 && s.embedded != nil {
		s.background.Go(func() { s.embedded.Scrub(ctx, s.opt.Scrub) })
	}
}

func (s *server) healthChanged(name string, err error) {
	if name == checkDamage {
		if err != nil {
			s.log.Error("stored files are damaged: readings that must be compared with unreadable ones are rejected, others are accepted; "+
				"stop the server and run pulsegate check", "error", err)
		}
		return
	}
	s.life.status(s, name, err)
	if err != nil {
		s.log.Warn("not ready", "check", name, "error", err)
		return
	}
	s.log.Info("check passes", "check", name)
}
