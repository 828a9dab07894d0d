package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"

	"github.com/pulsegate/pulsegate/bench/report"
)

//go:embed alerts.toml
var tenRules []byte

const withAlerts = "with alerts"

// runAlerts measures Pulsegate without alerts and with ten rules, with single readings and with batches.
func (b *ingestRun) runAlerts(ctx context.Context) (err error) {
	if b.wrk, err = findWrk(ctx, b.work, ingestScript); err != nil {
		return err
	}
	if err := raiseFileLimit(slices.Max(b.Connections)); err != nil {
		return err
	}
	rules := filepath.Join(b.work, "alerts.toml")
	if err := os.WriteFile(rules, tenRules, 0o600); err != nil {
		return fmt.Errorf("write rules: %w", err)
	}
	manager := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer manager.Close()
	chosen := []contestant{
		{name: report.Own, what: "`pulsegate serve`", stores: "durable", own: true},
		{name: withAlerts, what: "the same with `--alerts` and `--alertmanager`", stores: "durable", own: true, flags: []string{"--alerts=" + rules, "--alertmanager=" + manager.URL}},
	}
	r := b.newReport("CPU is user and system time of the server's process, divided by the readings that it acknowledged. Ratios are computed within a round. " + rounded)
	r.Setting = b.setting("bench-alerts")
	r.Notes = append(r.Notes, "Alerts: ten rules, and a server in place of Alertmanager that accepts all alerts; 10000 devices, of which one in ten has active alerts")
	for _, t := range b.result {
		for i := range t.Columns {
			if t.Columns[i].Base != "" {
				t.Columns[i].Title, t.Columns[i].Base = "x without", report.Own
			}
		}
	}
	if _, err = b.measure(ctx, chosen); err != nil {
		return err
	}
	batches := &report.Table{Text: fmt.Sprintf("Batches of %d readings:", batchReadings), Head: "server", Columns: []report.Column{
		{Title: "CPU per reading, µs", Figure: "cpu", Format: "%.2f"},
		{Title: "x without", Figure: "cpu", Format: "%.2f", Base: report.Own},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
	}}
	for round := range b.Rounds {
		for i := range chosen {
			c := &chosen[(i+round)%len(chosen)]
			f, err := b.measureForm(ctx, c, form{})
			if err != nil {
				return fmt.Errorf("measure batches %s: %w", c.name, err)
			}
			batches.Add(b.out, round, c.name, fmt.Sprintf("**%s**: %s", c.name, c.what), f)
		}
	}
	r.Tables = append(r.Tables, batches)
	bar := report.Bar{What: "CPU with alerts / without", Row: withAlerts, Base: report.Own, Figure: "cpu", Limit: 1.02, Format: "%.3f"}
	for i, t := range b.result {
		bar.What = fmt.Sprintf("%d connections: CPU of a reading with alerts / without", b.Connections[i])
		r.Goals = append(r.Goals, t.Goals(bar)...)
	}
	bar.What = "batches: CPU of a reading with alerts / without"
	r.Goals = append(r.Goals, batches.Goals(bar)...)
	return b.write(b.out, "bench-alerts", r.Markdown())
}
