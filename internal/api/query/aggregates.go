package query

import (
	"context"
	"io"
	"math/bits"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Limits of a page of aggregates.
const (
	DefaultBuckets = 1000   // default number of buckets in a JSON page
	MaxBuckets     = 10_000 // maximum number of buckets in a page
)

// An Aggregation selects readings of one device and divides them into buckets.
type Aggregation struct {
	Selection // Limit is the maximum number of buckets; NoFlags and Only are not used
	StepMs    int64
	Step      string         // as the client wrote it
	Zone      *time.Location // with which the buckets are aligned
}

// A summary describes the values of one sign in a bucket.
type summary struct {
	count       int64 // 0 means the other fields are invalid
	sum         int64 // exact for 2^32 values
	min, max    vitals.Value
	first, last storage.Latest
}

// mean returns the mean, rounded to the last decimal of the sign, and halves away from 0.
func (s *summary) mean() vitals.Value {
	half := s.count
	if s.sum < 0 {
		half = -half
	}
	return vitals.Value((2*s.sum + half) / (2 * s.count))
}

// A bucket has the summaries of all signs.
type bucket [vitals.MaxSigns]summary

// add adds the records before toUnixMs, which are sorted by time, and returns their number.
func (b *bucket) add(records []storage.Record, toUnixMs int64) int {
	for i := range records {
		r := &records[i]
		if r.TimeUnixMs >= toUnixMs {
			return i
		}
		for rest := r.Values.Present(); rest != 0; rest &= rest - 1 {
			sign := vitals.Sign(bits.TrailingZeros32(rest))
			v, _ := r.Values.Get(sign)
			s := &b[sign]
			s.last = storage.Latest{TimeUnixMs: r.TimeUnixMs, Value: v, Known: true}
			if s.count == 0 {
				s.first, s.min, s.max = s.last, v, v
			}
			s.count++
			s.sum += int64(v)
			s.min, s.max = min(s.min, v), max(s.max, v)
		}
	}
	return len(records)
}

// WriteAggregates computes the buckets of a from the stored readings, and writes those that
// have any to w, like [WriteReadings]. The page counts buckets.
//
// A bucket at the edge of the range has the readings inside of the range only.
func WriteAggregates(ctx context.Context, w io.Writer, reader Reader, a Aggregation, signs *vitals.Signs) (Page, error) {
	p := &aggregator{
		textBuffer: textBuffer{w: w}, a: a,
		enc: bucketEncoder{format: a.Format, signs: signs, device: a.Range.Device, clock: localClock{zone: a.Zone}},
	}
	p.text = p.enc.appendHead(make([]byte, 0, 2*flushBytes), &a)
	if err := scan(ctx, reader, a.Range, chunkRecords, p.add); err != nil {
		return p.page, err
	}
	if p.page.Cursor == "" && p.buckets != nil {
		p.end()
	}
	p.text = p.enc.appendTail(p.text, p.page.Cursor)
	return p.page, p.flush(1)
}

// An aggregator writes one page of aggregates.
type aggregator struct {
	textBuffer
	a       Aggregation
	enc     bucketEncoder
	page    Page
	buckets *calendar // nil before the first record
	current bucket    // has at least one record
}

// add adds records, and writes the buckets that they complete. It returns false if the page is full,
// and sets the cursor.
func (p *aggregator) add(records []storage.Record) (more bool, err error) {
	for len(records) > 0 {
		switch t := records[0].TimeUnixMs; {
		case p.buckets == nil:
			p.buckets = newCalendar(t, p.a.StepMs, p.a.Zone)
		case t >= p.buckets.toMs:
			p.end()
			if p.page.Readings == p.a.Limit {
				p.page.Cursor = string(appendMsCursor(nil, cursorBucket, p.buckets.toMs))
				return false, nil
			}
			if err := p.flush(flushBytes); err != nil {
				return false, err
			}
			p.buckets.seek(t)
		}
		records = records[p.current.add(records, p.buckets.toMs):]
	}
	return true, nil
}

// end ends the current bucket.
func (p *aggregator) end() {
	p.text = p.enc.appendBucket(p.text, &p.current, p.buckets, p.page.Readings == 0)
	p.page.Readings++
	p.current = bucket{}
}

// A bucketEncoder formats buckets.
type bucketEncoder struct {
	format Format
	signs  *vitals.Signs
	device vitals.Name
	clock  localClock
}

// appendHead appends the text before the first bucket.
func (e *bucketEncoder) appendHead(dst []byte, a *Aggregation) []byte {
	switch e.format {
	case JSON:
		dst = e.device.AppendTo(append(dst, `{"device":"`...))
		dst = append(append(dst, `","step":"`...), a.Step...)
		dst = append(append(dst, `","tz":"`...), e.clock.zone.String()...) // neither needs escapes
		return append(dst, `","buckets":[`...)
	case CSV:
		return append(dst, "device,from,to,sign,count,min,max,mean,first_time,first,last_time,last\r\n"...)
	}
	return dst
}

// appendTail appends the text after the last bucket.
func (e *bucketEncoder) appendTail(dst []byte, cursor string) []byte {
	if e.format != JSON {
		return dst
	}
	return append(appendNext(append(dst, "\n]"...), cursor), "}\n"...)
}

// appendBucket appends the current bucket of a calendar.
func (e *bucketEncoder) appendBucket(dst []byte, b *bucket, c *calendar, first bool) []byte {
	if e.format == JSON {
		if !first {
			dst = append(dst, ',')
		}
		dst = append(e.appendBounds(append(dst, "\n{"...), c), `,"signs":{`...)
	}
	some := false
	for s, d := range e.signs.All() {
		sum := &b[s]
		if sum.count == 0 {
			continue
		}
		switch e.format {
		case CSV:
			dst = e.appendRow(dst, d, sum, c)
		case NDJSON:
			dst = e.device.AppendTo(append(dst, `{"device":"`...))
			dst = e.appendBounds(append(dst, `",`...), c)
			dst = append(append(dst, `,"sign":"`...), d.Field...)
			dst = append(e.appendSummary(append(dst, `",`...), d, sum), "}\n"...)
		default:
			if some {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), d.Field...), `":{`...)
			dst = append(e.appendSummary(dst, d, sum), '}')
		}
		some = true
	}
	if e.format == JSON {
		dst = append(dst, "}}"...)
	}
	return dst
}

// appendBounds appends the bounds of the current bucket as members of JSON.
func (e *bucketEncoder) appendBounds(dst []byte, c *calendar) []byte {
	dst = e.appendBound(append(dst, `"from":"`...), c.fromMs)
	return append(e.appendBound(append(dst, `","to":"`...), c.toMs), '"')
}

// appendBound appends a bound, which is a whole second, in e's zone.
func (e *bucketEncoder) appendBound(dst []byte, unixMs int64) []byte {
	dst = e.clock.appendWall(dst, unixMs)
	return append(dst[:len(dst)-len(".000")], e.clock.suffix...)
}

// appendTime appends the time of a reading in e's zone.
func (e *bucketEncoder) appendTime(dst []byte, unixMs int64) []byte {
	return append(e.clock.appendWall(dst, unixMs), e.clock.suffix...)
}

// A localClock formats times in a zone. It is fast for times that are near each other.
type localClock struct {
	zone   *time.Location
	fromMs int64 // span is valid from here on
	span
	suffix string // of the span: Z, or the offset such as +02:00
}

// appendWall appends what the clock shows at a time, and sets c.suffix.
func (c *localClock) appendWall(dst []byte, unixMs int64) []byte {
	if unixMs < c.fromMs || unixMs >= c.endMs {
		c.fromMs, c.span = unixMs, spanAt(unixMs, c.zone)
		c.suffix = time.UnixMilli(unixMs).In(c.zone).Format("Z07:00")
	}
	dst = vitals.AppendTime(dst, unixMs+c.offsetMs)
	return dst[:len(dst)-len("Z")]
}

// appendSummary appends a summary as members of JSON.
func (e *bucketEncoder) appendSummary(dst []byte, d *vitals.Definition, s *summary) []byte {
	dst = strconv.AppendInt(append(dst, `"count":`...), s.count, 10)
	dst = d.Append(append(dst, `,"min":`...), s.min)
	dst = d.Append(append(dst, `,"max":`...), s.max)
	dst = d.Append(append(dst, `,"mean":`...), s.mean())
	dst = e.appendTime(append(dst, `,"first":{"time":"`...), s.first.TimeUnixMs)
	dst = d.Append(append(dst, `","value":`...), s.first.Value)
	dst = e.appendTime(append(dst, `},"last":{"time":"`...), s.last.TimeUnixMs)
	dst = d.Append(append(dst, `","value":`...), s.last.Value)
	return append(dst, '}')
}

// appendRow appends a summary as a CSV row. No cell needs quotes.
func (e *bucketEncoder) appendRow(dst []byte, d *vitals.Definition, s *summary, c *calendar) []byte {
	dst = e.device.AppendTo(dst)
	dst = e.appendBound(append(dst, ','), c.fromMs)
	dst = e.appendBound(append(dst, ','), c.toMs)
	dst = append(append(dst, ','), d.Field...)
	dst = strconv.AppendInt(append(dst, ','), s.count, 10)
	for _, v := range [...]vitals.Value{s.min, s.max, s.mean()} {
		dst = d.Append(append(dst, ','), v)
	}
	for _, at := range [...]*storage.Latest{&s.first, &s.last} {
		dst = e.appendTime(append(dst, ','), at.TimeUnixMs)
		dst = d.Append(append(dst, ','), at.Value)
	}
	return append(dst, "\r\n"...)
}
