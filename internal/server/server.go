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
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/health"
	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/dashboard"
	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/live"
	"github.com/pulsegate/pulsegate/internal/api/openapi"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/mux"
	"github.com/pulsegate/pulsegate/vitals"
)

// A server is a running service: a store, the core that writes to it, and the
// listeners. Fields that start has not reached are nil.
type server struct {
	opt      *Options
	parsed   parsed
	log      *Log
	life     *lifecycle
	problems *problem.Set

	access    *access
	holders   share.Holders // of connections, memory of bodies and places of readers
	store     store
	postgres  atomic.Pointer[pgstore.Certificates] // of the store's last connection; nil means there was none
	embedded  *pebblestore.Store                   // store, if it is the embedded one; otherwise nil
	tracer    *tracing.Tracer                      // nil means no tracing
	hosts     *hosts                               // for which the public listener answers; nil means all
	requests  *metrics.Requests
	reads     *query.Bound // of queries for devices and readings
	ballast   [][]byte     // nil without TLS
	live      *live.Hub
	feed      *query.Feed
	roster    *roster.Book // nil means that devices have no labels
	alerts    alerting
	core      *ingest.Core
	health    *health.Health
	listeners *listeners
	retention *admin.Retention // nil means readings are kept for ever
	page      *dashboard.Handler

	rejections *rejections.List // of inputs that cannot answer

	background     sync.WaitGroup     // of what startBackground starts
	stopBackground context.CancelFunc // ends them; nil means not started

	failed  chan string // why the store failed
	running atomic.Bool // Run receives from failed
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
	parsed, err := own.parse()
	if err != nil {
		return err
	}
	s := &server{
		opt: &own, parsed: parsed, log: log, life: life, problems: own.problems(),
		access:     &access{opt: &own, gate: new(gate.Gate), log: log.Logger},
		holders:    share.Holders{Exempt: parsed.proxies},
		requests:   new(metrics.Requests),
		rejections: rejections.New(rejections.Max),
		failed:     make(chan string, 1),
	}
	s.requests.OnAnswered = log.access.answered
	s.listeners = &listeners{
		opt: &own, log: log, sockets: life.sockets, access: s.access, requests: s.requests, holders: &s.holders,
		conns: &share.Conns{Max: own.MaxConns, MaxGuests: maxGuests, Holders: &s.holders},
		ended: make(chan error, 2),
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
		if err := onServing(ctx, s.listeners.publicAddr); err != nil {
			return errors.Join(err, s.drain())
		}
	}
	select {
	case <-ctx.Done():
		return s.drain()
	case why := <-s.failed:
		return s.stopFailed(why)
	case err := <-s.listeners.ended:
		return errors.Join(err, s.drain())
	}
}

// Names of the readyz checks.
const (
	checkStore        = "store"        // the store takes readings
	checkDamage       = "damage"       // no stored file was found damaged
	checkLoss         = "loss"         // no database may lack what was acknowledged, or an operator has confirmed that
	checkMemory       = "remember-dir" // the directory of what the server remembers can be written
	checkDevices      = "devices"      // the store has room for new devices
	checkAlerts       = "alerts"       // all devices have alerts
	checkAlertmanager = "alertmanager" // each Alertmanager accepts alerts
)

// start opens the store and the listeners. After an error, close closes what it has opened.
func (s *server) start() error {
	for _, step := range []func() error{
		s.access.open, s.listeners.open, s.openStore, s.access.started, s.openCore, s.servePublic, s.serveFronts,
		s.serveAdmin,
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

// warnReadable warns of a directory that every user of the machine may read. A directory to which every user may
// write is not used: see [sharedfile.PrivateDir].
func warnReadable(log *slog.Logger, configured string) {
	dir, err := sharedfile.PrivateDir(configured)
	if err != nil {
		return // this is only for a warning
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o007 != 0 {
		log.Warn("every user of this machine may look into the directory of the readings: change that with chmod o-rx",
			"dir", dir)
	}
}

// announce logs how the server runs, the address of each listener and, last, that the server is
// ready.
func (s *server) announce() {
	s.access.announce()
	if s.embedded != nil {
		s.log.Info("data", "dir", s.opt.Data, "durability", "every answer of stored or duplicate follows an fdatasync",
			"devices", s.store.DeviceCount())
		warnVolatile(s.log.Logger, s.opt.Data)
		warnReadable(s.log.Logger, s.opt.Data)
	} else {
		if s.opt.RememberDir != "" {
			warnReadable(s.log.Logger, s.opt.RememberDir)
		}
		s.log.Info("data", "store", s.opt.Store, "durability",
			"every answer of stored or duplicate follows a synchronous commit", "standbys", !s.opt.PostgresSingle)
	}
	for _, l := range s.listeners.listening {
		s.log.print("listening", slog.String("addr", l.addr.String()), slog.String("listener", l.listener))
	}
	s.log.print("ready", slog.String("url", s.listeners.url()), slog.String("data", s.opt.storeName()),
		slog.String("version", s.opt.Version))
}

// openCore makes the tracer, the core, which writes to the store, and the hub to which the core
// reports what it has stored.
func (s *server) openCore() (err error) {
	s.tracer = startTracing(s.opt, s.parsed.tracing, s.log)
	cfg := s.opt.ingest(s.parsed.limits)
	if !s.access.gate.Open() {
		cfg.Gate = s.access.gate
	}
	cfg.Trace = s.tracer
	cfg.Holders = &s.holders
	if s.opt.Devices != "" {
		if s.roster, err = roster.Open(s.opt.Devices, &s.parsed.limits, s.rosterLoaded); err != nil {
			return settings.Usagef("--devices: %v", err)
		}
		s.warnEmptyGroups(s.roster.Current())
	}
	s.live = live.New(s.store, live.Options{Service: s.readings("reading live readings failed"), Flags: s.parsed.flags,
		MaxSubscribers: live.DefaultMaxSubscribers})
	if s.opt.Alerts != "" {
		err := s.alerts.start(s.opt, s.store, s.live, s.roster, &s.parsed.flags, s.listeners.url(), s.log.Logger)
		if err != nil {
			return err
		}
	}
	if db, ok := s.store.(*pgstore.Store); ok {
		db.FinishErasures(s.erased)
	}
	cfg.OnCommitted = func(group []*storage.Entry) {
		s.live.Publish(group)
		s.alerts.publish(group)
	}
	var warned atomic.Int64 // Unix s of the last warning
	cfg.OnFull = func() {
		if last, now := warned.Load(), time.Now().Unix(); now-last >= 3600 && warned.CompareAndSwap(last, now) {
			s.log.Warn("readings of new devices are rejected: the store has its maximum number of devices or gateways",
				"devices", s.store.DeviceCount(), "max_devices", s.opt.MaxDevices)
		}
	}
	cfg.OnLeftOut = func(l *ingest.LeftOut, gateway vitals.Name, covered bool) {
		s.rejections.Add(rejections.Rejection{
			UnixMs: time.Now().UnixMilli(), Input: l.Source.String(), Gateway: gateway, Device: l.Device,
			Foreign: !covered, Field: l.Field, Reason: l.Why.Reason(), LeftOut: true,
		})
	}
	s.core, err = ingest.New(s.store, s.problems, cfg)
	return err
}

// rosterLoaded is called when the file of --devices has changed.
func (s *server) rosterLoaded(now *roster.Roster, err error) {
	if err != nil {
		s.log.Error("the file of devices cannot be used; the labels and ranges before stay in use", "error", err)
		return
	}
	s.log.Info("labels and ranges of devices loaded", "devices", now.Len())
	s.warnEmptyGroups(now)
}

func (s *server) warnEmptyGroups(now *roster.Roster) {
	if groups := now.EmptyGroups(); len(groups) > 0 {
		s.log.Warn("the file of devices has ranges of groups without a device", "groups", groups)
	}
}

// servePublic serves the public listener.
func (s *server) servePublic() (err error) {
	shared := s.readings("reading stored readings failed")
	s.reads = query.NewBound(query.DefaultMaxReads)
	shared.Bound = s.reads
	options := query.Options{Service: shared, Flags: s.parsed.flags, Limits: s.parsed.limits, StaleAfter: s.opt.StaleAfter}
	if engine := s.alerts.engine; engine != nil {
		options.Alerts = func(devices []storage.Device, fromUnixMs int64, first []query.ActiveAlert) {
			alert.First(engine, devices, fromUnixMs, first)
		}
	}
	reads := query.New(s.store, s.store, options)
	var changes storage.Changes
	if s.opt.ChangesKeep > 0 {
		changes = s.store
	}
	s.feed = query.NewFeed(reads, changes)
	base := "" // of links: made from the request
	if public := s.opt.publicURL(); public != "" {
		base = public + "fhir"
	}
	records := fhir.New(s.store, s.store, fhir.Options{
		Service: shared, Version: s.opt.Version, Base: base,
		PulseAsHeartRate: s.opt.pulseAsHeartRate(), Changes: changes, Erase: s.eraseObservation,
	})
	cfg := s.opt.ingest(s.parsed.limits)
	lines := influx.New(influx.Options{
		Problems: s.problems, Signs: cfg.Limits.Signs, IgnoreUnknown: cfg.IgnoreUnknown, MaxLineBytes: cfg.MaxSingleBytes,
		DeviceTag: s.opt.InfluxTag, Mappings: s.parsed.lines, Version: s.opt.Version, Ready: s.health.Ready,
	})
	s.hosts = s.opt.publicHosts(s.parsed.origins)
	posts := s.requests.Route(readingsTemplate)
	s.page, err = dashboard.New(dashboard.Options{Service: s.readings("gathering metrics failed"),
		Metrics: metrics.NewValues(dashboard.SystemMetrics, s.collectors()...)})
	if err != nil {
		return err
	}
	description := openapi.Handler(openapi.Options{
		Version:    s.opt.Version,
		Problems:   s.problems,
		Ingest:     cfg,
		DeviceTag:  s.opt.InfluxTag,
		StaleAfter: s.opt.StaleAfter,
		Tokens:     !s.access.gate.Open(),
	})
	handler := s.routes(reads, query.NewSubjects(reads, s.store), records, lines,
		alert.NewHandler(s.alerts.engine, shared, &s.parsed.limits), rejections.NewHandler(s.rejections, shared), description)
	return s.listeners.servePublic(forwarded(&s.holders, handler), s.core, s.hosts, posts)
}

// recordClaims implements Record of [ingest.Intake], within the budget of the client.
func (s *server) recordClaims(ctx context.Context, client *gate.Access, peer netip.Addr, changes []storage.Assignment,
	failed bool) int {
	now := time.Now()
	if !failed {
		taken := gate.TakeAssignments(s.access.gate, client, peer, len(changes), now)
		if taken < len(changes) {
			s.log.Warn(
				"readings are refused for later: a client has made all the changes of assignments that it may make in a day",
				"gateway", client.Gateway().String(), "peer", peer.String(), "refused", len(changes)-taken)
		}
		changes = changes[:taken]
	}
	records := make([]audit.Record, 0, len(changes))
	var err error
	for _, a := range changes {
		r := audit.Record{Event: audit.SubjectAssigned, Gateway: *client.Gateway(), Peer: peer, Actor: "hl7"}
		if a.Subject == "" { // the assignment of that time ends
			var all []storage.Assignment
			if all, err = s.store.DeviceAssignments(ctx, a.Device); err != nil {
				break
			}
			r.Event = audit.SubjectEnded
			for i := range all {
				if all[i].Covers(a.FromUnixMs) {
					a.Subject, a.FromUnixMs, a.ToUnixMs = all[i].Subject, all[i].FromUnixMs, a.FromUnixMs
				}
			}
		}
		if failed {
			r.Event = audit.SubjectFailed
		}
		records = append(records, admin.AssignmentRecord(r, &a))
	}
	if err == nil {
		err = appendTo(s.access.gate.Audit, records...)
	}
	if err == nil {
		return len(records)
	}
	s.log.Error("changes of assignments cannot be recorded in the audit log", "failed", failed, "error", err)
	if !failed {
		gate.ReturnAssignments(s.access.gate, client, peer, len(changes), now)
	}
	return 0
}

// readings returns what the packages that serve readings share. Their errors are logged with a text.
func (s *server) readings(failed string) query.Service {
	return query.Service{
		Problems: s.problems, Param: mux.Var, Subjects: s.store, Roster: s.roster, Gate: s.access.gate,
		Holders: &s.holders, PieceTimeout: s.opt.pieceTimeout(),
		OnError: func(err error) { s.log.Error(failed, "error", err) },
	}
}

// serveAdmin serves the admin listener, if configured.
func (s *server) serveAdmin() error {
	if s.opt.AdminAddr == "" {
		return nil
	}
	routes := s.adminRoutes(metrics.Handler(s.opt.Version, s.health.Ready, s.collectors()...))
	s.listeners.serveAdmin(withDeadlines(s.opt.ReadTimeout, routes))
	return nil
}

// startBackground starts the history of the system, the removal of readings that are older than the
// options allow, the merging of small segments, and the verification of the stored tables.
func (s *server) startBackground() {
	var ctx context.Context
	ctx, s.stopBackground = context.WithCancel(context.Background())
	s.background.Go(func() { s.page.Run(ctx) })
	if s.retention != nil {
		s.log.Info("old readings are removed", "keep", settings.FormatDuration(s.opt.Retain), "every",
			settings.FormatDuration(s.retention.Every()))
		s.background.Go(func() { s.retention.Run(ctx) })
	}
	if s.embedded != nil {
		s.background.Go(func() { s.embedded.Tidy(ctx) })
		s.background.Go(func() { s.forgetEvents(ctx) })
	}
	if s.opt.Scrub != 0 && s.embedded != nil {
		s.background.Go(func() { s.embedded.Scrub(ctx, s.opt.Scrub) })
	}
}

// forgetEvery is how often events that are old enough are removed.
const forgetEvery = time.Hour

// forgetEvents removes events that are older than the options say, until ctx ends.
func (s *server) forgetEvents(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := s.embedded.ForgetEvents(); err != nil && !errors.Is(err, storage.ErrBusy) &&
			!errors.Is(err, storage.ErrClosed) {
			s.log.Error("old events of changes cannot be removed; will retry", "in", forgetEvery, "error", err)
		}
		timer.Reset(forgetEvery)
	}
}

// degradations has what to log when a check fails that only degrades the server, or "" if that is logged where it is
// found. It is never modified.
var degradations = map[string]string{
	checkDamage: "stored files are damaged: readings that must be compared with unreadable ones are rejected, others " +
		"are accepted; " +
		"stop the server and run pulsegate check",
	checkLoss:         "something acknowledged was lost; confirm it with pulsegate store confirm-loss",
	checkAlerts:       "devices may have no alerts",
	checkAlertmanager: "",
	checkMemory:       "",
	checkDevices:      "the store nearly has its maximum number of devices, and will reject readings of new ones",
}

func (s *server) healthChanged(name string, err error) {
	if text, degrades := degradations[name]; degrades {
		if err != nil && text != "" {
			s.log.Error(text, "error", err)
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

// collectors returns the collectors for /metrics.
func (s *server) collectors() []metrics.Collector {
	all := []metrics.Collector{
		s.requests, &s.listeners.handshakes, s.core, s.live, s.store, metrics.Log(s.log.lines),
		gate.Collector{Gate: s.access.gate, Files: s.access.tls, Syslog: s.access.syslog, Expiry: s.expiry},
		metrics.Gauge("pulsegate_connections", "Open connections of the public listener, in both lanes.",
			s.listeners.conns.Open),
		metrics.Gauge("pulsegate_changes_waiting", "Requests for changes that may wait, and streams of changes.",
			s.feed.Waiting),
		metrics.Gauge("pulsegate_reads", "Queries for devices and readings that are in progress.", s.reads.Taken),
		metrics.Limits(map[string]int{
			"max-conns": s.opt.MaxConns, "max-queued": s.opt.MaxQueued, "max-body-bytes": s.opt.maxBodyBytes,
			"max-reads": query.DefaultMaxReads, "max-live": live.DefaultMaxSubscribers,
		}),
	}
	if s.retention != nil {
		all = append(all, s.retention)
	}
	for _, running := range s.listeners.fronts {
		all = append(all, running)
	}
	if s.alerts.engine != nil {
		all = append(all, alert.Collector{Engine: s.alerts.engine, File: s.alerts.file}, s.alerts.senders)
	}
	if s.roster != nil {
		all = append(all, s.roster)
	}
	if s.tracer != nil {
		all = append(all, s.tracer)
	}
	return all
}
