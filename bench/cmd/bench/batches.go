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

	// senders is the number of connections that post batches. Each speaks for
	// batchReadings devices of its own, which makes as many devices as the load of
	// single readings has.
	senders = 10
)

// A form is how a batch is written.
type form struct {
	array    bool   // a JSON array; otherwise NDJSON
	encoding string // Content-Encoding; empty: none
}

// forms lists all of them, in the order of the table.
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

// A batch is a body with one reading of each of a sender's devices. To make the
// next one, only the bytes that differ are written: a load generator that shares
// the CPUs with the server should cost little.
type batch struct {
	body   []byte
	stamps []int // of the times in body
	digits []int // of digits of values in body
	random uint32
}

const stampForm = "2006-01-02T15:04:05.000Z"

// newBatch returns a batch of the devices of sender. Its readings look like those
// of ingest.lua.
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

// number appends a value whose last digit changes from batch to batch.
func (b *batch) number(before string, v int) {
	b.body = fmt.Appendf(b.body, "%s%d", before, v)
	b.digits = append(b.digits, len(b.body)-1)
}

// set makes b the batch of a time, with other values.
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

// A source returns one request after the other, each with other readings, and nil
// when it has no more. A request is valid until the next call.
type source func() []byte

// plain returns a source of batches as they are, whose times begin behind base.
func plain(addr string, f form, sender int, base time.Time) source {
	b := newBatch(f, sender)
	head := f.head(addr, len(b.body))
	// The body is written into the request, so that one write sends both.
	request := append(head, b.body...)
	b.body = request[len(head):]
	return func() []byte {
		base = base.Add(time.Millisecond)
		b.set(base)
		return request
	}
}

// compressed returns a source of n compressed batches, which are made in advance:
// to compress costs about what the server needs to take them.
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
			return nil, fmt.Errorf("make compressor: %w", err)
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
