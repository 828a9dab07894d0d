package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/pulsegate/pulsegate/vitals"
)

// Batches of every form have readings that Pulsegate accepts, and no reading occurs
// twice, neither within a batch nor across batches and senders.
func TestBatches(t *testing.T) {
	now := time.Now()
	rules, err := vitals.NewValidator(vitals.NewSigns().DefaultLimits())
	try(t, err)
	decoder := vitals.NewDecoder(rules, vitals.DecoderOptions{})
	for _, f := range forms() {
		type key struct {
			device vitals.Name
			unixMs int64
		}
		seen := map[key]bool{}
		lengths := map[int]bool{}
		for sender := range 2 {
			next := newBatch(f, sender).since(now.Add(-time.Hour))
			if f.encoding != "" {
				next, err = compressed(f, sender, now.Add(-time.Hour), 3)
				try(t, err)
			}
			for range 3 {
				body := plain(t, f, next())
				lengths[len(body)] = true
				var b vitals.Batch
				if err := decoder.Decode(body, now.UnixMilli(), &b); err != nil {
					t.Fatalf("%s: %v", f, err)
				}
				if len(b.Readings) != batchReadings || len(b.Refused) != 0 || (b.Shape == vitals.Array) != f.array {
					t.Fatalf("%s: %v of %d accepted and %d rejected readings", f, b.Shape, len(b.Readings), len(b.Refused))
				}
				for _, r := range b.Readings {
					if k := (key{r.Device, r.TimeUnixMs}); seen[k] {
						t.Fatalf("%s: a reading occurs twice", f)
					} else {
						seen[k] = true
					}
				}
			}
			if f.encoding != "" && next() != nil {
				t.Errorf("%s: more than 3 requests", f)
			}
		}
		if len(lengths) != 1 {
			t.Errorf("%s: bodies of lengths %v, want one", f, lengths)
		}
	}
}

// plain returns a batch, decompressed.
func plain(t *testing.T, f form, batch []byte) []byte {
	t.Helper()
	var body io.Reader = bytes.NewReader(batch)
	var err error
	switch f.encoding {
	case "gzip":
		body, err = gzip.NewReader(body)
	case "zstd":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(body); err == nil {
			defer z.Close()
			body = z
		}
	}
	try(t, err)
	text, err := io.ReadAll(body)
	try(t, err)
	return text
}

// A load counts answered requests, and fails on a single wrong answer.
func TestPost(t *testing.T) {
	var answered atomic.Int64
	duplicate := bytes.Replace(batchAnswer, []byte(`"duplicate":0`), []byte(`"duplicate":1`), 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A load that fails breaks off the requests of its other senders.
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return
		}
		if n < 100*batchReadings {
			t.Errorf("a body of %d bytes", n)
		}
		if answered.Add(1) <= 6 {
			w.Write(batchAnswer)
		} else {
			w.Write(duplicate)
		}
	}))
	defer srv.Close()
	open := openOwn(srv.Listener.Addr().String(), "")
	all := []feed{{open, newBatch(form{}, 0).since(time.Now())}, {open, newBatch(form{array: true}, 1).since(time.Now())}}
	p, err := post(t.Context(), []feed{{open, first(3, all[0].next)}, {open, first(3, all[1].next)}}, time.Minute)
	if err != nil || p.batches != 6 || answered.Load() != 6 || len(p.answers) != 6 || p.bytes < 6*100*batchReadings {
		t.Errorf("%d batches and %d bytes, %d answers, %v; the server has answered %d of 6", p.batches, p.bytes, len(p.answers), err, answered.Load())
	}
	if _, err := post(t.Context(), all, time.Minute); err == nil || !strings.Contains(err.Error(), `"duplicate`) {
		t.Errorf("with a duplicate in an answer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := post(ctx, all, time.Minute); err == nil {
		t.Error("a canceled load has figures")
	}
	if _, err := post(t.Context(), []feed{{open, first(0, all[0].next)}}, time.Minute); err == nil {
		t.Error("a load without a batch has figures")
	}
}

// first returns what returns the first n batches of next.
func first(n int, next func() []byte) func() []byte {
	return func() []byte {
		if n--; n < 0 {
			return nil
		}
		return next()
	}
}
