package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
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

// retentionMetrics returns what gives the figures of a scrape; nil for a keep of 0.
func (s *Server) retentionMetrics(keep settings.Days) func() metrics.Retention {
	if keep == 0 {
		return nil
	}
	return func() metrics.Retention {
		st, m := s.store.Stats(), metrics.Retention{}
		m.Readings, m.Devices = st.ExpiredReadings, st.ExpiredDevices
		if r := s.retention.Load(); r != nil { // a scrape may come before it begins
			status := r.Status()
			m.LastDone, m.Failed = status.LastDone, status.Failed
		}
		return m
	}
}

// A retention is the removal of old readings as it runs.
type retention struct {
	admin.Retention
	stop context.CancelFunc
	done sync.WaitGroup
}

// retain begins to remove what is older than keep; a keep of 0 means for ever.
func (s *Server) retain(keep settings.Days) {
	if keep == 0 {
		return
	}
	r := &retention{Retention: admin.Retention{Store: s.store, Keep: time.Duration(keep), Log: s.log}}
	text, _ := keep.MarshalText() // never fails
	s.log.Info("old readings are removed", "keep", string(text), "every", settings.FormatDuration(r.Every()))
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.done.Go(func() { r.Run(ctx) })
	s.retention.Store(r)
}

// end stops the removal and waits for that.
func (r *retention) end() {
	if r != nil {
		r.stop()
		r.done.Wait()
	}
}
