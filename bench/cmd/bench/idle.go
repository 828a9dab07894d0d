package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// idleSettle is the time for a server to release the memory of requests.
const idleSettle = time.Second

// overTLS is the name of Pulsegate with TLS and a token.
const overTLS = report.Own + " over TLS"

// measureIdle measures the memory of idle connections.
func (c *ingestCommand) measureIdle(ctx context.Context) error {
	chosen, _ := available(contestants(), c.Servers)
	chosen = slices.DeleteFunc(chosen, func(one contestant) bool {
		return !slices.Contains([]string{"fasthttp", "nethttp", report.Own}, one.name)
	})
	if len(chosen) > 0 && chosen[len(chosen)-1].name == report.Own {
		secured := pulsegate()
		secured.name, secured.tls = overTLS, true
		chosen = append(chosen, secured)
	}
	t := &report.Table{Head: "server", Columns: []report.Column{
		{Title: "with none, MiB", Figure: "none", Format: "%.1f"},
		{Title: fmt.Sprintf("with %d, MiB", c.Idle), Figure: "all", Format: "%.1f"},
		{Title: "more, MiB", Figure: "more", Format: "%.1f"},
		{Title: "bytes a connection", Figure: "each", Format: "%.0f", Show: report.Median},
		{Title: fmt.Sprintf("with %d after %v, MiB", c.Idle, c.IdleWait), Figure: "later", Format: "%.1f"},
	}}
	if err := compare(&c.common, t, chosen, (*contestant).row, func(one *contestant) (report.Figures, error) {
		without, f, err := c.idle(ctx, one, c.Idle, func(s *cluster, open bool) (report.Figures, error) {
			return c.resident(ctx, s, open)
		})
		if err != nil {
			return nil, err
		}
		f["none"] = without["all"]
		f["more"] = f["all"] - f["none"]
		f["each"] = f["more"] * (1 << 20) / float64(c.Idle)
		if later, ok := f["later"]; ok {
			f["more later"] = later - f["none"]
		}
		return f, nil
	}); err != nil {
		return err
	}
	r := c.report("bench-ingest",
		"Resident memory of the server's process (VmRSS): medians, with the range over the rounds in brackets. Kernel "+
			"memory for sockets is not included.",
		fmt.Sprintf(
			"Load: as many connections are opened, post a reading and are closed; then %d connections post one reading each "+
				"and stay open", c.Idle),
		fmt.Sprintf("Rounds: %d, in each of which every server is restarted", c.Rounds))
	r.Tables = []*report.Table{t}
	r.Goals = t.Goals(
		report.Bar{What: fmt.Sprintf("%d idle connections: MiB more than with none", c.Idle), Row: report.Own, Figure: "more",
			Limit: 60, Format: "%.1f"},
		report.Bar{What: fmt.Sprintf("%d idle connections over TLS: MiB more than with none, after %v", c.Idle, c.IdleWait),
			Row: overTLS, Figure: "more later", Limit: 100, Format: "%.1f"},
	)
	return c.write("idle", r)
}

// resident returns the resident memory of a server, in MiB. With open connections over TLS, it does so again
// after c.IdleWait, because the garbage of handshakes is given back later.
func (c *ingestCommand) resident(ctx context.Context, s *cluster, open bool) (report.Figures, error) {
	f := report.Figures{}
	read := func(name string, after time.Duration) error {
		if err := sleep(ctx, after); err != nil {
			return err
		}
		now, err := memory(s.nodes[0].pid())
		f[name] = report.MiB(now.VmRSS)
		return err
	}
	err := read("all", idleSettle)
	if err == nil && open && s.secure != nil {
		err = read("later", c.IdleWait)
	}
	return f, err
}
