package server

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// adminRoutes returns the handler of the admin listener. Health checks and metrics are
// served to everybody, so that health checks are answered even while all public
// connections are in use; if only this machine can reach the listener, metrics are not
// served to pages of other sites. Profiles are served to peers on this machine only,
// because a profile may contain whatever the process has in memory. Requests that change
// or copy the store need the admin right.
func (s *server) adminRoutes(metricsHandler http.Handler) http.Handler {
	routes := http.NewServeMux()
	own := &hosts{names: []string{hostOf(s.opt.AdminAddr)}}
	if isLoopback(s.opt.AdminAddr) {
		metricsHandler = own.only(metricsHandler, s.problems)
	}
	routes.Handle("GET /metrics", metricsHandler)
	routes.Handle("GET /livez", s.health.Livez())
	routes.Handle("GET /readyz", s.health.Readyz())
	routes.Handle("GET /healthz", s.health.Healthz())

	forbidden := reply.New(http.StatusForbidden, "text/plain; charset=utf-8",
		[]byte("profiles are served to loopback peers only, under a loopback name\n"))
	local := func(path string, h http.HandlerFunc) {
		routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if !isLoopback(r.RemoteAddr) || !own.allow(r) {
				forbidden.ServeHTTP(w, r)
				return
			}
			liftWriteDeadline(w)
			h(w, r)
		})
	}
	local("/debug/pprof/", pprof.Index)
	local("/debug/pprof/cmdline", pprof.Cmdline)
	local("/debug/pprof/profile", pprof.Profile)
	local("/debug/pprof/symbol", pprof.Symbol)
	local("/debug/pprof/trace", pprof.Trace)
	local(profile.ContentionPath, new(profile.Contention).ServeHTTP)

	h := admin.NewHandler(admin.Options{
		Backup: func() (admin.Copy, error) { return s.embedded.Backup() },
		Erase: func(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error) {
			return s.store.EraseRecorded(device, s.eraseLive(record))
		},
		EraseAssignment: func(a storage.Assignment, record func(storage.Erasure) error) (storage.Erasure, error) {
			return s.store.EraseAssignmentRecorded(a, s.eraseLive(record))
		},
		EraseValues: func(e storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error) {
			return s.store.EraseValuesRecorded(e, s.eraseLive(record))
		},
		Latest:   s.store.Latest,
		Scan:     s.store.Scan,
		Subjects: s.store,
		Signs:    s.store.Signs(),

		Record:   s.access.record,
		Actor:    adminActor,
		Problems: s.problems,
		Log:      s.log.Logger,
	})
	post := func(path string, h http.HandlerFunc) {
		routes.Handle(path, s.access.adminOnly(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.Header().Set("Allow", http.MethodPost)
				s.problems.MethodNotAllowed.Write(w, r, "")
				return
			}
			h(w, r)
		}, s.problems))
	}
	backup := h.Backup
	if s.embedded == nil {
		backup = func(w http.ResponseWriter, r *http.Request) {
			s.problems.NotFound.Write(w, r,
				"The store is a PostgreSQL database: back it up with PostgreSQL's tools, such as pg_basebackup.")
		}
	}
	post(admin.BackupPath, backup)
	post(admin.ErasePath, h.Erase)
	post(admin.AssignPath, h.Assign)
	post(admin.EndPath, h.End)
	post(admin.AssignmentsPath, h.List)
	routes.Handle("/loglevel", s.access.adminOnly(s.log.serveLevel, s.problems))
	for _, path := range []string{"/{$}", "/v1/", "/fhir/"} {
		routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			s.problems.NotFound.Write(w, r,
				"This is the admin listener. Readings are at the address of the public one, which --addr sets.")
		})
	}
	return routes
}

// withDeadlines bounds the time of a request's body and of its answer. It replaces the timeouts of
// the server: with ReadTimeout, net/http would cancel the context of a longer profile, and
// with WriteTimeout cut the profile off.
func withDeadlines(readTimeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, now := http.NewResponseController(w), time.Now()
		_ = out.SetWriteDeadline(now.Add(2 * readTimeout)) // a connection has deadlines
		if r.ContentLength != 0 {
			_ = out.SetReadDeadline(now.Add(readTimeout))
			r.Body = &timedBody{r.Body, out}
		}
		next.ServeHTTP(w, r)
	})
}

// liftWriteDeadline removes the write deadline of an answer. It is called for authorised requests
// only.
func liftWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

// A timedBody removes the connection's read deadline when the body ends.
type timedBody struct {
	io.ReadCloser
	out *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.out.SetReadDeadline(time.Time{})
	}
	return n, err
}

// adminOnly returns h preceded by a check of the client.
//
// If the server has tokens, the request needs one with the admin right, from wherever it
// comes. Otherwise the request must come from this machine.
//
// A page in a browser on this machine also sends its requests from this machine.
// Requests that a browser makes for another site are therefore rejected. Without tokens,
// so are those whose Host is a name, because the owner of a name can point it at this
// machine at any time (DNS rebinding).
func (a *access) adminOnly(h http.HandlerFunc, problems *problem.Set) http.Handler {
	return sameSiteOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.gate.Tokens == nil && a.gate.OIDC == nil {
			if !isLoopback(r.RemoteAddr) || !isLoopback(r.Host) || !ownPage(r, nil) {
				problems.UntrustedOrigin.Write(w, r,
					"Without tokens this is for requests from this machine to a loopback address, and not for pages of other origins.")
				return
			}
			liftWriteDeadline(w)
			h(w, r)
			return
		}
		allowed, verdict, _ := a.gate.Authorize(gate.CredentialsOf(r), token.Admin, time.Now())
		answers := query.Service{Problems: problems}
		if answers.Refuse(w, r, verdict, "The admin right is required.") {
			return
		}
		liftWriteDeadline(w)
		h(w, r.WithContext(context.WithValue(r.Context(), adminKey{}, allowed.Principal)))
	}), problems.UntrustedOrigin.Answer(crossSiteDetail, nil))
}

// adminKey is the context key for the sender of a request that adminOnly has admitted.
type adminKey struct{}

// adminActor returns the sender of a request that adminOnly has admitted, as the audit
// log names it.
func adminActor(ctx context.Context) string {
	if p, ok := ctx.Value(adminKey{}).(*token.Principal); ok {
		return actorOf(p)
	}
	return "this machine"
}

func actorOf(p *token.Principal) string { return cmp.Or(p.Actor(), "token:"+p.ID().String()) }

// eraseObservation implements Erase of [fhir.Options].
func (s *server) eraseObservation(r *http.Request, by *gate.Access, e storage.Erasure) (storage.Erasure, error) {
	record := audit.Record{Actor: actorOf(by.Principal), Peer: gate.PeerOf(r).PeerAddr()}
	return s.store.EraseValuesRecorded(e, s.eraseLive(func(e storage.Erasure) error {
		return s.access.record(admin.ErasedRecord(e, s.store.Signs(), record))
	}))
}

// eraseLive returns a function that erases what live streams and alerts have of a device, and records
// the erasure.
func (s *server) eraseLive(record func(storage.Erasure) error) func(storage.Erasure) error {
	return func(e storage.Erasure) error {
		s.live.Erased(e.Device)
		s.alerts.erased(e.Device)
		return record(e)
	}
}

// lost records a loss that this server reports.
func (s *server) lost(l pgstore.Loss) {
	r := audit.Record{Event: audit.LossReported, From: time.UnixMilli(l.FromUnixMs), To: time.UnixMilli(l.ToUnixMs)}
	if err := s.access.record(r); err != nil {
		s.log.Error("a loss cannot be recorded in the audit log", "error", err)
	}
}

// erased records an erasure that was begun before, here or by another server of the database, and that the store has
// finished.
func (s *server) erased(e storage.Erasure) error {
	var signs *vitals.Signs
	if s.store != nil {
		signs = s.store.Signs()
	}
	if s.live != nil { // the store is open
		s.live.Erased(e.Device)
		s.alerts.erased(e.Device)
	}
	return s.access.record(admin.ErasedRecord(e, signs, audit.Record{Actor: audit.ActorResumed}))
}
