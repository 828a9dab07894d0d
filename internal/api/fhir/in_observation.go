package fhir

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/vitals"
)

// An observed is what a sent Observation says, except whose device it was.
type observed struct {
	group   group
	order   int // of the source, see package codes
	at      when
	samples []sample // of SampledData; nil means values
	values  vitals.Values
	doubt   codes.Doubt

	// component has the position of the component of each pressure.
	component [2]int8
}

// sign returns the sign of the group, which has one only.
func (o *observed) sign() vitals.Sign { return o.group.sign() }

// A when is a time and its offset from UTC.
type when struct {
	unixMs int64
	offset vitals.UTCOffset
}

// observe converts an Observation. maxSamples bounds the readings of SampledData.
func (p *parser) observe(r *sentResource, maxSamples int) (o observed, fault *fieldFault) {
	var ok bool
	if o.group, o.order, ok = groupFor(p.codes, r.code); !ok {
		if r.code == meansMean {
			return o, &fieldFault{"code", "mean pressure, which Pulsegate does not store"}
		}
		return o, &fieldFault{"code", "not a vital sign that Pulsegate stores, or it has several codes of which one is not"}
	}
	if r.fault != nil {
		return o, r.fault
	}
	if !r.final {
		return o, &fieldFault{"status", "not final: Pulsegate stores final values only, and never changes them"}
	}
	if fault := o.setTime(&r.effective); fault != nil {
		return o, fault
	}
	if o.doubt = r.doubt; p.leavesOut(o.doubt) {
		return o, nil
	}
	if o.group == bloodPressure {
		return o, o.setPressures(p, r)
	}
	if len(r.components) > 0 {
		return o, &fieldFault{componentPath(0, ""), notStored}
	}
	sign := p.codes.Signs.Of(o.sign())
	switch {
	case r.hasValue && r.hasSampled:
		return o, &fieldFault{"value[x]", "given twice"}
	case r.hasSampled:
		if n := bytes.Count(r.sampled.data, []byte(" ")) + 1; n <= maxSamples {
			p.samples += n
		}
		return o, o.setSamples(&r.sampled, &r.effective, sign, maxSamples)
	case !r.hasValue:
		return o, &fieldFault{"valueQuantity", "missing"}
	}
	return o, o.set(o.sign(), sign, &r.value).in("valueQuantity.")
}

// setTime sets the time, or that of the first sample.
func (o *observed) setTime(e *effective) *fieldFault {
	if e.field == "" {
		return &fieldFault{"effectiveDateTime", "missing"}
	}
	if len(e.start) == 0 {
		return &fieldFault{e.field, "missing"}
	}
	var err error
	o.at.unixMs, o.at.offset, err = vitals.ParseRFC3339(e.start)
	switch {
	case errors.Is(err, vitals.ErrTimeZone):
		return &fieldFault{e.field, "no zone"}
	case err != nil:
		return &fieldFault{e.field, "not a date and time with seconds and a zone, such as 2026-11-21T10:00:00.123+01:00"}
	}
	return nil
}

// setPressures sets the values of the components of a blood pressure.
func (o *observed) setPressures(p *parser, r *sentResource) *fieldFault {
	if r.hasValue || r.hasSampled {
		return &fieldFault{"value[x]", "a blood pressure has components only"}
	}
	for i := range r.components {
		c := &r.components[i]
		sign, ok := signFor(p.codes, c.code)
		switch {
		case c.code == meansMean:
			return &fieldFault{componentPath(i, ""), "mean pressure, which is " + notStored}
		case !ok:
			return &fieldFault{componentPath(i, ""), notStored}
		case c.fault != nil:
			return c.fault.in(componentPath(i, "."))
		case p.leavesOut(c.doubt): // and the other pressure, too
			o.doubt = max(o.doubt, c.doubt)
			continue
		case !c.hasValue:
			return &fieldFault{componentPath(i, ".valueQuantity"), "missing"}
		case o.values.Has(sign):
			return &fieldFault{componentPath(i, ""), "given twice"}
		}
		o.component[sign] = int8(i) // below maxParts
		if fault := o.set(sign, p.codes.Signs.Of(sign), &c.value); fault != nil {
			return fault.in(componentPath(i, ".valueQuantity."))
		}
	}
	if p.leavesOut(o.doubt) {
		return nil
	}
	if !o.values.Has(vitals.Systolic) || !o.values.Has(vitals.Diastolic) {
		return &fieldFault{"component", "needs a systolic and a diastolic pressure"}
	}
	return nil
}

// componentPath returns the path of a part of a component.
func componentPath(i int, part string) string { return "component[" + strconv.Itoa(i) + "]" + part }

// set sets the value of a sign exactly, or not at all.
func (o *observed) set(sign vitals.Sign, d *vitals.Definition, q *quantity) *fieldFault {
	if fault := q.check(d); fault != nil {
		return fault
	}
	v, err := d.Parse(q.value)
	if err != nil {
		return &fieldFault{"value", reasonOf(err)}
	}
	o.values.Set(sign, v)
	return nil
}

// check checks everything about a quantity but its value.
func (q *quantity) check(d *vitals.Definition) *fieldFault {
	switch {
	case q.comparator:
		return &fieldFault{"comparator", "a bound is not a value"}
	case q.value == nil:
		return &fieldFault{"value", "missing"}
	case string(q.system) != ucum:
		return &fieldFault{"system", "not " + ucum}
	case string(q.code) != d.Unit:
		return &fieldFault{"code", "not " + d.Unit + "; Pulsegate does not convert units"}
	}
	return nil
}

// reasonOf returns the reason of a rule of package vitals.
func reasonOf(err error) string {
	broken := vitals.FieldError{Err: err}
	return broken.Reason()
}
