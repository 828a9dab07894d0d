package query

import (
	"context"
	"fmt"
	"io"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Reader gives the records of one device. Package storage states what it
// promises.
type Reader interface {
	Latest(ctx context.Context, device vitals.Name) (storage.Device, error)
	Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error)
}

// A Question asks for readings of one device.
type Question struct {
	Range   storage.Range
	Limit   int // readings at most; 0: all
	Format  Format
	NoFlags bool // leave out the flags of unusual values
}

// chunkRecords is how many records are read at once. A chunk is about 80 KiB.
const chunkRecords = 512

// flushBytes is how much text is gathered before it is written.
const flushBytes = 32 << 10

// A Page is what WriteReadings wrote.
type Page struct {
	Readings int
	Cursor   string // goes on behind the last reading; "" at the end of the range
}

// WriteReadings writes the readings that q asks for to w, in q's format, one
// chunk after another. It calls w.Write with at most about 64 KiB at a time.
//
// When there is nothing in the range because there is nothing at all of the device, it
// returns the reader's error, storage.ErrNotFound, and has written nothing. After any
// other error of w, the reader or ctx, part of the text may have been written; the
// caller must make sure that it is not taken for the whole.
func WriteReadings(ctx context.Context, w io.Writer, reader Reader, q Question, limits *vitals.FlagLimits) (Page, error) {
	var page Page
	if q.NoFlags {
		limits = nil
	}
	records := make([]storage.Record, chunkRecords)
	text := make([]byte, 0, flushBytes+flushBytes)
	enc := encoder{format: q.Format, flags: limits}

	text = enc.appendHead(text)
	rng := q.Range
	more := true
	for more && (q.Limit == 0 || page.Readings < q.Limit) {
		want := chunkRecords
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
		for i := range records[:n] {
			text = enc.appendRecord(text, &records[i], page.Readings == 0)
			page.Readings++
			if len(text) >= flushBytes {
				if _, err := w.Write(text); err != nil {
					return page, fmt.Errorf("write readings: %w", err)
				}
				text = text[:0]
			}
		}
		more = n == want
		if n > 0 {
			rng = behind(rng, records[n-1].TimeUnixMs)
		}
	}
	if more {
		// The limit ended the page. Only if a further reading is there already is
		// there a next page.
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
	text = enc.appendTail(text, page.Cursor)
	if len(text) > 0 {
		if _, err := w.Write(text); err != nil {
			return page, fmt.Errorf("write readings: %w", err)
		}
	}
	return page, nil
}

// behind returns what is left of r behind a reading of time lastUnixMs.
func behind(r storage.Range, lastUnixMs int64) storage.Range {
	if r.Descending {
		r.ToUnixMs = min(r.ToUnixMs, lastUnixMs)
	} else {
		r.FromUnixMs = max(r.FromUnixMs, lastUnixMs+1)
	}
	return r
}
