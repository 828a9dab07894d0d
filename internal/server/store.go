package server

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pulsegate/pulsegate/health"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/signsfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// A store is what a server needs of its store, the embedded one or PostgreSQL.
type store interface {
	storage.Store
	query.Lister
	admin.Expirer
	metrics.Collector

	storage.Subjects
	storage.Changes

	EraseRecorded(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error)
	EraseAssignmentRecorded(a storage.Assignment, record func(storage.Erasure) error) (storage.Erasure, error)
	EraseValuesRecorded(e storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error)
	Ready() error
	DeviceCount() int64
}

// openStore opens the store that the options name.
func (s *server) openStore() error {
	defer s.life.opening(s.opt.storeName())()
	var checks []health.Check
	check := func(name string, run func(context.Context) error) {
		_, degrades := degradations[name]
		checks = append(checks, health.Check{Name: name, Every: time.Second, Degrades: degrades, Run: run})
	}
	if s.opt.Store != "" {
		db, err := pgstore.Open(context.Background(), pgstore.Options{
			DSN:            s.opt.Store,
			Single:         s.opt.PostgresSingle,
			MaxDevices:     s.opt.MaxDevices,
			Signs:          s.parsed.own,
			Remember:       s.opt.Remember,
			RememberBytes:  s.opt.CacheBytes,
			RememberDir:    s.opt.RememberDir,
			SealAfter:      s.opt.SealAfter,
			ChangesKeep:    s.opt.ChangesKeep,
			Log:            s.log.Logger,
			OnLoss:         s.lost,
			OnCertificates: s.postgresCertificates,
		})
		if err != nil {
			return signsfile.Locate(s.opt.Signs, err)
		}
		s.store = db
		check(checkStore, func(context.Context) error { return db.Ready() })
		check(checkLoss, func(context.Context) error { return db.Degraded() })
		check(checkMemory, func(context.Context) error { return db.Memory() })
	} else {
		db, err := pebblestore.Open(s.opt.Data, pebblestore.Options{
			MaxDevices:    s.opt.MaxDevices,
			MinFreeBytes:  s.opt.MinFreeBytes,
			CacheBytes:    s.opt.CacheBytes,
			MemTableBytes: int(s.opt.memTableBytes),
			WindowRows:    s.opt.windowRows,
			Signs:         s.parsed.own,
			Log:           s.log.Logger,
			OnFatal:       s.fail,
			OnErased:      s.erased,
			ChangesKeep:   s.opt.ChangesKeep,
		})
		if err != nil {
			return fmt.Errorf("open data directory: %w", signsfile.Locate(s.opt.Signs, err))
		}
		s.store, s.embedded = db, db
		check(checkDamage, func(context.Context) error { return db.Degraded() })
		check(checkStore, func(context.Context) error { return db.Ready() })
	}
	// the store has the numbers of signs
	if err := cmp.Or(s.parsed.setLimits(s.opt, s.store.Signs()),
		s.parsed.setMappings(s.opt, s.store.Signs())); err != nil {
		return err
	}
	check(checkDevices, func(context.Context) error {
		if most := int64(s.opt.MaxDevices); s.store.DeviceCount() >= (9*most+9)/10 {
			return fmt.Errorf("at least 90 %% of --max-devices=%d", most)
		}
		return nil
	})
	if s.opt.Alerts != "" {
		check(checkAlerts, func(ctx context.Context) error { return s.alerts.engine.Check(ctx) })
		check(checkAlertmanager, func(ctx context.Context) error { return s.alerts.senders.Check(ctx) })
	}
	s.health = health.New(health.Options{OnChange: s.healthChanged}, checks...)
	if keep := s.opt.Retain; keep != 0 {
		s.retention = &admin.Retention{Store: s.store, Keep: keep, Log: s.log.Logger}
	}
	return nil
}

// storeName returns the directory or the address of the store.
func (c *Options) storeName() string {
	if c.Store != "" {
		return c.Store
	}
	return c.Data
}

// checkStore rejects options that the store does not have.
func (c *Options) checkStore() error {
	if c.Store == "" {
		return firstBroken(
			rule{!c.PostgresSingle, "--postgres-single is for --store"},
			rule{c.RememberDir == "", "--remember-dir is for --store"},
		)
	}
	if err := pgstore.CheckDSN(c.Store); err != nil {
		return settings.Usagef("--store: %v", err)
	}
	const instead = " has no meaning for a store in PostgreSQL: "
	return firstBroken(
		rule{c.RememberDir == "" || c.Remember > 0, "--remember-dir has no meaning with --remember 0s"},
		rule{c.MinFreeBytes == pebblestore.DefaultMinFreeBytes || c.MinFreeBytes < 0, "--min-free-bytes" + instead +
			"watch the database's disk"},
		rule{c.Scrub == defaultScrub || c.Scrub == 0,
			"--scrub" + instead + "use the database's data checksums and pg_amcheck"},
	)
}

// defaultScrub is the default of Options.Scrub.
const defaultScrub = 7 * 24 * time.Hour
