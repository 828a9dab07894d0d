package server

import (
	"context"
	"io"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
)

// adminRoutes is what the admin listener serves: measurements and health to everybody,
// so that the health checks are answered while all public connections are in use (where
// only this machine can reach it, measurements not to pages of other sites);
// profiles to peers on this machine only, since a profile of a process may hold what the
// process holds; and what changes or copies the store to administrators.
func (s *server) adminRoutes(measures http.Handler) http.Handler {
	routes := http.NewServeMux()
	own := newHosts(s.opt.AdminAddr)
	if isLoopback(s.opt.AdminAddr) {
		measures = own.only(measures, s.problems)
	}
	routes.Handle("GET /metrics", measures)
	routes.Handle("GET /livez", s.health.Livez())
	routes.Handle("GET /readyz", s.health.Readyz())
	routes.Handle("GET /healthz", s.health.Healthz())

	forbidden := reply.New(http.StatusForbidden, "text/plain; charset=utf-8", []byte("profiles are served to loopback peers only, under a name of loopback\n"))
	local := func(path string, h http.HandlerFunc) {
		routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if !isLoopback(r.RemoteAddr) || !own.allow(r) {
				forbidden.ServeHTTP(w, r)
				return
			}
			takesLong(w)
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
		Backup:   func() (admin.Copy, error) { return s.store.Backup() },
		Erase:    s.store.EraseRecorded,
		Record:   s.access.record,
		Actor:    adminActor,
		Problems: s.problems,
		Log:      s.log.Logger,
	})
	post := func(path string, h http.HandlerFunc) {
		routes.Handle(path, s.adminOnly(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.Header().Set("Allow", http.MethodPost)
				s.problems.MethodNotAllowed.Write(w, r, "")
				return
			}
			h(w, r)
		}))
	}
	post(admin.BackupPath, h.Backup)
	post(admin.ErasePath, h.Erase)
	routes.Handle("/loglevel", s.adminOnly(s.log.serveLevel))
	return routes
}

// inTime bounds the time of a request's body and of its answer, for a server without
// timeouts of its own: by its ReadTimeout, net/http would end the context of a profile that
// takes longer, and by its WriteTimeout the profile.
func (s *server) inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, now := http.NewResponseController(w), time.Now()
		_ = out.SetWriteDeadline(now.Add(2 * s.opt.ReadTimeout)) // a connection has deadlines
		if r.ContentLength != 0 {
			_ = out.SetReadDeadline(now.Add(s.opt.ReadTimeout))
			r.Body = &timedBody{r.Body, out}
		}
		next.ServeHTTP(w, r)
	})
}

// takesLong lifts the bound on the time of an answer, for a request that was let in.
func takesLong(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

// A timedBody lifts the bound on its time at its end.
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

// adminOnly returns h after a check of who sent the request.
//
// Where there are tokens, the request needs one with the right admin, wherever it comes
// from. Where there are none, it must come from this machine.
//
// A page in a browser on this machine comes from this machine too. So a request that a
// browser makes for another site is refused, and without tokens so is one whose Host is
// a name: the owner of a name decides of which address it is, and decides anew (DNS
// rebinding).
func (s *server) adminOnly(h http.HandlerFunc) http.Handler {
	return fromThisSite(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.access.gate.Tokens == nil {
			if !isLoopback(r.RemoteAddr) || !isLoopback(r.Host) {
				s.problems.UntrustedOrigin.Write(w, r, "Without tokens this is for requests from this machine to a loopback address.")
				return
			}
			takesLong(w)
			h(w, r)
			return
		}
		switch pass, verdict, _ := s.access.gate.Authorize(gate.CredentialsOf(r), token.Admin, time.Now()); verdict {
		case gate.Allowed:
			takesLong(w)
			h(w, r.WithContext(context.WithValue(r.Context(), adminKey{}, pass.Token())))
		case gate.NoCredentials:
			s.problems.Unauthorized.Write(w, r, "")
		case gate.BadCredentials:
			s.problems.InvalidCredentials.Write(w, r, "")
		default:
			s.problems.Forbidden.Write(w, r, "The right admin is needed.")
		}
	}), s.problems)
}

// adminKey is the key of the token in the context of a request that adminOnly has let
// through.
type adminKey struct{}

// adminActor returns who sent a request that adminOnly has let through, as the audit log
// names him.
func adminActor(ctx context.Context) string {
	if id, ok := ctx.Value(adminKey{}).(token.ID); ok {
		return "token:" + id.String()
	}
	return "this machine"
}

// erased records an erasure that had been left unfinished when the store was last closed.
func (s *server) erased(e storage.Erasure) error {
	return s.access.record(audit.Record{Event: audit.Erased, Device: e.Device, Count: e.Readings, Actor: audit.ActorResumed})
}
