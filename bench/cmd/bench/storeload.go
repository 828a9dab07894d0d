package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// A sink is one connection to a server that stores batches.
type sink interface {
	encoder

	// send sends a batch and waits until it is stored. If the server rejected it for
	// lack of capacity, send returns how long to wait before the next attempt.
	send(ctx context.Context, batch []byte) (retryAfter time.Duration, err error)

	close()
}

// A flow is a load of batches of wearers over several connections, each of which sends
// the next batch when the last one is stored.
type flow struct {
	open   func(ctx context.Context) (sink, error)
	groups []*wearers // of batchReadings devices each, or fewer
	conns  int
}

// newFlow returns a flow over at most conns connections.
func newFlow(devices, signs, conns int, start time.Time, open func(context.Context) (sink, error)) *flow {
	n := (devices + batchReadings - 1) / batchReadings
	f := &flow{open: open, conns: min(conns, n)}
	for i := range n {
		f.groups = append(f.groups, newWearers(devices, n, i, signs, start))
	}
	return f
}

// flowed is the result of a load of batches.
type flowed struct {
	batches, bytes uint64 // stored batches, and their size
	refused        uint64 // answers that a batch was rejected for lack of capacity
	duration       time.Duration
	cpu            time.Duration // CPU time of this process
	answers        []storedBatch
}

// A storedBatch is the time of a stored batch.
type storedBatch struct{ at, took time.Duration }

// inParallel runs n parts of a load, each of which counts in p, and returns their sum. The
// first error ends all parts; the sum then has what was answered before.
func inParallel(ctx context.Context, n int, part func(ctx context.Context, i int, start time.Time, p *flowed) error) (flowed, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts, errs := make([]flowed, n), make([]error, n)
	before, start := ownCPU(), time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if errs[i] = part(ctx, i, start, &parts[i]); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	sum := flowed{duration: time.Since(start), cpu: ownCPU() - before}
	for _, p := range parts {
		sum.batches += p.batches
		sum.bytes += p.bytes
		sum.refused += p.refused
		sum.answers = append(sum.answers, p.answers...)
	}
	return sum, errors.Join(errs...)
}

// run sends batches batches. If batches is negative it sends until ctx is done. It
// returns what was stored also with an error.
func (f *flow) run(ctx context.Context, batches int) (flowed, error) {
	return inParallel(ctx, f.conns, func(ctx context.Context, i int, start time.Time, p *flowed) error {
		share := -1 // no end
		if batches >= 0 {
			share = (batches + f.conns - 1 - i) / f.conns
		}
		return f.send(ctx, i, share, start, p)
	})
}

// send sends the share of connection i: batches of its groups in turn.
func (f *flow) send(ctx context.Context, i, share int, start time.Time, p *flowed) error {
	s, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	samples := make([]sample, batchReadings)
	var batch []byte
	for n, g := 0, i; share < 0 || n < share; n++ {
		f.groups[g].fill(samples)
		batch = s.encode(batch[:0], samples)
		if g += f.conns; g >= len(f.groups) {
			g = i
		}
		sent := time.Now()
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			retryAfter, err := s.send(ctx, batch)
			if err != nil {
				return err
			}
			if retryAfter == 0 {
				break
			}
			p.refused++
			if err := sleep(ctx, retryAfter); err != nil {
				return err
			}
		}
		p.batches++
		p.bytes += uint64(len(batch))
		p.answers = append(p.answers, storedBatch{time.Since(start), time.Since(sent)})
	}
	return nil
}

// quantiles returns quantiles of the latencies.
func (f *flowed) quantiles(qs ...float64) []time.Duration {
	sorted := slices.SortedFunc(slices.Values(f.answers), func(a, b storedBatch) int { return int(a.took - b.took) })
	result := make([]time.Duration, len(qs))
	for i, q := range qs {
		result[i] = sorted[int(q*float64(len(sorted)-1))].took
	}
	return result
}

// figures returns the figures of a load whose batches have size readings each.
func (f *flowed) figures(size uint64, cpu time.Duration) report.Figures {
	q := f.quantiles(0.5, 0.99)
	return latency(per(f.batches*size, f.duration, cpu, f.cpu), q[0], q[1])
}

// slowWindow is the duration over which the slowest rate is reported.
const slowWindow = 10 * time.Second

// slowest returns the smallest number of readings per second in one of the windows into
// which the load is divided, the incomplete last one excluded, or the mean rate of a
// load that is shorter than two windows.
func (f *flowed) slowest() float64 {
	windows := make([]float64, max(1, f.duration/slowWindow))
	if len(windows) < 2 {
		return float64(f.batches) * batchReadings / f.duration.Seconds()
	}
	for _, a := range f.answers {
		if i := int(a.at / slowWindow); i < len(windows) {
			windows[i] += batchReadings / slowWindow.Seconds()
		}
	}
	return slices.Min(windows)
}

// httpSink posts batches to a server, over one connection.
type httpSink struct {
	encoder
	*poster
	head string // of a request, up to the length
	want []byte // body of the answer; nil means any
	code int    // status of the answer
	out  []byte
}

func openHTTP(ctx context.Context, addr, path string, e encoder, code int, want []byte) (sink, error) {
	head := "POST " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nContent-Length: "
	p, err := connect(ctx, addr)
	return &httpSink{encoder: e, poster: p, head: head, want: want, code: code}, err
}

// openOwn returns how to connect to Pulsegate.
func openOwn(addr string) func(context.Context) (sink, error) {
	return func(ctx context.Context) (sink, error) {
		return openHTTP(ctx, addr, path, new(jsonArray), http.StatusOK, batchAnswer)
	}
}

// storeTimeout bounds the time for one batch. A stall of the store is part of what is
// measured.
const storeTimeout = 2 * time.Minute

func (s *httpSink) send(ctx context.Context, batch []byte) (time.Duration, error) {
	s.out = append(strconv.AppendInt(append(s.out[:0], s.head...), int64(len(batch)), 10), "\r\n\r\n"...)
	resp, err := s.exchange(ctx, storeTimeout, s.out, batch)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil || seconds < 1 {
			return 0, fmt.Errorf("status 503, Retry-After %q, body %q", resp.Header.Get("Retry-After"), s.body.Bytes())
		}
		if resp.Close { // the batch was rejected before it was read
			s.close()
			if s.poster, err = connect(ctx, s.addr); err != nil {
				return 0, err
			}
		}
		return time.Duration(seconds) * time.Second, nil
	}
	if resp.StatusCode != s.code || s.want != nil && !bytes.Equal(bytes.TrimSpace(s.body.Bytes()), bytes.TrimSpace(s.want)) {
		return 0, fmt.Errorf("status %d, body %q", resp.StatusCode, s.body.Bytes())
	}
	return 0, nil
}
