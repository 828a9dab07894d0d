package main

import (
	"bytes"
	"fmt"
	"io"
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

// head returns the header of a request with a body of n bytes.
func (f form) head(addr string, n int) []byte {
	encoding := ""
	if f.encoding != "" {
		encoding = "Content-Encoding: " + f.encoding + "\r\n"
	}
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n", path, addr, encoding, n)
}

// A source returns one request after another, each with different readings, and nil at
// the end. A request is valid until the next call.
type source func() []byte

// plain returns a source of uncompressed batches whose times start after base.
func plain(addr string, f form, sender int, base time.Time) source {
	b := newBatch(f, sender)
	head := f.head(addr, len(b.body))
	// The body is part of the request, so that one write sends both.
	request := append(head, b.body...)
	b.body = request[len(head):]
	return func() []byte {
		base = base.Add(time.Millisecond)
		b.set(base)
		return request
	}
}

// compressed returns a source of n precomputed compressed batches, because compressing
// them costs about as much as the server needs to store them.
func compressed(addr string, f form, sender int, base time.Time, n int) (source, error) {
	b := newBatch(f, sender)
	requests := make([][]byte, n)
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
	for i := range requests {
		base = base.Add(time.Millisecond)
		b.set(base)
		text.Reset()
		w.Reset(&text)
		if _, err := w.Write(b.body); err != nil {
			return nil, fmt.Errorf("compress batch: %w", err)
		}
		if err := w.Close(); err != nil {
			return nil, fmt.Errorf("compress batch: %w", err)
		}
		requests[i] = append(f.head(addr, text.Len()), text.Bytes()...)
	}
	next := 0
	return func() []byte {
		if next == n {
			return nil
		}
		next++
		return requests[next-1]
	}, nil
}
