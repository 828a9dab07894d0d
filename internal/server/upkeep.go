package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// withUpkeep answers administrators' requests about the store, and leaves the others
// to next.
func (s *Server) withUpkeep(next http.Handler) http.Handler {
	h := admin.NewHandler(admin.Config{
		Backup:   func() (admin.Copy, error) { return s.store.Backup() },
		Erase:    s.store.EraseRecorded,
		Record:   s.access.record,
		Actor:    adminActor,
		Problems: s.problems,
		Log:      s.log,
	})
	routes := http.NewServeMux()
	post := func(path string, h http.HandlerFunc) {
		routes.Handle(path, s.adminOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.Header().Set("Allow", http.MethodPost)
				s.problems.MethodNotAllowed.Write(w, r, "")
				return
			}
			h(w, r)
		})))
	}
	post("/admin/backup", h.Backup)
	post("/admin/erase", h.Erase)
	routes.Handle("/", next)
	return routes
}

// erased is told of erasures that had been left unfinished.
func (s *Server) erased(e storage.Erasure) {
	err := s.access.record(audit.Record{Event: audit.Erased, Device: e.Device, Count: e.Readings, Actor: audit.ActorResumed})
	if err != nil {
		s.log.Error("an erasure cannot be recorded in the audit log", "device", e.Device, "readings", e.Readings, "error", err)
	}
}

// A retention is the removal of old readings as it runs.
type retention struct {
	admin.Retention
	stop context.CancelFunc
	done sync.WaitGroup
}

// newRetention returns the removal of what is older than keep; nil for a keep of 0,
// which means for ever.
func (s *Server) newRetention(keep settings.Days) *retention {
	if keep == 0 {
		return nil
	}
	return &retention{Retention: admin.Retention{Store: s.store, Keep: time.Duration(keep), Log: s.log}}
}

// start begins to remove.
func (r *retention) start() {
	if r == nil {
		return
	}
	text, _ := settings.Days(r.Keep).MarshalText() // never fails
	r.Log.Info("old readings are removed", "keep", string(text), "every", settings.FormatDuration(r.Every()))
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.done.Go(func() { r.Run(ctx) })
}

// end stops the removal and waits for that.
func (r *retention) end() {
	if r != nil {
		r.stop()
		r.done.Wait()
	}
}
