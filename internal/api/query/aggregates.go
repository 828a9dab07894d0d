package query

import (
	"bytes"
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
	MaxBuckets     = 10_000 // maximum value of limit for buckets
)

// An Aggregation selects readings and divides them into buckets.
type Aggregation struct {
	Selection // Limit is the maximum number of buckets, 0 for no limit; NoFlags and Only are not used
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
// A bucket at the edge of the range has the readings inside of the range only. A bucket in which an assignment of the
// device begins or ends is divided there: no bucket has values of two subjects.
func WriteAggregates(ctx context.Context, w io.Writer, reader Reader, a Aggregation,
	signs *vitals.Signs) (Page, error) {
	p := &aggregator{textBuffer: textBuffer{w: w}, Aggregation: a, signs: signs, clock: localClock{zone: a.Zone},
		wearer: wearing{all: a.Assigned}}
	p.text = p.appendHead(make([]byte, 0, 2*flushBytes))
	if err := scan(ctx, reader, &a.Selection, chunkRecords, p.add); err != nil {
		return p.page, err
	}
	if p.page.Cursor == "" && p.buckets != nil {
		p.end()
	}
	p.text = p.appendTail(p.text)
	return p.page, p.flush(1)
}

// An aggregator writes one page of aggregates.
type aggregator struct {
	textBuffer
	Aggregation
	signs   *vitals.Signs
	clock   localClock
	page    Page
	buckets *calendar // nil before the first record
	current bucket    // has at least one record
	wearer  wearing   // of current

	fromMs, toMs int64 // of current: the part of the bucket of the calendar that lies in the span of wearer
}

// add adds records, and writes the buckets that they complete. It returns false if the page is full,
// and sets the cursor.
func (p *aggregator) add(_ vitals.Name, records []storage.Record) (more bool, err error) {
	for len(records) > 0 {
		switch t := records[0].TimeUnixMs; {
		case p.buckets == nil:
			p.buckets = newCalendar(t, p.StepMs, p.Zone)
		case t >= p.toMs:
			p.end()
			if p.page.Readings == p.Limit {
				p.page.Cursor = p.list.msCursor(p.toMs)
				return false, nil
			}
			if err := p.flush(flushBytes); err != nil {
				return false, err
			}
			p.buckets.seek(t)
		}
		p.wearer.seek(records[0].TimeUnixMs)
		p.fromMs, p.toMs = max(p.buckets.fromMs, p.wearer.now.FromUnixMs), min(p.buckets.toMs, p.wearer.now.ToUnixMs)
		records = records[p.current.add(records, p.toMs):]
	}
	return true, nil
}

// end ends the current bucket.
func (p *aggregator) end() {
	p.text = p.appendBucket(p.text)
	p.page.Readings++
	p.current = bucket{}
}

// appendHead appends the text before the first bucket.
func (p *aggregator) appendHead(dst []byte) []byte {
	switch p.Format {
	case JSON:
		if p.worn != nil {
			dst = append(append(dst, `{"subject":"`...), p.worn.subject...)
		} else {
			dst = p.Range.Device.AppendTo(append(dst, `{"device":"`...))
		}
		dst = append(append(dst, `","step":"`...), p.Step...)
		dst = append(append(dst, `","tz":"`...), p.clock.zone.String()...) // neither needs escapes
		return append(dst, `","buckets":[`...)
	case CSV:
		if p.worn == nil {
			dst = append(dst, "device,"...)
		}
		return append(dst, "from,to,subject,sign,count,min,max,mean,first_time,first,last_time,last\r\n"...)
	}
	return dst
}

// appendTail appends the text after the last bucket.
func (p *aggregator) appendTail(dst []byte) []byte {
	if p.Format != JSON {
		return dst
	}
	return append(appendNext(append(dst, "\n]"...), p.page.Cursor), "}\n"...)
}

// appendBucket appends the current bucket.
func (p *aggregator) appendBucket(dst []byte) []byte {
	if p.Format == JSON {
		if p.page.Readings > 0 {
			dst = append(dst, ',')
		}
		dst = append(p.appendBounds(append(dst, "\n{"...)), `,"signs":{`...)
	}
	some := false
	for s, d := range p.signs.All() {
		sum := &p.current[s]
		if sum.count == 0 {
			continue
		}
		switch p.Format {
		case CSV:
			dst = p.appendRow(dst, d, sum)
		case NDJSON:
			if dst = append(dst, '{'); p.worn == nil {
				dst = append(p.Range.Device.AppendTo(append(dst, `"device":"`...)), `",`...)
			}
			dst = p.appendBounds(dst)
			dst = append(append(dst, `,"sign":"`...), d.Field...)
			dst = append(p.appendSummary(append(dst, `",`...), d, sum), "}\n"...)
		default:
			if some {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), d.Field...), `":{`...)
			dst = append(p.appendSummary(dst, d, sum), '}')
		}
		some = true
	}
	if p.Format == JSON {
		dst = append(dst, "}}"...)
	}
	return dst
}

// appendBounds appends the bounds of the current bucket and its subject as members of JSON.
func (p *aggregator) appendBounds(dst []byte) []byte {
	dst = p.appendBound(append(dst, `"from":"`...), p.fromMs)
	dst = append(p.appendBound(append(dst, `","to":"`...), p.toMs), '"')
	return appendSubject(dst, "subject", p.wearer.now.Subject)
}

// appendBound appends a bound, which is a whole second unless it is that of an assignment, in the zone of the buckets.
func (p *aggregator) appendBound(dst []byte, unixMs int64) []byte {
	dst = bytes.TrimSuffix(p.clock.appendWall(dst, unixMs), []byte(".000"))
	return append(dst, p.clock.suffix...)
}

// appendTime appends the time of a reading in the zone of the buckets.
func (p *aggregator) appendTime(dst []byte, unixMs int64) []byte {
	return append(p.clock.appendWall(dst, unixMs), p.clock.suffix...)
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

// appendValue appends a value. Except in JSON, the values of all signs are in one column, see appendFloat.
func (p *aggregator) appendValue(dst []byte, d *vitals.Definition, v vitals.Value) []byte {
	return appendFloat(dst, d, v, p.Format != JSON)
}

// appendSummary appends a summary as members of JSON.
func (p *aggregator) appendSummary(dst []byte, d *vitals.Definition, s *summary) []byte {
	dst = strconv.AppendInt(append(dst, `"count":`...), s.count, 10)
	dst = p.appendValue(append(dst, `,"min":`...), d, s.min)
	dst = p.appendValue(append(dst, `,"max":`...), d, s.max)
	dst = p.appendValue(append(dst, `,"mean":`...), d, s.mean())
	dst = p.appendTime(append(dst, `,"first":{"time":"`...), s.first.TimeUnixMs)
	dst = p.appendValue(append(dst, `","value":`...), d, s.first.Value)
	dst = p.appendTime(append(dst, `},"last":{"time":"`...), s.last.TimeUnixMs)
	dst = p.appendValue(append(dst, `","value":`...), d, s.last.Value)
	return append(dst, '}')
}

// appendRow appends a summary as a CSV row. No cell needs quotes.
func (p *aggregator) appendRow(dst []byte, d *vitals.Definition, s *summary) []byte {
	if p.worn == nil {
		dst = append(p.Range.Device.AppendTo(dst), ',')
	}
	dst = p.appendBound(dst, p.fromMs)
	dst = p.appendBound(append(dst, ','), p.toMs)
	dst = append(append(dst, ','), p.wearer.now.Subject...)
	dst = append(append(dst, ','), d.Field...)
	dst = strconv.AppendInt(append(dst, ','), s.count, 10)
	for _, v := range [...]vitals.Value{s.min, s.max, s.mean()} {
		dst = p.appendValue(append(dst, ','), d, v)
	}
	for _, at := range [...]*storage.Latest{&s.first, &s.last} {
		dst = p.appendTime(append(dst, ','), at.TimeUnixMs)
		dst = p.appendValue(append(dst, ','), d, at.Value)
	}
	return append(dst, "\r\n"...)
}
