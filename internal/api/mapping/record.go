package mapping

import (
	"errors"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Record is what a message has for one reading, and the shape that fits it.
type Record struct {
	Shape *shape.Shape
	Cells shape.Cells
	Index int // position in the message

	// Stamp is that of [shape.Moment]; nil means that no time of the shape needs it.
	Stamp func(c *shape.Clock) (unixMs int64, offset vitals.UTCOffset, fallback bool, err error)

	// values sets the values of a reading, and Stamp; nil means that they are at the places of the signs.
	values func(r *vitals.Reading) (field string, err error)
}

// Take reads the record into an Intake: its reading is added, or rejected with the field and the reason, and values
// that are none are left out.
func (c *Record) Take(in *ingest.Intake) {
	r, left := vitals.Reading{}, len(in.LeftOut)
	field, err := c.read(in, &r)
	if why, disowned := errors.AsType[*disowned](err); disowned {
		in.LeftOut = in.LeftOut[:left]
		for i := range c.Shape.Signs {
			c.leaveOut(in, &r, c.Shape.Signs[i].Field, why.why)
		}
		return
	}
	if len(in.LeftOut) > left && err == nil && r.Values.IsZero() { // none of the values that it has is one
		return
	}
	if err == nil {
		if broken, ok := errors.AsType[*vitals.FieldError](in.Rules.Validate(&r, in.NowUnixMs)); ok {
			field, err = broken.Field, broken.Err
		}
	}
	if err != nil {
		in.LeftOut = in.LeftOut[:left]
		in.Batch.Refused = append(in.Batch.Refused, vitals.FieldError{Index: c.Index, Field: field, Err: err})
		return
	}
	in.Batch.Readings = append(in.Batch.Readings, r)
	in.Batch.Index = append(in.Batch.Index, int32(c.Index))
}

// Ignore leaves out the record, because a mapping ignores it.
func (c *Record) Ignore(in *ingest.Intake) {
	in.LeftOut = append(in.LeftOut, ingest.LeftOut{Index: c.Index, Source: ingest.Mapping, Ignored: true})
}

func (c *Record) leaveOut(in *ingest.Intake, r *vitals.Reading, field string, why codes.Doubt) {
	in.LeftOut = append(in.LeftOut, ingest.LeftOut{Index: c.Index, Source: ingest.Mapping, Device: r.Device,
		Field: field, Why: why})
}

// read sets the reading.
func (c *Record) read(in *ingest.Intake, r *vitals.Reading) (field string, err error) {
	var from vitals.Origin
	if in.Origin != nil {
		from = *in.Origin
	}
	if field, err = c.Shape.Origin(c.Cells, from, r); err != nil {
		return field, err
	}
	if c.values != nil {
		field, err = c.values(r)
	} else {
		field, err = c.readSigns(in, r)
	}
	if err != nil {
		return field, err
	}
	return "time", c.Shape.When(c.Cells, shape.Moment{NowUnixMs: in.NowUnixMs, Rules: in.Rules, Stamp: c.Stamp}, r)
}

// readSigns sets the values at the places of the signs.
func (c *Record) readSigns(in *ingest.Intake, r *vitals.Reading) (field string, err error) {
	for i := range c.Shape.Signs {
		s := &c.Shape.Signs[i]
		if r.Values.Has(s.Number) { // a heart rate comes before a pulse that is stored as one
			continue
		}
		v, got, err := c.Shape.Value(s, c.Cells)
		switch {
		case err != nil:
			return s.Field, err
		case got == shape.NotValue:
			if n := len(in.LeftOut); n > ingest.ListedPerMessage && in.LeftOut[n-1].Index == c.Index {
				in.LeftOut[n-1].More++ // short texts may be millions
			} else {
				c.leaveOut(in, r, s.Field, codes.NotAvailable)
			}
		case got == shape.Rounded:
			in.Rounded++
			r.Values.Set(s.Number, v)
		case got == shape.Measured:
			r.Values.Set(s.Number, v)
		}
	}
	return "", nil
}
