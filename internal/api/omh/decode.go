package omh

import (
	"bytes"
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/strictjson"
	"github.com/pulsegate/pulsegate/vitals"
)

// Form is the form of POST /v1/omh: a data point, or an array of them. The answers are those of
// POST /v1/readings.
func Form(*http.Request) ingest.Input { return input{} }

type input struct{}

// Decode implements [ingest.Input].
func (input) Decode(body []byte, in *ingest.Intake) error {
	if err := strictjson.CheckSize(body); err != nil {
		return err
	}
	r := strictjson.NewReader(body)
	tooMany := false
	point := func() {
		index := in.Batch.Len()
		if index == in.MaxReadings {
			tooMany = true
			r.Skip()
			return
		}
		p := point{Reader: r}
		field, err := p.read(in)
		if err != nil {
			in.Batch.Refused = append(in.Batch.Refused, vitals.FieldError{Index: index, Field: field, Err: err})
			return
		}
		in.Batch.Readings = append(in.Batch.Readings, p.reading)
		in.Batch.Index = append(in.Batch.Index, int32(index))
	}
	if r.Kind() == jsontext.KindBeginArray {
		r.Array(point)
	} else {
		in.Batch.Shape = vitals.Single
		point()
	}
	switch err := r.End(); {
	case err != nil:
		return err
	case tooMany:
		return vitals.ErrTooManyReadings
	}
	return nil
}

// A point is a data point that is being read.
type point struct {
	*strictjson.Reader
	reading vitals.Reading

	// The first member that cannot be accepted, and why.
	field string
	err   error

	schema           [3]string // namespace, name and version
	hasUUID, created bool
	hasTime          bool
	resting          bool
	values           []value
	known            []string // members of body that only some schemas have
}

// A value is a member of body with value and unit.
type value struct {
	member       string
	number, unit []byte
}

// Reasons for which a data point is refused. Their texts are sent to the client.
var (
	errNotStored = errors.New("not stored; send the data point without it")
	errSchema    = errors.New(
		"not blood-pressure 4.0, oxygen-saturation 2.0, heart-rate 2.0, respiratory-rate 2.0, body-temperature 4.0, " +
			"body-weight 3.0 or blood-glucose 4.0 of omh")
	errDevice     = errors.New("no datasheet_reference names the device as " + deviceURN + "NAME")
	errTwice      = errors.New("given twice")
	errSelf       = errors.New("not sensed")
	errInterval   = errors.New("not a date_time; intervals are not stored")
	errUnit       = errors.New("not the unit of the schema; units are not converted")
	errMember     = errors.New("not a member of the schema")
	errRelation   = errors.New("not at rest; other relationships are not stored")
	errMethod     = errors.New("not pulse oximetry")
	errSystem     = errors.New("not peripheral capillary")
	errWrongKind  = errors.New("the value of a member has the wrong type")
	errNotObject  = vitals.ErrNotObject
	errIncomplete = vitals.ErrMissing
)

func (p *point) refuse(field string, err error) {
	if p.err == nil {
		p.field, p.err = field, err
	}
}

// read reads the data point, and returns why it is refused.
func (p *point) read(in *ingest.Intake) (field string, err error) {
	if p.Kind() != jsontext.KindBeginObject {
		p.Skip()
		return "", errNotObject
	}
	p.Object(func(name []byte) {
		switch string(name) {
		case "header":
			p.header()
		case "body":
			p.body()
		default:
			p.Skip()
			p.refuse("", errNotStored)
		}
	})
	if member, _ := p.Wrong(); member != "" {
		p.refuse("", errWrongKind)
	}
	if p.err == nil {
		p.finish()
	}
	if p.err != nil {
		return p.field, p.err
	}
	if err := in.Rules.Validate(&p.reading, in.NowUnixMs); err != nil {
		broken := err.(*vitals.FieldError)
		return broken.Field, broken.Err
	}
	return "", nil
}

func (p *point) header() {
	p.Object(func(name []byte) {
		switch string(name) {
		case "uuid":
			p.hasUUID = len(p.Text()) > 0
		case "source_creation_date_time":
			p.created = len(p.Text()) > 0
		case "schema_id":
			p.schemaID()
		case "modality":
			if string(p.Text()) != sensed {
				p.refuse("header.modality", errSelf)
			}
		case "external_datasheets":
			p.Array(p.datasheet)
		default:
			p.Skip()
			p.refuse("header", errNotStored)
		}
	})
}

func (p *point) schemaID() {
	p.Object(func(name []byte) {
		i := slices.Index([]string{"namespace", "name", "version"}, string(name))
		if i < 0 {
			p.Skip()
			p.refuse("header.schema_id", errNotStored)
			return
		}
		p.schema[i] = string(p.Text())
	})
}

// datasheet reads a datasheet: that of the device, or of the gateway.
func (p *point) datasheet() {
	var reference []byte
	p.Object(func(name []byte) {
		switch string(name) {
		case "datasheet_reference":
			reference = p.Text()
		case "datasheet_type":
			p.Text()
		default:
			p.Skip()
			p.refuse("header.external_datasheets", errNotStored)
		}
	})
	const field = "header.external_datasheets"
	into := &p.reading.Device
	text, ok := bytes.CutPrefix(reference, []byte(deviceURN))
	if !ok {
		into = &p.reading.Gateway
		if text, ok = bytes.CutPrefix(reference, []byte(gatewayURN)); !ok {
			p.refuse(field, errNotStored)
			return
		}
	}
	name, err := vitals.ParseName(text)
	switch {
	case err != nil:
		p.refuse(field, err)
	case !into.IsZero():
		p.refuse(field, errTwice)
	}
	*into = name
}

func (p *point) body() {
	p.Object(func(name []byte) {
		switch member := string(name); member {
		case "effective_time_frame":
			p.timeFrame()
		case "temporal_relationship_to_physical_activity":
			p.resting = string(p.Text()) == atRest
			p.known = append(p.known, "heart-rate")
			if !p.resting {
				p.refuse("body.temporal_relationship_to_physical_activity", errRelation)
			}
		case "system":
			p.known = append(p.known, "oxygen-saturation")
			if string(p.Text()) != peripheral {
				p.refuse("body.system", errSystem)
			}
		case "measurement_method":
			p.known = append(p.known, "oxygen-saturation")
			if string(p.Text()) != oximetry {
				p.refuse("body.measurement_method", errMethod)
			}
		default:
			if slices.ContainsFunc(schemas[:], func(s schema) bool { return slices.Contains(s.members, member) }) {
				p.value(member)
				return
			}
			p.Skip()
			p.refuse("body", errNotStored)
		}
	})
}

func (p *point) value(member string) {
	v := value{member: member}
	p.Object(func(name []byte) {
		switch string(name) {
		case "value":
			v.number = p.Number()
		case "unit":
			v.unit = p.Text()
		default:
			p.Skip()
			p.refuse("body."+member, errNotStored)
		}
	})
	p.values = append(p.values, v)
}

const timeField = "body.effective_time_frame.date_time"

func (p *point) timeFrame() {
	p.Object(func(name []byte) {
		if string(name) != "date_time" {
			p.Skip()
			p.refuse("body.effective_time_frame", errInterval)
			return
		}
		text := p.Text()
		var err error
		if p.reading.TimeUnixMs, p.reading.UTCOffset, err = vitals.ParseRFC3339(text); err != nil {
			p.refuse(timeField, err)
		}
		p.hasTime = true
	})
}

// finish checks the data point as a whole, and sets the values of the reading.
func (p *point) finish() {
	fits := func(s schema) bool {
		return p.schema == [3]string{namespace, s.name, s.version} && (!p.resting || s.signs[0] == vitals.RestingHeartRate)
	}
	i := slices.IndexFunc(schemas[:], fits)
	if len(p.values) > 0 { // a schema may have two units, each of which is a sign
		i = max(i, slices.IndexFunc(schemas[:], func(s schema) bool { return fits(s) && s.unit == string(p.values[0].unit) }))
	}
	switch {
	case i < 0 && p.resting && p.schema[1] == "respiratory-rate":
		p.refuse("body.temporal_relationship_to_physical_activity", errNotStored)
		return
	case i < 0 && !p.resting, p.schema[0] != namespace:
		p.refuse("header.schema_id", errSchema)
		return
	case i < 0:
		p.refuse("body.temporal_relationship_to_physical_activity", errMember)
		return
	case !p.hasUUID:
		p.refuse("header.uuid", errIncomplete)
	case !p.created:
		p.refuse("header.source_creation_date_time", errIncomplete)
	case p.reading.Device.IsZero():
		p.refuse("header.external_datasheets", errDevice)
	case !p.hasTime:
		p.refuse(timeField, errIncomplete)
	}
	s := &schemas[i]
	for _, name := range p.known {
		if name != s.name {
			p.refuse("body", errMember)
		}
	}
	for _, v := range p.values {
		j := slices.Index(s.members, v.member)
		if j < 0 {
			p.refuse("body."+v.member, errMember)
			return
		}
		sign := vitals.BuiltIn(s.signs[j])
		number, err := sign.Parse(v.number)
		switch {
		case v.number == nil:
			p.refuse("body."+v.member+".value", errIncomplete)
		case err != nil:
			p.refuse("body."+v.member+".value", err)
		case string(v.unit) != s.unit:
			p.refuse("body."+v.member+".unit", errUnit)
		}
		p.reading.Values.Set(s.signs[j], number)
	}
	for j, sign := range s.signs {
		if !p.reading.Values.Has(sign) {
			p.refuse("body."+s.members[j], errIncomplete)
		}
	}
}
