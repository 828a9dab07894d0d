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

// An earlier Pulsegate has sent no line break.
func isBatchAnswer(answer []byte) bool {
	return bytes.Equal(bytes.TrimSpace(answer), bytes.TrimSpace(batchAnswer))
}

// runBulk measures Pulsegate with every form of a batch, with a fresh server for each.
// The order rotates by one in each round.
func (b *ingestRun) runBulk(ctx context.Context) error {
	chosen, err := choose(forms(), form.String, b.Forms)
	if err != nil {
		return fmt.Errorf("--forms: %w", err)
	}
	setting := b.setting("bench-ingest")
	t := &report.Table{Head: "form", Columns: append([]report.Column{
		{Title: "bytes a batch", Figure: "bytes", Format: "%.0f", Show: report.Median},
		{Title: "CPU per reading, µs", Figure: "cpu", Format: "%.2f"},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
		{Title: "CPU of the generator, µs", Figure: "loader", Format: "%.2f", Show: report.Median},
	}, latencyColumns("%.2f")...)}
	perForm := perStart + b.WarmUp + b.duration() + 2*idleTimeout
	ctx, cancel := context.WithTimeout(ctx, perForm*time.Duration(len(chosen)*b.Rounds))
	defer cancel()
	for round := range b.Rounds {
		for i := range chosen {
			n := (i + round) % len(chosen)
			f, err := b.measureForm(ctx, &contestant{name: report.Own, own: true}, chosen[n])
			if err != nil {
				return fmt.Errorf("measure batches in the form %s: %w", chosen[n], err)
			}
			t.Add(b.out, round, chosen[n].String(), "", f)
		}
	}
	r := report.Report{
		Setting: setting,
		Notes: []string{
			fmt.Sprintf("Load: %d connections, each of which posts batches of %d readings of as many devices, and the next one after the answer; every reading is new", senders, batchReadings),
			fmt.Sprintf("Rounds: %d, in each of which a new server is started for every form, warmed up for %v and loaded for %v; the order rotates by one form in each round", b.Rounds, b.WarmUp, b.duration()),
			"Data: on " + fileSystem(b.work),
		},
		Text: "CPU is user and system time of the server, until its compactions after the load have ended, divided by the readings that it answered as stored. " +
			"The load generator shares the CPUs; its bodies are templates in which only times and digits are written, and compressed ones are made in advance. " +
			rounded + " Latency is that of a whole batch, from the actual time of sending.",
		Tables: []*report.Table{t},
	}
	for _, form := range []string{"array", "ndjson"} {
		r.Goals = append(r.Goals, t.Goals(
			report.Bar{What: form + ": CPU per reading, µs", Row: form, Figure: "cpu", Limit: 4, Format: "%.2f"},
			report.Bar{What: form + ": readings/s", Row: form, Figure: "rate", AtLeast: true, Limit: 350_000, Format: "%.0f"},
		)...)
	}
	return b.write(b.out, "bench-bulk", r.Markdown())
}

// measureForm measures one form of a batch with a fresh Pulsegate.
func (b *ingestRun) measureForm(ctx context.Context, own *contestant, f form) (_ report.Figures, err error) {
	server, remove, err := b.startFresh(ctx, own, "bulk")
	if err != nil {
		return nil, err
	}
	defer func() {
		if server != nil {
			server.stop() // ignore further errors
		}
		err = errors.Join(err, remove())
	}()
	addr := server.server.public
	base := time.Now().Add(-baseAge)
	var w flowed
	if b.WarmUp > 0 {
		warm, err := feeds(addr, f, base, b.WarmUp)
		if err != nil {
			return nil, err
		}
		if w, err = post(ctx, warm, b.WarmUp, isBatchAnswer); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	load, err := feeds(addr, f, base.Add(baseStep), b.duration())
	if err != nil {
		return nil, err
	}
	if _, err := idleTime(ctx, server.pids()); err != nil { // exclude the compactions of the warm-up
		return nil, err
	}
	before, err := cpuTime(server.pids()...)
	if err != nil {
		return nil, err
	}
	p, err := post(ctx, load, b.duration(), isBatchAnswer)
	if err != nil {
		return nil, err
	}
	after, err := idleTime(ctx, server.pids())
	if err != nil {
		return nil, err
	}
	ended := server
	server = nil
	readings := (p.batches + w.batches) * batchReadings
	if err := checkStored(ctx, own, ended, readings+1, 0); err != nil {
		return nil, err
	}
	figures := p.figures(batchReadings, after-before)
	figures["bytes"] = float64(p.bytes / p.batches)
	return figures, nil
}

// A feed is what one sender posts, and to which server.
type feed struct {
	addr string
	next source
}

// feeds returns a feed for each sender.
func feeds(addr string, f form, base time.Time, d time.Duration) ([]feed, error) {
	all := make([]feed, senders)
	errs := make([]error, senders)
	var wg sync.WaitGroup
	for i := range all {
		all[i].addr = addr
		if f.encoding == "" {
			all[i].next = plain(addr, f, i, base)
			continue
		}
		wg.Go(func() {
			all[i].next, errs[i] = compressed(addr, f, i, base, int(maxPerSecond*d.Seconds())/batchReadings/senders)
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// post sends batches for d. Every feed uses its own connection and sends the next batch when
// the previous one is answered. isStored reports whether an answer says that all readings of
// a batch were stored, as each must.
func post(ctx context.Context, feeds []feed, d time.Duration, isStored func(answer []byte) bool) (flowed, error) {
	sum, err := inParallel(ctx, len(feeds), func(ctx context.Context, i int, start time.Time, p *flowed) error {
		return feeds[i].send(ctx, start, d, isStored, p)
	})
	if err == nil && sum.batches == 0 {
		err = errors.New("no batch was answered")
	}
	return sum, err
}

// send posts the requests over one connection until d after start.
func (f *feed) send(ctx context.Context, start time.Time, d time.Duration, isStored func([]byte) bool, p *flowed) error {
	c, err := connect(ctx, f.addr)
	if err != nil {
		return err
	}
	defer c.close()
	for time.Since(start) < d {
		request := f.next()
		if request == nil {
			return nil
		}
		sent := time.Now()
		resp, err := c.exchange(ctx, answerTimeout, request)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || !isStored(c.body.Bytes()) {
			return fmt.Errorf("status %d, body %.4000q", resp.StatusCode, c.body.Bytes())
		}
		p.batches++
		p.bytes += uint64(len(request))
		p.answers = append(p.answers, storedBatch{time.Since(start), time.Since(sent)})
	}
	return nil
}

// A poster is a connection over which requests are sent, one after another.
type poster struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
	body bytes.Buffer // of the last answer
}

func connect(ctx context.Context, addr string) (*poster, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &poster{addr: addr, conn: conn, in: bufio.NewReader(conn)}, nil
}

func (c *poster) close() { c.conn.Close() }

// exchange sends a request and reads the answer, whose body is then in c.body.
func (c *poster) exchange(ctx context.Context, timeout time.Duration, request ...[]byte) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Now()) })
	defer stop()
	parts := net.Buffers(request)
	err := c.conn.SetDeadline(time.Now().Add(timeout))
	if err == nil {
		_, err = parts.WriteTo(c.conn)
	}
	if err != nil {
		return nil, fmt.Errorf("send batch: %w", err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err == nil {
		c.body.Reset()
		_, err = io.Copy(&c.body, io.LimitReader(resp.Body, maxBatchAnswerBytes))
	}
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return resp, nil
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
