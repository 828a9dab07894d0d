package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// baseAge is how long ago the readings start. baseStep exceeds the time range of one
// load, so that no two loads of one start share a reading.
const (
	baseAge  = time.Hour
	baseStep = time.Minute
)

// A meter has read what a cluster has taken so far.
type meter struct {
	s              *cluster
	node, database time.Duration // CPU time
	logged         uint64        // by PostgreSQL
}

func (s *cluster) meter() (m meter, err error) {
	m.s = s
	nodes, databases := s.pids()
	if m.node, err = cpuTime(nodes...); err != nil || len(databases) == 0 {
		return m, err
	}
	if m.database, err = cpuTime(databases...); err == nil {
		m.logged, err = s.databases[0].logged()
	}
	return m, err
}

// A cost is what a load takes: its readings, and the time in which they were stored.
type cost struct {
	readings     uint64
	took, loader time.Duration
	p50, p99     time.Duration
}

// since returns the figures of a load that the meter was read before.
func (m *meter) since(c cost) (report.Figures, error) {
	now, err := m.s.meter()
	node, database, n := now.node-m.node, now.database-m.database, float64(c.readings)
	f := latency(per(c.readings, c.took, node+database, c.loader), c.p50, c.p99)
	f["node"], f["database"] = report.Micros(node)/n, report.Micros(database)/n
	if len(m.s.databases) > 0 {
		f["log"] = float64(now.logged-m.logged) / n
	}
	return f, err
}

// single measures a new cluster with one reading per request over each number of connections
// in turn, and ends it.
func (l *loads) single(ctx context.Context, w *wrk, c *contestant, connections ...int) (all []report.Figures,
	err error) {
	s, err := l.start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	base, acknowledged, inFlight := time.Now().Add(-baseAge), uint64(0), uint64(0)
	loadOnce := func(n int, d time.Duration) (f report.Figures, err error) {
		base = base.Add(baseStep)
		var m meter
		var errMeter error
		l, err := w.run(ctx, s.nodes[0].public, s.secure, n, d, base.UnixMilli(), func() { m, errMeter = s.meter() })
		if err = errors.Join(err, errMeter); err == nil {
			f, err = m.since(cost{l.requests, l.duration, l.cpu, l.p50, l.p99})
		}
		acknowledged += l.before + l.requests
		inFlight += uint64(n) // wrk does not wait for the last answers
		return f, errors.Join(err, l.check())
	}
	if l.WarmUp > 0 {
		if _, err := loadOnce(connections[0], l.WarmUp); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	for _, n := range connections {
		f, err := loadOnce(n, l.duration())
		if err != nil {
			return nil, fmt.Errorf("%d connections: %w", n, err)
		}
		all = append(all, f)
	}
	return all, s.end(ctx, acknowledged, inFlight)
}

// bulk measures a new cluster with batches, and ends it. The senders are divided among the
// servers. Work of a server after its answers belongs to their cost; PostgreSQL is never idle.
func (l *loads) bulk(ctx context.Context, c *contestant, f form) (figures report.Figures, err error) {
	s, err := l.start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	idle := func() error {
		if c.postgres {
			return nil
		}
		nodes, _ := s.pids()
		return awaitIdle(ctx, nodes)
	}
	base := time.Now().Add(-baseAge)
	var warm flowed
	if l.WarmUp > 0 {
		if warm, err = s.post(ctx, f, base, l.WarmUp); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	load, err := s.feeds(f, base.Add(baseStep), l.duration())
	if err != nil {
		return nil, err
	}
	if err := idle(); err != nil { // what follows the warm-up does not count
		return nil, err
	}
	m, err := s.meter()
	if err != nil {
		return nil, err
	}
	p, err := post(ctx, load, l.duration())
	if err == nil {
		err = idle()
	}
	if err == nil {
		figures, err = m.since(p.cost(batchReadings))
	}
	if err != nil {
		return nil, err
	}
	figures["bytes"] = float64(p.bytes / p.batches)
	return figures, s.end(ctx, (warm.batches+p.batches)*batchReadings, 0)
}
