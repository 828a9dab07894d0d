package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/pprof/profile"

	"github.com/pulsegate/pulsegate/bench/report"
)

// maxWatched is the number of devices that one stream may list.
const maxWatched = 100

// liveUsers are the connections of the senders.
const liveUsers = 100

// streamsLead is the time for which the senders load before the measurement, and may load after it.
const streamsLead = time.Second

// ingestWith loads a fresh server with c.Rate readings per second, one of each device,
// while subscribers watch all devices, each of them an equal part.
func (c *readCommand) ingestWith(ctx context.Context, subscribers int) (f report.Figures, err error) {
	own := pulsegate()
	s, err := c.start(ctx, &own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	p := s.nodes[0]
	const name = "bench"
	streams, err := openStreams(ctx, p.public, subscribers, c.Rate, "sim-"+name+"-")
	if err != nil {
		return nil, err
	}
	defer streams.close()
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded := make(chan error, 1)
	go func() {
		_, err := simulate(loading, c.own(), streamsLead+c.duration()+patience+loadGrace, "--target=http://"+p.public, "--users="+strconv.Itoa(liveUsers),
			"--devices="+strconv.Itoa(c.Rate), "--rate="+strconv.Itoa(c.Rate), "--threads=1", "--for="+(2*streamsLead+c.duration()).String(), "--run="+name)
		loaded <- err
	}()
	if err := sleep(ctx, streamsLead); err != nil {
		return nil, err
	}
	before, err := scrape(ctx, p.admin)
	if err != nil {
		return nil, err
	}
	events := streams.events.Load()
	var samples cpuSamples
	cpu, err := cpuDuring([]int{p.pid()}, func() (err error) {
		samples, err = cpuProfile(ctx, p.admin, c.duration(), streamStacks)
		return err
	})
	if err != nil {
		return nil, err
	}
	events = streams.events.Load() - events
	after, err := scrape(ctx, p.admin)
	if err = errors.Join(err, <-loaded); err != nil {
		return nil, err
	}
	const stored, dropped = `pulsegate_readings_total{outcome="stored"}`, "pulsegate_live_dropped_total"
	readings := uint64(after[stored] - before[stored])
	switch {
	case readings == 0:
		return nil, errors.New("nothing was stored")
	case subscribers > 0 && events == 0:
		return nil, errors.New("no event arrived")
	}
	f = per(readings, c.duration(), cpu, 0)
	f["streams"] = f["cpu"] * samples.part / max(samples.all, 1) // a short, light load may have no sample
	f["ingest"] = f["cpu"] - f["streams"]
	f["events"], f["dropped"] = float64(events)/c.duration().Seconds(), after[dropped]-before[dropped]
	return f, streams.failed()
}

// cpuSamples is the CPU time in a profile, and the part of it with certain functions in its stacks.
type cpuSamples struct{ all, part float64 }

// cpuProfile profiles a server for d, in whole seconds. stacks are the ends of names of functions.
func cpuProfile(ctx context.Context, admin string, d time.Duration, stacks []string) (s cpuSamples, err error) {
	ctx, cancel := context.WithTimeout(ctx, d+loadGrace)
	defer cancel()
	text, err := exchange(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, int(d.Seconds())), nil, nil)
	if err != nil {
		return s, fmt.Errorf("profile: %w", err)
	}
	p, err := profile.ParseData(text)
	if err != nil {
		return s, fmt.Errorf("profile: %w", err)
	}
	for _, one := range p.Sample {
		nanos := float64(one.Value[len(one.Value)-1])
		if s.all += nanos; hasAny(one, stacks) {
			s.part += nanos
		}
	}
	return s, nil
}

// streamStacks are the dispatcher and the handler of streams. What the committer does for streams belongs
// to the ingest path; so do, because they have no such stack, garbage collection and scheduling.
var streamStacks = []string{"/internal/api/live.(*Hub).dispatch", "/internal/api/live.(*Hub).ServeHTTP"}

// hasAny reports whether a stack has one of some functions.
func hasAny(s *profile.Sample, functions []string) bool {
	for _, at := range s.Location {
		for _, line := range at.Line {
			if slices.ContainsFunc(functions, func(end string) bool { return strings.HasSuffix(line.Function.Name, end) }) {
				return true
			}
		}
	}
	return false
}

// subscriptions are open streams of live readings, which count their events.
type subscriptions struct {
	events atomic.Uint64
	conns  []net.Conn
	done   sync.WaitGroup
	ending atomic.Bool
	broken atomic.Uint64 // streams that have ended
}

// openStreams opens n streams, each of which watches an equal part of devices, and waits
// until each one has begun.
func openStreams(ctx context.Context, addr string, n, devices int, prefix string) (_ *subscriptions, err error) {
	s := new(subscriptions)
	for i := range n {
		var query []byte
		for d := i; d < devices; d += n {
			query = appendName(append(query, "&device="...), prefix, int32(d), 6)
		}
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.conns = append(s.conns, conn)
		conn.SetReadDeadline(time.Now().Add(answerTimeout))
		fmt.Fprintf(conn, "GET /v1/live?%s HTTP/1.1\r\nHost: %s\r\n\r\n", query[1:], addr)
		in := bufio.NewReaderSize(conn, 8<<10)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			return nil, errors.Join(fmt.Errorf("open stream %d: %v", i, err), s.close())
		}
		conn.SetReadDeadline(time.Time{})
		s.done.Go(func() { s.count(resp.Body) })
	}
	return s, nil
}

// count counts the events of a stream.
func (s *subscriptions) count(body io.Reader) {
	lines := bufio.NewReaderSize(body, 4<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			if !s.ending.Load() {
				s.broken.Add(1)
			}
			return
		}
		if bytes.HasPrefix(line, []byte("event: reading")) {
			s.events.Add(1)
		}
	}
}

// failed returns an error if streams have ended.
func (s *subscriptions) failed() error {
	if n := s.broken.Load(); n > 0 {
		return fmt.Errorf("%d streams have ended", n)
	}
	return nil
}

// close closes all streams.
func (s *subscriptions) close() error {
	s.ending.Store(true)
	for _, conn := range s.conns {
		conn.Close()
	}
	s.done.Wait()
	return nil
}
