package recording

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxLineBytes bounds one line of NDJSON.
const maxLineBytes = 64 << 10

// added lists the members that the server adds to exported readings. They are removed
// on import. The slice is never modified.
var added = []string{"subject", "received", "flags"}

// An ndjsonReader is the Reader of an NDJSON file.
type ndjsonReader struct {
	lines   *bufio.Reader
	opt     Options
	signs   *vitals.Signs
	counts  Counts
	line    int
	text    []byte // nil without Options.Texts
	decoder *vitals.Decoder
	batch   vitals.Batch
}

// NewNDJSON returns a Reader for NDJSON: one reading as a JSON object per line, as the
// server accepts and exports them. The member "utc_offset_minutes" of an export becomes the
// offset of the time; "subject", "received" and "flags" are ignored; other unknown members are errors. A line
// of [AppendRejected] is the row in it.
func NewNDJSON(r io.Reader, opt Options) Reader {
	signs := opt.signs()
	return &ndjsonReader{lines: withoutMark(bufio.NewReaderSize(r, maxLineBytes)), opt: opt, signs: signs,
		decoder: newDecoder(signs, opt.shifted)}
}

func (n *ndjsonReader) Signs() *vitals.Signs { return n.signs }

// Text implements Reader.
func (n *ndjsonReader) Text() []byte { return n.text }

func (n *ndjsonReader) Counts() Counts { return n.counts }

func (n *ndjsonReader) Next() (vitals.Reading, int, error) {
	for {
		n.line++
		text, err := n.lines.ReadSlice('\n')
		switch {
		case err == io.EOF && len(text) == 0:
			return vitals.Reading{}, 0, io.EOF
		case errors.Is(err, bufio.ErrBufferFull):
			return vitals.Reading{}, 0, fmt.Errorf("line %d is longer than %d bytes", n.line, maxLineBytes)
		case err != nil && err != io.EOF:
			return vitals.Reading{}, 0, fmt.Errorf("read line %d: %w", n.line, err)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		n.counts.Rows++
		text = rejectedRow(text)
		if n.opt.Texts {
			n.text = text
		}
		reading, err := n.decode(text)
		var field *vitals.FieldError
		switch {
		case errors.As(err, &field) && errors.Is(err, vitals.ErrEmpty):
			n.counts.NoSign++
			continue
		case errors.As(err, &field):
			return reading, n.line, &RowError{Line: n.line, Field: field.Field, Err: field.Err}
		case err != nil:
			return reading, n.line, &RowError{Line: n.line, Err: err}
		}
		reading.TimeUnixMs += n.opt.ShiftMs
		return reading, n.line, nil
	}
}

// decode converts one line to a reading.
func (n *ndjsonReader) decode(line []byte) (vitals.Reading, error) {
	n.batch.Reset()
	object, offset := n.strip(line)
	if err := n.decoder.Decode(object, vitals.MaxTimeUnixMs, &n.batch); err != nil {
		return vitals.Reading{}, err
	}
	if len(n.batch.Refused) > 0 {
		return vitals.Reading{}, &n.batch.Refused[0]
	}
	if len(n.batch.Readings) != 1 {
		return vitals.Reading{}, errors.New("not one JSON object")
	}
	r := n.batch.Readings[0]
	if offset == nil {
		return r, nil
	}
	var err error
	if r.UTCOffset, err = ParseOffset(offset, r.UTCOffset); err != nil {
		return r, &vitals.FieldError{Field: fieldOffset, Err: err}
	}
	return r, nil
}

// strip returns the object of a line in the form to send: without the members that the
// server adds, without zeros, and with a device. offset is the member with the offset from
// UTC, if there is one. strip returns any other line unchanged; the decoder then reports what
// is wrong with it.
func (n *ndjsonReader) strip(line []byte) (object, offset []byte) {
	var members map[string]jsontext.Value
	if json.Unmarshal(line, &members) != nil || members == nil {
		return line, nil
	}
	if v := members[fieldOffset]; v.Kind() != jsontext.KindNull {
		offset = v
	}
	delete(members, fieldOffset)
	for _, name := range added {
		delete(members, name)
	}
	for _, d := range n.signs.All() {
		if v, err := vitals.ParseValue(members[d.Field], d.Decimals); err == nil && noSignal(d, v) {
			n.counts.Zeros++
			delete(members, d.Field)
		}
	}
	if v := members["device"]; (v == nil || v.Kind() == jsontext.KindNull) && !n.opt.Device.IsZero() {
		members["device"] = jsontext.Value(`"` + n.opt.Device.String() + `"`)
	}
	// The order of the members decides which error is found first.
	object, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return line, nil
	}
	return object, offset
}

// newestOf reads r to its end and returns the newest time of its readings, in
// Unix ms. It calls visit, which may be nil, with each time.
func newestOf(r Reader, visit func(unixMs int64)) (int64, error) {
	newest := int64(math.MinInt64)
	var rejected *RowError // the first
	for {
		reading, _, err := r.Next()
		var row *RowError
		switch {
		case err == io.EOF && newest == math.MinInt64 && rejected != nil:
			return 0, rejected
		case err == io.EOF && newest == math.MinInt64:
			return 0, errors.New("the file has no readings")
		case err == io.EOF:
			return newest, nil
		case errors.As(err, &row):
			rejected = cmp.Or(rejected, row)
		case err != nil:
			return 0, err
		default:
			newest = max(newest, reading.TimeUnixMs)
			if visit != nil {
				visit(reading.TimeUnixMs)
			}
		}
	}
}

// newDecoder returns a decoder with the rules of [AnyValue]. If the times are to be shifted,
// it rejects integers that look like seconds.
func newDecoder(signs *vitals.Signs, shifted bool) *vitals.Decoder {
	oldestUnixMs := int64(0)
	if shifted {
		oldestUnixMs = 1
	}
	return vitals.NewDecoder(AnyValue(signs, oldestUnixMs), vitals.DecoderOptions{})
}

// AnyValue returns rules that accept every representable value, and every time from the oldest
// to the clock that a decoder is given. The server decides about plausibility.
func AnyValue(signs *vitals.Signs, oldestUnixMs int64) *vitals.Validator {
	limits := signs.WidestLimits()
	limits.OldestUnixMs = oldestUnixMs
	rules, err := vitals.NewValidator(limits)
	if err != nil {
		panic("recording: " + err.Error()) // the limits are constant
	}
	return rules
}
