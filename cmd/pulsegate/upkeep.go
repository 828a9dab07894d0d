package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// withUpkeep answers administrators' requests about the store, and leaves the others
// to next.
func (s *server) withUpkeep(next http.Handler) http.Handler {
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
	post(transfer.BackupPath, h.Backup)
	post(transfer.ErasePath, h.Erase)
	routes.Handle("/", next)
	return routes
}

// erased is told of erasures that had been left unfinished.
func (s *server) erased(e storage.Erasure) {
	err := s.access.record(audit.Record{Event: audit.Erased, Device: e.Device, Count: e.Readings, Actor: actorResumed})
	if err != nil {
		s.log.Error("an erasure cannot be recorded in the audit log", "device", e.Device, "readings", e.Readings, "error", err)
	}
}

// leastRetain is the shortest time for which readings may be kept.
const leastRetain = time.Hour

// A keepFor is a time for which readings are kept, such as 400d or 36h. 0 means for
// ever.
type keepFor time.Duration

// UnmarshalText reads a number of days, or what time.ParseDuration takes.
func (k *keepFor) UnmarshalText(text []byte) error {
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > 36_500 {
			return fmt.Errorf("%q is not from 1d to 36500d", text)
		}
		*k = keepFor(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	d, err := parseDuration(string(text))
	if err != nil {
		return err
	}
	if d < leastRetain {
		return fmt.Errorf("%q is less than %s", text, formatDuration(leastRetain))
	}
	*k = keepFor(d)
	return nil
}

// MarshalText returns what UnmarshalText reads.
func (k keepFor) MarshalText() ([]byte, error) {
	const day = keepFor(24 * time.Hour)
	if k > 0 && k%day == 0 {
		return fmt.Appendf(nil, "%dd", k/day), nil
	}
	return []byte(formatDuration(time.Duration(k))), nil
}

// retentionMetrics returns what gives the figures of a scrape; nil for a keep of 0.
func (s *server) retentionMetrics(keep keepFor) func() metrics.Retention {
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
func (s *server) retain(keep keepFor) {
	if keep == 0 {
		return
	}
	r := &retention{Retention: admin.Retention{Store: s.store, Keep: time.Duration(keep), Log: s.log}}
	text, _ := keep.MarshalText() // never fails
	s.log.Info("old readings are removed", "keep", string(text), "every", formatDuration(r.Every()))
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
