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
	"syscall"
	"time"
)

// A sink is one connection to a server that stores batches.
type sink interface {
	// send sends a batch and waits until it is stored. If the server rejected it for
	// lack of capacity, send returns how long to wait before the next attempt.
	send(ctx context.Context, batch []byte) (retryAfter time.Duration, err error)

	close()
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
func inParallel(ctx context.Context, n int, part func(ctx context.Context, i int, start time.Time, p *flowed) error) (
	flowed, error) {
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

// store sends a batch until it is stored, and counts it.
func (f *flowed) store(ctx context.Context, s sink, start time.Time, batch []byte) error {
	for sent := time.Now(); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		retryAfter, err := s.send(ctx, batch)
		if err != nil {
			return err
		}
		if retryAfter == 0 {
			f.batches++
			f.bytes += uint64(len(batch))
			f.answers = append(f.answers, storedBatch{time.Since(start), time.Since(sent)})
			return nil
		}
		f.refused++
		if err := sleep(ctx, retryAfter); err != nil {
			return err
		}
	}
}

// A feed is what is sent over one connection. next returns one batch after another, each
// with different readings, and nil at the end. A batch is valid until the next call.
type feed struct {
	open func(ctx context.Context) (sink, error)
	next func() []byte
}

// post sends batches for d, without rejections. Every feed sends the next batch when the previous
// one is answered.
func post(ctx context.Context, feeds []feed, d time.Duration) (flowed, error) {
	sum, err := inParallel(ctx, len(feeds), func(ctx context.Context, i int, start time.Time, p *flowed) error {
		s, err := feeds[i].open(ctx)
		if err != nil {
			return err
		}
		defer s.close()
		for time.Since(start) < d {
			batch := feeds[i].next()
			if batch == nil {
				break
			}
			if err := p.store(ctx, s, start, batch); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && (sum.batches == 0 || sum.refused > 0) {
		err = fmt.Errorf("%d batches were stored, and %d rejected", sum.batches, sum.refused)
	}
	return sum, err
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

// cost is the cost of a load whose batches have size readings each.
func (f *flowed) cost(size uint64) cost {
	q := f.quantiles(0.5, 0.99)
	return cost{f.batches * size, f.duration, f.cpu, q[0], q[1]}
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

// An httpSink posts batches to a server, over one connection.
type httpSink struct {
	addr, head string // head: of a request, up to the length
	stored     func(status int, answer []byte) bool
	conn       net.Conn
	in         *bufio.Reader
	out, body  bytes.Buffer // of the last request, without the batch, and of its answer
}

// openHTTP returns how to connect to a server to post to a path. fields are further fields of the
// header, each with a line break. stored reports whether an answer says that all of a batch was stored.
func openHTTP(addr, path, fields string, stored func(status int, answer []byte) bool) func(context.Context) (sink,
	error) {
	return func(ctx context.Context) (sink, error) {
		s := &httpSink{addr: addr, stored: stored, head: "POST " + path + " HTTP/1.1\r\nHost: " + addr + "\r\n" + fields +
			"Content-Length: "}
		return s, s.connect(ctx)
	}
}

// openOwn returns how to connect to Pulsegate to send batches in JSON with a Content-Encoding,
// or without one if it is empty.
func openOwn(addr, encoding string) func(context.Context) (sink, error) {
	fields := "Content-Type: application/json\r\n"
	if encoding != "" {
		fields += "Content-Encoding: " + encoding + "\r\n"
	}
	return openHTTP(addr, path, fields, isBatchAnswer)
}

// batchAnswer is the answer to a batch of new readings. An earlier Pulsegate has sent no line break.
var batchAnswer = fmt.Appendf(nil, "{\"stored\":%d,\"duplicate\":0}\n", batchReadings)

func isBatchAnswer(status int, answer []byte) bool {
	return status == http.StatusOK && bytes.Equal(bytes.TrimSpace(answer), bytes.TrimSpace(batchAnswer))
}

const (
	// storeTimeout bounds the time for one batch. A stall of the store is part of what is
	// measured.
	storeTimeout = 2 * time.Minute

	maxBatchAnswerBytes = 1 << 20 // of a Bundle of 1,000 Observations about a third
)

func (s *httpSink) connect(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s.conn, s.in = conn, bufio.NewReader(conn)
	return nil
}

func (s *httpSink) close() { s.conn.Close() }

func (s *httpSink) send(ctx context.Context, batch []byte) (time.Duration, error) {
	stop := context.AfterFunc(ctx, func() { s.conn.SetDeadline(time.Now()) })
	defer stop()
	s.out.Reset()
	fmt.Fprintf(&s.out, "%s%d\r\n\r\n", s.head, len(batch))
	parts := net.Buffers{s.out.Bytes(), batch}
	err := s.conn.SetDeadline(time.Now().Add(storeTimeout))
	if err == nil {
		_, err = parts.WriteTo(s.conn)
	}
	if err != nil {
		return 0, fmt.Errorf("send batch: %w", err)
	}
	resp, err := http.ReadResponse(s.in, nil)
	if err == nil {
		s.body.Reset()
		_, err = io.Copy(&s.body, io.LimitReader(resp.Body, maxBatchAnswerBytes))
	}
	if err != nil {
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
	if !s.stored(resp.StatusCode, s.body.Bytes()) {
		return 0, fmt.Errorf("status %d, body %.4000q", resp.StatusCode, s.body.Bytes())
	}
	return 0, nil
}

const (
	idleCheck   = 200 * time.Millisecond
	idleTimeout = 30 * time.Second // for a server to finish its compactions
)

// awaitIdle waits until processes use no more CPU time.
func awaitIdle(ctx context.Context, pids []int) error {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	last, err := cpuTime(pids...)
	for err == nil {
		if err := sleep(ctx, idleCheck); err != nil {
			return fmt.Errorf("wait for an idle server: %w", err)
		}
		var now time.Duration
		if now, err = cpuTime(pids...); now-last <= tick {
			return err
		}
		last = now
	}
	return err
}

// ownCPU returns the user and system time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // RUSAGE_SELF never fails
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
