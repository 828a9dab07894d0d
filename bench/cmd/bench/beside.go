package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/bench/report"
)

// runBefore measures this Pulsegate and an earlier one.
func (b *ingestRun) runBefore(ctx context.Context) error {
	r, err := b.beside(ctx, "bench-ingest", []contestant{
		{name: report.Own + earlier, what: "`pulsegate serve`", stores: "durable", own: true, programs: b.Before},
		{name: report.Own, what: "`pulsegate serve`", stores: "durable", own: true},
	})
	if err != nil {
		return err
	}
	r.Setting = report.Here(fmt.Sprintf("make bench-ingest PARTS=before BEFORE=… ROUNDS=%d SECONDS=%d", b.Rounds, b.Seconds))
	for _, t := range r.Tables {
		r.Goals = append(r.Goals, t.Goals(thanEarlier(t.Text+" CPU", report.Own, "cpu", 1.03))...)
	}
	return b.write(b.out, "bench-ingest-before", r.Markdown())
}

// beside measures kinds of Pulsegate with single readings and with batches. The ratios are to the first one.
func (b *ingestRun) beside(ctx context.Context, target string, chosen []contestant) (_ *report.Report, err error) {
	if b.wrk, err = findWrk(ctx, b.work, ingestScript); err != nil {
		return nil, err
	}
	if err := raiseFileLimit(slices.Max(b.Connections)); err != nil {
		return nil, err
	}
	base := chosen[0].name
	r := b.newReport("CPU is user and system time of the server's process, divided by the readings that it acknowledged. Ratios are computed within a round. " + rounded)
	r.Setting = b.setting(target)
	for _, t := range b.result {
		t.Columns = serverColumns(base)
	}
	if _, err = b.measure(ctx, chosen); err != nil {
		return nil, err
	}
	batches := &report.Table{Text: fmt.Sprintf("Batches of %d readings:", batchReadings), Head: "server", Columns: []report.Column{
		{Title: "CPU per reading, µs", Figure: "cpu", Format: "%.2f"},
		{Title: "x " + base, Figure: "cpu", Format: "%.2f", Base: base},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
	}}
	for round := range b.Rounds {
		for i := range chosen {
			c := &chosen[(i+round)%len(chosen)]
			f, err := b.measureForm(ctx, c, form{})
			if err != nil {
				return nil, fmt.Errorf("measure batches %s: %w", c.name, err)
			}
			batches.Add(b.out, round, c.name, fmt.Sprintf("**%s**: %s", c.name, c.what), f)
		}
	}
	r.Tables = append(r.Tables, batches)
	return r, nil
}
