package query

import (
	"context"
	"fmt"
	"io"

	"github.com/pulsegate/pulsegate/internal/api/omh"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Reader reads the records of a device. Package storage documents its contract.
type Reader interface {
	Latest(ctx context.Context, device vitals.Name) (storage.Device, error)
	Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error)
}

// A Selection selects readings of one device.
type Selection struct {
	Range   storage.Range
	Limit   int // maximum number of readings; 0: no limit
	Format  Format
	NoFlags bool // omit flags

	Only vitals.FlagSet // only readings with at least one of these flags; 0: all
}

// chunkRecords is the number of records per read. A chunk has 80 KiB. Reads are long because a
// store decodes records in blocks, and those at the ends of a read in vain.
const chunkRecords = 2048

// flushBytes is the amount of text that is buffered before a write.
const flushBytes = 32 << 10

// A Page describes what WriteReadings or WriteAggregates wrote.
type Page struct {
	Readings int    // or buckets
	Cursor   string // continues after the last one; "" at the end of the range
}

// WriteReadings writes the selected readings to w in q's format, chunk by chunk. It
// calls w.Write with at most about 64 KiB at a time.
//
// If the device has no readings at all, it returns the reader's error,
// storage.ErrNotFound, and writes nothing. After any other error, part of the text may
// have been written; the caller must ensure that it is not mistaken for the whole.
func WriteReadings(ctx context.Context, w io.Writer, reader Reader, q Selection, limits *vitals.FlagLimits) (Page, error) {
	var page Page
	if q.Only != 0 {
		reader = &flaggedReader{Reader: reader, only: q.Only, limits: limits}
	}
	if q.NoFlags {
		limits = nil
	}
	chunk := chunkRecords
	if q.Limit > 0 {
		chunk = min(chunk, q.Limit)
	}
	records := make([]storage.Record, chunk)
	var out sink
	switch q.Format {
	case Parquet:
		out = newParquetSink(w, q.Range.Device, limits)
	case OMH:
		out = newTextSink(w, &omhText{points: omh.NewEncoder(q.Range.Device)})
	default:
		out = newTextSink(w, newEncoder(q.Format, q.Range.Device, limits))
	}
	rng := q.Range
	more := true
	for more && (q.Limit == 0 || page.Readings < q.Limit) {
		want := chunk
		if q.Limit > 0 {
			want = min(want, q.Limit-page.Readings)
		}
		n, err := reader.Scan(ctx, rng, records[:want])
		if err != nil {
			return page, fmt.Errorf("scan readings: %w", err)
		}
		if n == 0 && page.Readings == 0 {
			if _, err := reader.Latest(ctx, q.Range.Device); err != nil {
				return page, err
			}
		}
		if err := out.add(records[:n]); err != nil {
			return page, fmt.Errorf("write readings: %w", err)
		}
		page.Readings += n
		more = n == want
		if n > 0 {
			rng = after(rng, records[n-1].TimeUnixMs)
		}
	}
	if more {
		// The limit ended the page. There is a next page only if there is a further
		// reading now.
		n, err := reader.Scan(ctx, rng, records[:1])
		if err != nil {
			return page, fmt.Errorf("scan readings: %w", err)
		}
		if n == 1 {
			last := rng.FromUnixMs - 1
			if rng.Descending {
				last = rng.ToUnixMs
			}
			page.Cursor = string(appendTimeCursor(nil, last, rng.Descending))
		}
	}
	if err := out.close(page.Cursor); err != nil {
		return page, fmt.Errorf("write readings: %w", err)
	}
	return page, nil
}

// A sink writes the records of a page in some format.
type sink interface {
	add(records []storage.Record) error
	close(cursor string) error // writes the end of the page
}

// A textSink is a sink for text formats. It buffers about flushBytes.
type textSink struct {
	w       io.Writer
	enc     recordText
	text    []byte
	records bool // there were any
}

// A recordText appends the text of a page.
type recordText interface {
	appendHead(dst []byte) []byte
	appendRecord(dst []byte, r *storage.Record, first bool) []byte
	appendTail(dst []byte, cursor string) []byte
}

func newTextSink(w io.Writer, enc recordText) *textSink {
	return &textSink{w: w, enc: enc, text: enc.appendHead(make([]byte, 0, flushBytes+flushBytes))}
}

func (t *textSink) add(records []storage.Record) error {
	for i := range records {
		t.text = t.enc.appendRecord(t.text, &records[i], !t.records)
		t.records = true
		if len(t.text) >= flushBytes {
			if _, err := t.w.Write(t.text); err != nil {
				return err
			}
			t.text = t.text[:0]
		}
	}
	return nil
}

func (t *textSink) close(cursor string) error {
	t.text = t.enc.appendTail(t.text, cursor)
	if len(t.text) == 0 {
		return nil
	}
	_, err := t.w.Write(t.text)
	return err
}

// after returns the part of r after a reading at lastUnixMs.
func after(r storage.Range, lastUnixMs int64) storage.Range {
	if r.Descending {
		r.ToUnixMs = min(r.ToUnixMs, lastUnixMs)
	} else {
		r.FromUnixMs = max(r.FromUnixMs, lastUnixMs+1)
	}
	return r
}
