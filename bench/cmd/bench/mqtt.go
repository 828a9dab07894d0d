package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// mqttCommand compares publications of MQTT with single readings over HTTP, and with a broker that
// stores nothing.
type mqttCommand struct {
	loads
	Connections int           `default:"1000" help:"Number of connections that send readings."`
	Idle        int           `default:"10000" help:"Idle connections to measure."`
	IdleWait    time.Duration `default:"5s" help:"Time after which idle connections are measured."`
}

func (c *mqttCommand) Validate() error {
	if c.Connections < 1 || c.Idle < 1 || c.IdleWait <= 0 {
		return errors.New("--connections, --idle and --idle-wait must be positive")
	}
	return c.loads.Validate()
}

const mosquitto = "Mosquitto"

// receivers returns the servers that take readings.
func (c *mqttCommand) receivers() []contestant {
	// By default, each listener gets half of the files that the server may open.
	flags := []string{fmt.Sprint("--max-conns=", 2*max(c.Connections, c.Idle))}
	return []contestant{
		{name: "HTTP", what: "`POST /v1/readings`", flags: flags},
		{name: "MQTT", what: "`PUBLISH`, QoS 1", mqtt: true, flags: flags},
		{name: mosquitto, what: "`PUBLISH`, QoS 1; no persistence, no subscriber, no log", broker: true},
		{name: "HTTP over TLS", what: "the same with TLS 1.3 and a token in every request", tls: true, flags: flags},
		{name: "MQTT over TLS", what: "the same with TLS 1.3 and a token in CONNECT", mqtt: true, tls: true, flags: flags},
	}
}

func (c *mqttCommand) Run(ctx context.Context, out io.Writer) error {
	if err := raiseFileLimit(max(c.Connections, c.Idle)); err != nil {
		return err
	}
	return c.with(ctx, out, c.measure, report.Own)
}

func (c *mqttCommand) measure(ctx context.Context) error {
	single := &report.Table{Head: "server", Columns: []report.Column{
		{Title: "CPU per reading, µs", Figure: "cpu", Format: "%.1f"},
		{Title: "x HTTP", Figure: "cpu", Format: "%.2f", Base: "HTTP"},
		{Title: "x HTTP over TLS", Figure: "cpu", Format: "%.2f", Base: "HTTP over TLS"},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
	}}
	idle := &report.Table{Text: fmt.Sprintf("%d idle connections, each of which has sent a reading:", c.Idle), Head: "server", Columns: []report.Column{
		{Title: "heap, bytes a connection", Figure: "heap", Format: "%.0f"},
		{Title: "resident, bytes a connection", Figure: "resident", Format: "%.0f"},
	}}
	chosen, left := available(c.receivers(), nil)
	if err := rotate(c.Rounds, chosen, func(round int, one *contestant) error {
		f, err := c.load(ctx, one)
		if err != nil {
			return fmt.Errorf("measure %s: %w", one.name, err)
		}
		name, label := one.row()
		single.Add(c.out, round, name, label, f)
		if one.broker || round > 0 { // what the collector finds in use hardly varies
			return nil
		}
		before, f, err := c.idle(ctx, one, c.Idle, func(s *cluster, _ bool) (report.Figures, error) { return c.held(ctx, s.nodes[0]) })
		if err != nil {
			return fmt.Errorf("measure idle connections of %s: %w", one.name, err)
		}
		for figure := range f {
			f[figure] = (f[figure] - before[figure]) / float64(c.Idle)
		}
		idle.Add(c.out, round, name, label, f)
		return nil
	}); err != nil {
		return err
	}
	r := c.report("bench-mqtt", "CPU is user and system time of the server's process, divided by the readings that it acknowledged; handshakes and CONNECT are not in it. "+
		"Ratios are computed within a round. Heap is what Go's collector finds in use, and resident is VmRSS, "+fmt.Sprint(c.IdleWait)+" after the last reading, less what they were before. "+rounded,
		fmt.Sprintf("Load: %d connections, each of which sends a reading when the one before is acknowledged; the loader is a part of the program, on the same CPUs. HTTP and MQTT send the same readings, of %d bytes in JSON; a topic has the device", c.Connections, len(newSender("", 0, nil).reading())),
		fmt.Sprintf("Rounds: %d, in each of which every server is restarted, warmed up for %v and loaded for %v; the order rotates by one server in each round. Idle connections are measured in the first one", c.Rounds, c.WarmUp, c.duration()))
	r.Tables, r.Left = []*report.Table{single, idle}, left
	cpu := func(row, base string, limit float64) report.Bar {
		return report.Bar{What: "CPU of " + row + " / that of " + base, Row: row, Base: base, Figure: "cpu", Limit: limit, Format: "%.2f"}
	}
	r.Goals = append(single.Goals(cpu("MQTT", "HTTP", 0.9), cpu("MQTT", mosquitto, 1), cpu("MQTT over TLS", "HTTP over TLS", 1)),
		idle.Goals(report.Bar{What: "heap of an idle connection of MQTT, bytes", Row: "MQTT", Figure: "heap", Limit: 1023, Format: "%.0f"},
			report.Bar{What: "heap of an idle connection of MQTT over TLS / that of HTTP over TLS", Row: "MQTT over TLS", Base: "HTTP over TLS", Figure: "heap", Limit: 1.05, Format: "%.2f"})...)
	return c.write("mqtt", r)
}

// load measures the CPU time of a fresh server under load.
func (c *mqttCommand) load(ctx context.Context, one *contestant) (f report.Figures, err error) {
	s, err := c.start(ctx, one)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	senders, err := s.connect(ctx, c.Connections)
	defer closeAll(senders)
	if err != nil {
		return nil, err
	}
	total := func() (n uint64) {
		for _, s := range senders {
			n += s.acknowledged.Load()
		}
		return n
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	failed := make(chan error, len(senders))
	for _, s := range senders {
		wg.Go(func() {
			for !stop.Load() {
				if err := s.send(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	err = sleep(ctx, c.WarmUp)
	first, began := total(), time.Now()
	m, errMeter := s.meter()
	err = errors.Join(err, errMeter, sleep(ctx, c.duration()))
	n, took := total()-first, time.Since(began)
	f, errFigures := m.since(cost{readings: n, took: took})
	stop.Store(true)
	wg.Wait()
	close(failed)
	if err = errors.Join(err, errFigures, <-failed); err != nil {
		return nil, err
	}
	return f, s.end(ctx, total(), 0)
}

// held returns the memory of Pulsegate after c.IdleWait and a garbage collection.
func (c *mqttCommand) held(ctx context.Context, p *process) (report.Figures, error) {
	if err := sleep(ctx, c.IdleWait); err != nil {
		return nil, err
	}
	if _, err := exchange(ctx, http.MethodGet, "http://"+p.admin+"/debug/pprof/heap?gc=1", nil, nil); err != nil {
		return nil, fmt.Errorf("collect garbage: %w", err)
	}
	values, err := scrape(ctx, p.admin)
	if err != nil {
		return nil, err
	}
	now, err := memory(p.pid())
	heap, ok := values["go_memstats_heap_alloc_bytes"]
	if !ok {
		err = errors.Join(err, errors.New("read heap: the metric is missing"))
	}
	return report.Figures{"heap": heap, "resident": float64(now.VmRSS)}, err
}
