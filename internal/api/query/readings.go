package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/omh"
	"github.com/pulsegate/pulsegate/internal/api/roster"
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
	Limit   int // maximum number of readings; 0 means no limit
	Format  Format
	NoFlags bool // omit flags

	Assigned []storage.Assignment // of the device: whose readings these are

	Only vitals.FlagSet // only readings with at least one of these flags; none means all

	Roster *roster.Roster // with ranges of some devices, groups and subjects; may be nil

	// Only readings whose last change arrived from ReceivedFromUnixMs to ReceivedToUnixMs, exclusive, unless that is 0.
	ReceivedFromUnixMs, ReceivedToUnixMs int64

	worn *worn  // what was measured of a subject, instead of Range.Device; nil means of the device
	list list   // of cursors
	end  string // what the answer ends with
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
	LeftOut  string // fields of signs that the format does not have, with commas between them
}

// errNewSign means that a reading has a sign that was defined, by another server, after the columns
// were written. The next request has its column.
var errNewSign = errors.New("a sign was defined while the readings were read")

// WriteReadings writes the selected readings to w in q's format, chunk by chunk, with their flags
// unless limits is nil. It calls w.Write with at most about 64 KiB at a time.
//
// If the device has no readings at all, it returns the reader's error,
// storage.ErrNotFound, and writes nothing. After any other error, part of the text may
// have been written; the caller must ensure that it is not mistaken for the whole.
func WriteReadings(ctx context.Context, w io.Writer, reader Reader, q Selection, signs *vitals.Signs,
	limits *vitals.FlagLimits) (Page, error) {
	var page Page
	only, worn := recordFlagger{flagger: flagger{limits, q.Roster}}, wearing{all: q.Assigned}
	var shown *recordFlagger // nil means that flags are not shown
	if limits != nil && !q.NoFlags {
		shown = &recordFlagger{flagger: only.flagger}
	}
	columns := ^uint32(0) // the signs that the format has
	if q.Format == CSV || q.Format == Parquet {
		columns = signs.Known() // before the encoder reads it
	}
	chunk := chunkRecords
	if q.Limit > 0 && q.Only.IsZero() && !q.byReceipt() { // otherwise few may be selected
		chunk = min(chunk, q.Limit+1) // one of the next page
	}
	var out sink
	var points *omh.Encoder
	switch q.Format {
	case Parquet:
		out = newParquetSink(w, q.Range.Device, q.Assigned, signs, shown)
	case OMH:
		points = omh.NewEncoder(q.Range.Device, signs)
		out = newTextSink(w, points)
	default:
		out = newTextSink(w, newEncoder(q.Format, q.Range.Device, q.Assigned, signs, shown))
	}
	var last deviceKey
	err := scan(ctx, reader, &q, chunk, func(device vitals.Name, records []storage.Record) (more bool, err error) {
		more = true
		if !q.Only.IsZero() {
			records = slices.DeleteFunc(records, func(r storage.Record) bool {
				worn.seek(r.TimeUnixMs)
				return !only.flags(&device, worn.now.Subject, &r.Values).Intersects(q.Only)
			})
		}
		if left := q.Limit - page.Readings; q.Limit > 0 && len(records) > left {
			records, more = records[:left], false
		}
		if n := len(records); n > 0 {
			last = deviceKey{records[n-1].TimeUnixMs, device}
			out.of(device)
		}
		page.Readings += len(records)
		if !more {
			page.Cursor = q.cursorAfter(&last)
		}
		for i := range records {
			if records[i].Values.Present()&^columns != 0 {
				return false, errNewSign
			}
		}
		return more, out.add(records)
	})
	if err == nil {
		err = out.close(page.Cursor)
	}
	if points != nil {
		page.LeftOut = points.LeftOut()
	}
	return page, err
}

// byReceipt reports whether only readings are selected that arrived at some time.
func (q *Selection) byReceipt() bool { return q.ReceivedToUnixMs != 0 }

// arrived reports whether the last change of a record arrived at a time that q selects.
func (q *Selection) arrived(r *storage.Record) bool {
	unixMs := max(r.ReceivedUnixMs, r.ChangedUnixMs)
	return q.ReceivedFromUnixMs <= unixMs && unixMs < q.ReceivedToUnixMs
}

// scan calls add with the records that q selects by time and receipt, some of a device at a time, until it returns
// false. add may modify them. If there are none of the device at all, it returns the reader's error.
func scan(
	ctx context.Context, reader Reader, q *Selection, chunk int,
	add func(device vitals.Name, records []storage.Record) (more bool, err error),
) error {
	next := q.ofDevice(reader, chunk)
	if q.worn != nil {
		next = q.ofSubject(reader, chunk)
	}
	for {
		device, records, more, err := next(ctx)
		if err != nil {
			return err
		}
		if q.byReceipt() {
			records = slices.DeleteFunc(records, func(r storage.Record) bool { return !q.arrived(&r) })
		}
		wanted, err := add(device, records)
		if err != nil {
			return fmt.Errorf("write page: %w", err)
		}
		if wanted && more {
			continue
		}
		if q.worn != nil {
			return q.worn.verify(ctx)
		}
		return nil
	}
}

// A nextFunc returns the next records, which are of one device, and whether there may be more.
type nextFunc func(ctx context.Context) (device vitals.Name, records []storage.Record, more bool, err error)

// ofDevice returns a function that returns the records of q.Range.
func (q *Selection) ofDevice(reader Reader, chunk int) nextFunc {
	scanner, buffer, first := storage.Scanner{Range: q.Range}, make([]storage.Record, chunk), true
	return func(ctx context.Context) (vitals.Name, []storage.Record, bool, error) {
		records, more, err := scanner.Next(ctx, reader.Scan, buffer)
		if err == nil && len(records) == 0 && first {
			_, err = reader.Latest(ctx, q.Range.Device)
		}
		first = false
		return q.Range.Device, records, more, err
	}
}

// A sink writes the records of a page in some format.
type sink interface {
	of(device vitals.Name) // whose records are added next
	add(records []storage.Record) error
	close(cursor string) error // writes the end of the page
}

// A textBuffer is text that is written in pieces.
type textBuffer struct {
	w    io.Writer
	text []byte
}

// flush writes the text if it has at least some length.
func (b *textBuffer) flush(least int) error {
	if len(b.text) < least {
		return nil
	}
	_, err := b.w.Write(b.text)
	b.text = b.text[:0]
	return err
}

// A textSink is a sink for text formats.
type textSink struct {
	textBuffer
	enc     recordText
	records bool // there were any
}

// A recordText appends the text of a page.
type recordText interface {
	AppendHead(dst []byte) []byte
	AppendRecord(dst []byte, r *storage.Record, first bool) []byte
	AppendTail(dst []byte, cursor string) []byte
}

func newTextSink(w io.Writer, enc recordText) *textSink {
	return &textSink{textBuffer: textBuffer{w, enc.AppendHead(make([]byte, 0, flushBytes+flushBytes))}, enc: enc}
}

func (t *textSink) of(device vitals.Name) {
	if e, ok := t.enc.(*encoder); ok { // data points are only of one device
		e.setDevice(device)
	}
}

func (t *textSink) add(records []storage.Record) error {
	for i := range records {
		t.text = t.enc.AppendRecord(t.text, &records[i], !t.records)
		t.records = true
		if err := t.flush(flushBytes); err != nil {
			return err
		}
	}
	return nil
}

func (t *textSink) close(cursor string) error {
	t.text = t.enc.AppendTail(t.text, cursor)
	return t.flush(1)
}
