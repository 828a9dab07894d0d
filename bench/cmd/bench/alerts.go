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

// runAlerts measures Pulsegate without alerts and with ten rules, with single readings and with batches.
func (b *ingestRun) runAlerts(ctx context.Context) error {
	flags, stop, err := alertFlags(b.work)
	if err != nil {
		return err
	}
	defer stop()
	chosen := []contestant{
		{name: report.Own, what: "`pulsegate serve`", stores: "durable", own: true},
		{name: withAlerts, what: "the same with `--alerts` and `--alertmanager`", stores: "durable", own: true, flags: flags},
	}
	r, err := b.beside(ctx, "bench-alerts", chosen)
	if err != nil {
		return err
	}
	r.Notes = append(r.Notes, "Alerts: ten rules, and a server in place of Alertmanager that accepts all alerts; 10000 devices, of which one in ten has active alerts")
	shares := &report.Table{Text: "Samples of a CPU profile under load with alerts that are in the goroutines of alerts, or in what the committer does for them:", Head: "load", Columns: []report.Column{
		{Title: "share, %", Figure: "share", Format: "%.1f"},
	}}
	seconds := b.WarmUp + alertsBegin + b.duration() + b.WarmUp
	for round := range b.Rounds {
		for name, load := range map[string]func(addr string) error{
			"single readings": func(addr string) error {
				_, err := b.wrk.run(ctx, addr, slices.Max(b.Connections), seconds, time.Now().Add(-baseAge).UnixMilli())
				return err
			},
			"batches": func(addr string) error {
				load, err := feeds(addr, form{}, time.Now().Add(-baseAge), seconds)
				if err == nil {
					_, err = post(ctx, load, seconds, isBatchAnswer)
				}
				return err
			},
		} {
			f, err := b.alertShare(ctx, &chosen[1], load)
			if err != nil {
				return fmt.Errorf("profile %s: %w", name, err)
			}
			shares.Add(b.out, round, name, "", f)
		}
	}
	r.Tables = append(r.Tables, shares)
	// The ratios of CPU times vary by more than the goal: docs/benchmarks.md says so.
	for _, row := range []string{"single readings", "batches"} {
		r.Goals = append(r.Goals, shares.Goals(report.Bar{What: row + ": share of alerts in the samples, %", Row: row, Figure: "share", Limit: 2, Format: "%.1f"})...)
	}
	return b.write(b.out, "bench-alerts", r.Markdown())
}

// alertStacks are the goroutines of alerts, and the function that the committer calls.
var alertStacks = []string{"/internal/api/alert.(*Engine).Run", "/internal/api/alert.(*Engine).Publish", "/internal/api/alertmanager.(*Sender).Run"}

// alertsBegin is how long all alerts of a load take to begin and to be sent, and the server to know which devices are calm. A profile begins
// afterwards: that a tenth of all devices have their first alert in the same second is not what a loaded server does.
const alertsBegin = 8 * time.Second

// alertShare returns the share of alerts in the CPU time of a fresh server under load, whose alerts are active.
func (b *ingestRun) alertShare(ctx context.Context, c *contestant, load func(addr string) error) (_ report.Figures, err error) {
	server, remove, err := b.startFresh(ctx, c, "share")
	if err != nil {
		return nil, err
	}
	loaded := make(chan error, 1)
	go func() { loaded <- load(server.server.public) }()
	err = sleep(ctx, b.WarmUp+alertsBegin)
	var s cpuSamples
	if err == nil {
		s, err = cpuProfile(ctx, server.server.admin, b.duration(), alertStacks)
	}
	err = errors.Join(err, <-loaded, server.stop(), remove())
	return report.Figures{"share": 100 * s.part / max(s.all, 1)}, err
}
