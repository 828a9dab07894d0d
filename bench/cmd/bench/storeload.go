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
	"sync"
	"time"
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

// flowed is the result of a load.
type flowed struct {
	batches, bytes uint64 // stored batches, and their size
	refused        uint64 // answers that a batch was rejected for lack of capacity
	duration       time.Duration
	cpu            time.Duration // CPU time of this process
	answers        []storedBatch
}

// A storedBatch is the time of a stored batch.
type storedBatch struct{ at, took time.Duration }

// run sends batches batches. If batches is negative it sends until ctx is done. It
// returns what was stored also with an error.
func (f *flow) run(ctx context.Context, batches int) (flowed, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := make([]flowed, f.conns)
	errs := make([]error, f.conns)
	before, start := ownCPU(), time.Now()
	var wg sync.WaitGroup
	for i := range f.conns {
		share := -1 // no end
		if batches >= 0 {
			share = (batches + f.conns - 1 - i) / f.conns
		}
		wg.Go(func() {
			if errs[i] = f.send(ctx, i, share, start, &parts[i]); errs[i] != nil {
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
	head string // of a request, up to the length
	want []byte // body of the answer; nil: any
	code int    // status of the answer
	addr string
	conn net.Conn
	in   *bufio.Reader
	body bytes.Buffer
	out  []byte
}

func openHTTP(ctx context.Context, addr, path string, e encoder, code int, want []byte) (sink, error) {
	head := "POST " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nContent-Length: "
	s := &httpSink{encoder: e, head: head, want: want, code: code, addr: addr}
	return s, s.connect(ctx)
}

func (s *httpSink) connect(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s.conn, s.in = conn, bufio.NewReader(conn)
	return nil
}

// openOwn returns how to connect to Pulsegate.
func openOwn(addr string) func(context.Context) (sink, error) {
	return func(ctx context.Context) (sink, error) {
		return openHTTP(ctx, addr, path, new(jsonArray), http.StatusOK, batchAnswer)
	}
}

func (s *httpSink) close() { s.conn.Close() }

// storeTimeout bounds the time for one batch. A stall of the store is part of what is
// measured.
const storeTimeout = 2 * time.Minute

func (s *httpSink) send(ctx context.Context, batch []byte) (time.Duration, error) {
	stop := context.AfterFunc(ctx, func() { s.conn.SetDeadline(time.Now()) })
	defer stop()
	if err := s.conn.SetDeadline(time.Now().Add(storeTimeout)); err != nil {
		return 0, fmt.Errorf("send batch: %w", err)
	}
	s.out = append(strconv.AppendInt(append(s.out[:0], s.head...), int64(len(batch)), 10), "\r\n\r\n"...)
	if _, err := (&net.Buffers{s.out, batch}).WriteTo(s.conn); err != nil {
		return 0, fmt.Errorf("send batch: %w", err)
	}
	resp, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	s.body.Reset()
	if _, err := io.Copy(&s.body, io.LimitReader(resp.Body, maxAnswerBytes)); err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil || seconds < 1 {
			return 0, fmt.Errorf("status 503, Retry-After %q, body %q", resp.Header.Get("Retry-After"), s.body.Bytes())
		}
		if resp.Close { // the batch was rejected before it was read
			s.close()
			if err := s.connect(ctx); err != nil {
				return 0, err
			}
		}
		return time.Duration(seconds) * time.Second, nil
	}
	if resp.StatusCode != s.code || s.want != nil && !bytes.Equal(s.body.Bytes(), s.want) {
		return 0, fmt.Errorf("status %d, body %q", resp.StatusCode, s.body.Bytes())
	}
	return 0, nil
}
