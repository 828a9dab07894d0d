package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

//go:embed alerts.toml
var tenRules []byte

const withAlerts = "with alerts"

// alertFlags returns the flags of a server with ten rules, and with an Alertmanager that accepts all alerts until stop.
func alertFlags(work string) (flags []string, stop func(), err error) {
	rules := filepath.Join(work, "alerts.toml")
	if err := os.WriteFile(rules, tenRules, 0o600); err != nil {
		return nil, nil, fmt.Errorf("write rules: %w", err)
	}
	manager := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return []string{"--alerts=" + rules, "--alertmanager=" + manager.URL}, manager.Close, nil
}

// measureAlerts measures Pulsegate without alerts and with ten rules, with single readings and with batches.
func (c *ingestCommand) measureAlerts(ctx context.Context) error {
	flags, stop, err := alertFlags(c.work)
	if err != nil {
		return err
	}
	defer stop()
	with := contestant{name: withAlerts, what: "the same with `--alerts` and `--alertmanager`", stores: "durable", flags: flags}
	r, err := c.beside(ctx, "bench-alerts", pulsegate(), with)
	if err != nil {
		return err
	}
	r.Notes = append(r.Notes, "Alerts: ten rules, and a server in place of Alertmanager that accepts all alerts; 10000 devices, of which one in ten has active alerts")
	shares := &report.Table{Text: "Samples of a CPU profile under load with alerts that are in the goroutines of alerts, or in what the committer does for them:", Head: "load", Columns: []report.Column{
		{Title: "share, %", Figure: "share", Format: "%.1f"},
	}}
	took := c.WarmUp + alertsBegin + c.duration() + c.WarmUp
	loads := map[string]func(s *cluster) error{
		"single readings": func(s *cluster) error {
			_, err := c.wrk.run(ctx, s.nodes[0].public, nil, slices.Max(c.Connections), took, time.Now().Add(-baseAge).UnixMilli(), func() {})
			return err
		},
		"batches": func(s *cluster) error {
			_, err := s.post(ctx, form{}, time.Now().Add(-baseAge), took)
			return err
		},
	}
	if err := compare(&c.common, shares, []string{"single readings", "batches"}, named, func(name *string) (report.Figures, error) {
		return c.alertShare(ctx, &with, loads[*name])
	}); err != nil {
		return err
	}
	r.Tables = append(r.Tables, shares)
	// The CPU time of a server varies by a tenth from one load to the next, more than the goal.
	for _, row := range shares.Rows {
		r.Goals = append(r.Goals, shares.Goals(report.Bar{What: row.Name + ": share of alerts in the samples, %", Row: row.Name, Figure: "share", Limit: 2, Format: "%.1f"})...)
	}
	return c.write("alerts", r)
}

// alertStacks are the goroutines of alerts, and the function that the committer calls.
var alertStacks = []string{"/internal/api/alert.(*Engine).Run", "/internal/api/alert.(*Engine).Publish", "/internal/api/alertmanager.(*Sender).Run"}

// alertsBegin is how long all alerts of a load take to begin and to be sent, and the server to know which devices are calm. A profile begins
// afterwards: that a tenth of all devices have their first alert in the same second is not what a loaded server does.
const alertsBegin = 8 * time.Second

// alertShare returns the share of alerts in the CPU time of a fresh server under load, whose alerts are active.
func (c *ingestCommand) alertShare(ctx context.Context, one *contestant, load func(*cluster) error) (_ report.Figures, err error) {
	s, err := c.start(ctx, one)
	if err != nil {
		return nil, err
	}
	loaded := make(chan error, 1)
	go func() { loaded <- load(s) }()
	err = sleep(ctx, c.WarmUp+alertsBegin)
	var samples cpuSamples
	if err == nil {
		samples, err = cpuProfile(ctx, s.nodes[0].admin, c.duration(), alertStacks)
	}
	return report.Figures{"share": 100 * samples.part / max(samples.all, 1)}, errors.Join(err, <-loaded, s.stop())
}
