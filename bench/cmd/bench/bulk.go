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
	"sync"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

const (
	// maxPerSecond bounds the precomputed readings in compressed batches. A load that
	// runs out of them ends early.
	maxPerSecond = 600_000

	maxBatchAnswerBytes = 1 << 20 // of a Bundle of 1,000 Observations about a third

	idleCheck   = 200 * time.Millisecond
	idleTimeout = 30 * time.Second // for a server to finish its compactions
)

// batchAnswer is the answer to a batch of new readings.
var batchAnswer = fmt.Appendf(nil, "{\"stored\":%d,\"duplicate\":0}\n", batchReadings)

func isBatchAnswer(answer []byte) bool { return bytes.Equal(answer, batchAnswer) }

// runBulk measures Pulsegate with every form of a batch, with a fresh server for each.
// The order rotates by one in each round.
func (b *ingestRun) runBulk(ctx context.Context) error {
	chosen, err := choose(forms(), form.String, b.Forms)
	if err != nil {
		return fmt.Errorf("--forms: %w", err)
	}
	result := &report.Bulk{
		Setting:    b.setting("bench-ingest"),
		Duration:   b.duration(),
		WarmUp:     b.WarmUp,
		Rounds:     b.Rounds,
		Readings:   batchReadings,
		Senders:    senders,
		FileSystem: fileSystem(b.work),
	}
	for _, f := range chosen {
		result.Forms = append(result.Forms, report.BulkForm{Name: f.String(), Judged: f.encoding == ""})
	}
	perForm := perStart + b.WarmUp + b.duration() + 2*idleTimeout
	ctx, cancel := context.WithTimeout(ctx, perForm*time.Duration(len(chosen)*b.Rounds))
	defer cancel()
	for round := range b.Rounds {
		for i := range chosen {
			n := (i + round) % len(chosen)
			run, err := b.measureForm(ctx, chosen[n], round)
			if err != nil {
				return fmt.Errorf("measure batches in the form %s: %w", chosen[n], err)
			}
			fmt.Fprintf(b.out, "round %d  %-12s %8.2f µs CPU per reading  %8.0f readings/s  %6.2f µs CPU of the generator  p50 %v  p99 %v\n",
				round+1, chosen[n], run.CPUPerReading(), run.PerSecond(), run.LoaderPerReading(), run.P50, run.P99)
			result.Forms[n].Runs = append(result.Forms[n].Runs, run)
		}
	}
	return b.write(b.out, "bench-bulk", result.Markdown())
}

// measureForm measures one form of a batch with a fresh server.
func (b *ingestRun) measureForm(ctx context.Context, f form, round int) (_ report.BulkRun, err error) {
	own := &contestant{name: report.Own, own: true}
	server, remove, err := b.startFresh(ctx, own, "bulk")
	if err != nil {
		return report.BulkRun{}, err
	}
	defer func() {
		if server != nil {
			server.stop() // ignore further errors
		}
		err = errors.Join(err, remove())
	}()
	addr := server.server.public
	base := time.Now().Add(-baseAge)
	var w posted
	if b.WarmUp > 0 {
		warm, err := sources(addr, f, base, b.WarmUp)
		if err != nil {
			return report.BulkRun{}, err
		}
		if w, err = post(ctx, addr, warm, b.WarmUp, isBatchAnswer); err != nil {
			return report.BulkRun{}, fmt.Errorf("warm up: %w", err)
		}
	}
	load, err := sources(addr, f, base.Add(baseStep), b.duration())
	if err != nil {
		return report.BulkRun{}, err
	}
	if _, err := idleTime(ctx, server.pids()); err != nil { // exclude the compactions of the warm-up
		return report.BulkRun{}, err
	}
	before, err := cpuTime(server.pids()...)
	if err != nil {
		return report.BulkRun{}, err
	}
	p, err := post(ctx, addr, load, b.duration(), isBatchAnswer)
	if err != nil {
		return report.BulkRun{}, err
	}
	after, err := idleTime(ctx, server.pids())
	if err != nil {
		return report.BulkRun{}, err
	}
	ended := server
	server = nil
	readings := (p.batches + w.batches) * batchReadings
	if err := checkStored(ctx, own, ended, readings+1, 0); err != nil {
		return report.BulkRun{}, err
	}
	slices.Sort(p.latencies)
	at := func(q float64) time.Duration { return p.latencies[int(q*float64(len(p.latencies)-1))] }
	return report.BulkRun{
		Round: round, Readings: p.batches * batchReadings, Duration: p.duration,
		CPU: after - before, LoaderCPU: p.cpu, BodyBytes: p.bodyBytes / p.batches, P50: at(0.5), P99: at(0.99),
	}, nil
}

// sources returns a source for each sender.
func sources(addr string, f form, base time.Time, d time.Duration) ([]source, error) {
	all := make([]source, senders)
	errs := make([]error, senders)
	var wg sync.WaitGroup
	for i := range all {
		if f.encoding == "" {
			all[i] = plain(addr, f, i, base)
			continue
		}
		wg.Go(func() {
			all[i], errs[i] = compressed(addr, f, i, base, int(maxPerSecond*d.Seconds())/batchReadings/senders)
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// posted is the result of posting batches.
type posted struct {
	batches   uint64
	bodyBytes uint64
	duration  time.Duration
	cpu       time.Duration // CPU time of this process
	latencies []time.Duration
}

// post sends batches for d. Every source uses its own connection and sends the next
// batch when the previous one is answered. isStored reports whether an answer says that all
// readings of a batch were stored, as each must.
func post(ctx context.Context, addr string, sources []source, d time.Duration, isStored func(answer []byte) bool) (posted, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := make([]posted, len(sources))
	errs := make([]error, len(sources))
	before, start := ownCPU(), time.Now()
	end := start.Add(d)
	var wg sync.WaitGroup
	for i, next := range sources {
		wg.Go(func() {
			if parts[i], errs[i] = send(ctx, addr, next, end, isStored); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	sum := posted{duration: time.Since(start), cpu: ownCPU() - before}
	if err := errors.Join(errs...); err != nil {
		return posted{}, err
	}
	for _, p := range parts {
		sum.batches += p.batches
		sum.bodyBytes += p.bodyBytes
		sum.latencies = append(sum.latencies, p.latencies...)
	}
	if sum.batches == 0 {
		return posted{}, errors.New("no batch was answered")
	}
	return sum, nil
}

// send posts the requests of next over one connection until end.
func send(ctx context.Context, addr string, next source, end time.Time, isStored func([]byte) bool) (p posted, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return p, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	in := bufio.NewReader(conn)
	var body bytes.Buffer
	for start := time.Now(); start.Before(end); start = time.Now() {
		request := next()
		if request == nil {
			return p, nil
		}
		if err := ctx.Err(); err != nil {
			return p, err
		}
		sent := time.Now()
		if err := conn.SetDeadline(sent.Add(answerTimeout)); err != nil {
			return p, fmt.Errorf("send batch: %w", err)
		}
		if _, err := conn.Write(request); err != nil {
			return p, fmt.Errorf("send batch: %w", err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return p, fmt.Errorf("read answer: %w", err)
		}
		body.Reset()
		if _, err := io.Copy(&body, io.LimitReader(resp.Body, maxBatchAnswerBytes)); err != nil {
			return p, fmt.Errorf("read answer: %w", err)
		}
		if resp.StatusCode != http.StatusOK || !isStored(body.Bytes()) {
			return p, fmt.Errorf("status %d, body %.4000q", resp.StatusCode, body.Bytes())
		}
		p.batches++
		p.bodyBytes += uint64(len(request))
		p.latencies = append(p.latencies, time.Since(sent))
	}
	return p, nil
}

// idleTime waits until the processes pids use no more CPU time, and returns their CPU
// time. Background work of a store after its answers belongs to their cost.
func idleTime(ctx context.Context, pids []int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	last, err := cpuTime(pids...)
	for err == nil {
		if err := sleep(ctx, idleCheck); err != nil {
			return 0, fmt.Errorf("wait for an idle server: %w", err)
		}
		var now time.Duration
		if now, err = cpuTime(pids...); now-last <= tick && err == nil {
			return now, nil
		}
		last = now
	}
	return 0, err
}

// ownCPU returns the user and system time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // RUSAGE_SELF never fails
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
