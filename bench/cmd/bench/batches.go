package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	batchReadings = 1000

	// senders is the number of connections that post batches. Each sends for its own
	// batchReadings devices, so that there are as many devices as in the load of single
	// readings.
	senders = 10
)

// A form is a format of batches.
type form struct {
	array    bool   // JSON array; otherwise NDJSON
	encoding string // Content-Encoding; empty means none
}

// forms returns all forms, in the order of the table.
func forms() []form {
	return []form{{array: true}, {}, {true, "gzip"}, {false, "gzip"}, {true, "zstd"}, {false, "zstd"}}
}

func (f form) String() string {
	name := "ndjson"
	if f.array {
		name = "array"
	}
	if f.encoding != "" {
		name += "+" + f.encoding
	}
	return name
}

// A batch is a body with one reading for each of a sender's devices. For the next batch
// only the differing bytes are written, because the load generator shares the CPUs with
// the server and should be cheap.
type batch struct {
	body   []byte
	stamps []int // offsets of the times in body
	digits []int // offsets of digits of values in body
	random uint32
}

const stampForm = "2006-01-02T15:04:05.000Z"

// newBatch returns a batch for the devices of a sender. Its readings have the form of
// those in ingest.lua.
func newBatch(f form, sender int) *batch {
	b := &batch{random: uint32(sender)}
	between := byte('\n')
	if f.array {
		b.body, between = append(b.body, '['), ','
	}
	for i := range batchReadings {
		if i > 0 {
			b.body = append(b.body, between)
		}
		n := sender*batchReadings + i
		b.body = fmt.Appendf(b.body, `{"device":"wearable-%06d","time":"`, n)
		b.stamps = append(b.stamps, len(b.body))
		b.body = append(b.body, stampForm...)
		b.number(`","systolic_mmhg":`, 110+n%40)
		b.number(`,"diastolic_mmhg":`, 60+n%30)
		b.number(`,"spo2_pct":`, 90+n%10)
		b.body = append(b.body, ".5"...)
		b.number(`,"heart_rate_bpm":`, 60+n%37)
		b.body = append(b.body, ".5"...)
		b.body = fmt.Appendf(b.body, `,"resting_heart_rate_bpm":%d.5}`, 50+n%20)
	}
	if f.array {
		b.body = append(b.body, ']')
	}
	return b
}

// number appends a value whose last digit changes in each batch.
func (b *batch) number(before string, v int) {
	b.body = fmt.Appendf(b.body, "%s%d", before, v)
	b.digits = append(b.digits, len(b.body)-1)
}

// set changes b to the batch for a time, with different values.
func (b *batch) set(at time.Time) {
	stamp := at.UTC().Format(stampForm)
	for _, i := range b.stamps {
		copy(b.body[i:], stamp)
	}
	for _, i := range b.digits {
		b.random = b.random*1664525 + 1013904223 // Numerical Recipes' constants
		b.body[i] = '0' + byte(b.random>>16%10)
	}
}

// feeds returns a feed for each sender. The senders are divided among the servers.
func (s *cluster) feeds(f form, base time.Time, d time.Duration) ([]feed, error) {
	all, errs := make([]feed, senders), make([]error, senders)
	var wg sync.WaitGroup
	for i := range all {
		all[i].open = openOwn(s.nodes[i%len(s.nodes)].public, f.encoding)
		if f.encoding == "" {
			all[i].next = newBatch(f, i).since(base)
			continue
		}
		wg.Go(func() {
			all[i].next, errs[i] = compressed(f, i, base, int(maxPerSecond*d.Seconds())/batchReadings/senders)
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// post sends batches to the servers.
func (s *cluster) post(ctx context.Context, f form, base time.Time, d time.Duration) (flowed, error) {
	all, err := s.feeds(f, base, d)
	if err != nil {
		return flowed{}, err
	}
	return post(ctx, all, d)
}

// since returns what makes uncompressed batches, whose times start after base.
func (b *batch) since(base time.Time) func() []byte {
	return func() []byte {
		base = base.Add(time.Millisecond)
		b.set(base)
		return b.body
	}
}

// maxPerSecond bounds the precomputed readings in compressed batches. A load that
// runs out of them ends early.
const maxPerSecond = 600_000

// compressed returns what returns n precomputed compressed batches, because compressing
// them costs about as much as the server needs to store them.
func compressed(f form, sender int, base time.Time, n int) (next func() []byte, err error) {
	plain := newBatch(f, sender).since(base)
	all := make([][]byte, n)
	var text bytes.Buffer
	var w interface {
		io.WriteCloser
		Reset(io.Writer)
	} = gzip.NewWriter(nil)
	if f.encoding == "zstd" {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("create compressor: %w", err)
		}
		w = z
	}
	for i := range all {
		text.Reset()
		w.Reset(&text)
		if _, err := w.Write(plain()); err != nil {
			return nil, fmt.Errorf("compress batch: %w", err)
		}
		if err := w.Close(); err != nil {
			return nil, fmt.Errorf("compress batch: %w", err)
		}
		all[i] = bytes.Clone(text.Bytes())
	}
	return func() (batch []byte) {
		if len(all) > 0 {
			batch, all = all[0], all[1:]
		}
		return batch
	}, nil
}
