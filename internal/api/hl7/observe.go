package hl7

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A place is what is at a position: an OBX, or the two of a blood pressure.
type place struct {
	reading vitals.Reading
	from    origin
	obx     [2]int // ordinals; the second is 0 if there is none
	signs   [2]vitals.Sign
	order   int // of the source, see package codes

	doubt codes.Doubt // with which the device disowns the value; 0 means that it does not

	// If the OBX is rejected: which rule a field breaks. The field is unknown if the rule is about the reading.
	at  location
	err error
}

// An origin is the device and the time of readings, each with its location.
type origin [2]struct {
	text []byte
	at   location
}

// What an origin has.
const (
	theDevice = iota
	theTime
)

// inherit sets what the origin lacks.
func (o *origin) inherit(from *origin) {
	for i := range o {
		if len(o[i].text) == 0 && len(from[i].text) > 0 {
			o[i] = from[i]
		}
	}
}

// A decoder reads the observations of a message.
type decoder struct {
	*Message
	in      *ingest.Intake
	gateway vitals.Name

	obr, obx, prt int // ordinals of the last segments
	orders        int
	order         origin
	structures    int                  // of the order
	structure     map[component]origin // at most 2 * maxStructures
	pending       fields               // the last OBX, if open
	participant   origin               // of PRT after it
	open          bool

	// Segments with bytes whose characters are not known. They reject all readings of the order, the readings of the
	// order that inherit a device or a time, and the pending OBX. The segment is empty if there is none.
	brokenOrder, brokenOrigin, brokenOBX location
	rejections                           int            // of OBX
	halves                               map[half][]int // positions of blood pressures that lack a sign, at most one of each source
}

// A component is a part of a device: an OBX of structure.
type component struct {
	order int
	path  string // OBX-4
}

// A half is a sign that lacks to a blood pressure, and what it must have in common.
type half struct {
	sign   vitals.Sign
	obr    int
	device vitals.Name
	unixMs int64
	group  string // of OBX-4
}

// Decode implements [ingest.Input]. The position of a reading is the number of its OBX, from 0, among the OBX that are
// stored or rejected. The argument message is ignored: a Message has it.
func (m *Message) Decode(_ []byte, in *ingest.Intake) error {
	if m.err == nil {
		m.places, m.unknown, m.dropped = m.places[:0], 0, 0
		d := decoder{Message: m, in: in, gateway: m.gateway(in)}
		ordinal, headers := 0, 0
		for name, segment := range m.segments() {
			ordinal++
			switch d.segment(name, segment); {
			case name == "MSH":
				if headers++; headers == 2 {
					m.at, m.err = location{"MSH", 2, 0}, &rule{segmentSequence, "a second message"}
				}
			case !isName(name):
				m.at, m.err = location{}, &rule{segmentSequence, "segment " + strconv.Itoa(ordinal) + " has no name"}
			}
			if m.err != nil {
				return ingest.Malformed(m.err.reason)
			}
			if len(m.places)+m.dropped > in.MaxReadings {
				return vitals.ErrTooManyReadings
			}
		}
		if d.close(); len(m.places)+m.dropped > in.MaxReadings {
			return vitals.ErrTooManyReadings
		}
		if m.err == nil {
			d.settle()
			codes.LeaveOut(in.Batch, func(i int32) int { return m.places[i].order }, func(i int32) { d.leaveOut(int(i), 0) })
			return nil
		}
	}
	return ingest.Malformed(m.err.reason)
}

// isName reports whether a text is the name of a segment.
func isName(text string) bool {
	return len(text) == 3 && text[0]-'A' <= 'Z'-'A' && isAlphanumeric(text[1]) && isAlphanumeric(text[2]) && text == strings.ToUpper(text)
}

// segment reads a segment.
func (d *decoder) segment(name string, segment []byte) {
	var f fields
	read := name == "PID" || d.reads(segment)
	switch name {
	case "PID":
		d.close()
		d.begin(origin{})
	case "OBR":
		d.close()
		d.split(&f, segment)
		d.obr++
		if d.begin(origin{theTime: {f[7], location{"OBR", d.obr, 7}}}); !read {
			d.brokenOrder = location{"OBR", d.obr, 0}
		}
	case "OBX":
		d.close()
		d.split(&d.pending, segment)
		d.obx++
		if d.participant, d.open = (origin{}), true; !read {
			d.brokenOBX = d.at(0)
		}
	case "PRT":
		d.split(&f, segment)
		d.prt++
		into, broken := &d.order, &d.brokenOrigin
		if d.open {
			into, broken = &d.participant, &d.brokenOBX
		}
		if !read {
			*broken = location{"PRT", d.prt, 0}
		}
		into.inherit(&origin{theDevice: {d.identifier(f[10]), location{"PRT", d.prt, 10}}})
	}
}

// begin begins an order.
func (d *decoder) begin(from origin) {
	if len(d.structure) > maxStructures {
		clear(d.structure) // of earlier orders
	}
	d.orders++
	d.order, d.structures, d.brokenOrder, d.brokenOrigin = from, 0, location{}, location{}
}

// gateway returns the gateway of a message, which need not have one.
func (m *Message) gateway(in *ingest.Intake) vitals.Name {
	if in.Origin != nil && !in.Origin.Gateway.IsZero() {
		return in.Origin.Gateway
	}
	id := m.part(m.msh[3], 2)
	if len(id) == 0 {
		id = m.part(m.msh[3], 1)
	}
	name, _ := vitals.ParseName(id)
	return name
}

// identifier returns the identifier of a device.
func (d *decoder) identifier(field []byte) []byte {
	if id := d.part(field, 1); len(id) > 0 {
		return id
	}
	return d.part(field, 3)
}

// close reads the pending OBX.
func (d *decoder) close() {
	if !d.open || d.err != nil {
		return
	}
	d.open = false
	f := &d.pending
	p := place{obx: [2]int{d.obx}, from: origin{{d.identifier(f[18]), d.at(18)}, {f[14], d.at(14)}}}
	p.from.inherit(&d.participant)
	broken := d.brokenOBX
	if d.brokenOBX = (location{}); broken.segment != "" {
		if len(f[2]) == 0 || len(f[5]) == 0 {
			d.brokenOrigin = broken // it may be the structure above others
		}
		p.at, p.err = broken, errBytes
		d.add(p)
		return
	}
	sign, order, at, err := d.sign(f[3])
	if err == nil && at != 0 && !isChange(f[11]) { // a correction that disowns a value is about a stored one, and stays an error
		p.doubt = d.doubt(f[8])
	}
	leftOut := d.in.LeavesOut(p.doubt)
	if len(f[5]) == 0 && !isChange(f[11]) && !leftOut {
		if path := structural(f[4]); len(path) > 0 && len(p.from[theDevice].text)+len(p.from[theTime].text) > 0 {
			d.addStructure(path, p.from)
		}
		return
	}
	switch {
	case err == nil && at == 0:
		return
	case err == errCode && d.opt.IgnoreUnknown:
		d.unknown++
		return
	}
	p.signs, p.order, p.reading.Gateway = [2]vitals.Sign{sign, sign}, order, d.gateway
	if err == nil && !leftOut {
		at, err = d.read(f, sign, &p.reading)
	}
	if p.at, p.err = d.at(at), err; err == nil {
		p.at, p.err = d.place(f[4], &p)
	}
	if p.err == nil && d.paired(f[4], sign, &p) {
		return
	}
	d.add(p)
}

// add adds a place. Rejected OBX beyond those that the answer names are only counted, because a place takes up more
// memory than the shortest OBX.
func (d *decoder) add(p place) {
	if p.err != nil && !d.in.LeavesOut(p.doubt) {
		if d.rejections++; d.rejections > maxErrors {
			d.dropped++
			return
		}
	}
	d.places = append(d.places, p)
}

// addStructure adds a structure of the order.
func (d *decoder) addStructure(path []byte, from origin) {
	if d.structure == nil {
		d.structure = map[component]origin{}
	}
	key := component{d.orders, string(path)}
	if _, known := d.structure[key]; !known {
		d.structures++
	}
	if d.structure[key] = from; d.structures > maxStructures {
		d.Message.at, d.err = d.at(4), &rule{internalError, "more than " + strconv.Itoa(maxStructures) + " structures"}
	}
}

// at returns the location of a field of the last OBX.
func (d *decoder) at(field int) location { return location{"OBX", d.obx, field} }

// maxStructures bounds the structures of an order.
const maxStructures = 4096

// maxLevels is how many levels OBX-4 may have for readings to inherit.
const maxLevels = 8

// structural returns OBX-4 of structure without the zeros at its end, which stand for lower levels.
func structural(path []byte) []byte {
	if bytes.Count(path, []byte(".")) >= maxLevels {
		return nil
	}
	for bytes.HasSuffix(path, []byte(".0")) {
		path = path[:len(path)-2]
	}
	return path
}

// parent returns the path of the structure that contains the one at path; it is empty if there is none.
func parent(path []byte) []byte {
	return structural(path[:max(bytes.LastIndexByte(path, '.'), 0)])
}

// place sets the device and the time of a reading. It returns the field and the rule that it breaks.
func (d *decoder) place(path []byte, p *place) (at location, err error) {
	inherits := len(p.from[theDevice].text) == 0 || len(p.from[theTime].text) == 0
	for above := parent(path); len(above) > 0; above = parent(above) {
		if structure, ok := d.structure[component{d.orders, string(above)}]; ok {
			p.from.inherit(&structure)
		}
	}
	p.from.inherit(&d.order)
	from, r := &p.from, &p.reading
	switch {
	case d.brokenOrder.segment != "":
		return d.brokenOrder, errBytes
	case d.brokenOrigin.segment != "" && inherits:
		return d.brokenOrigin, errBytes
	}
	if r.TimeUnixMs, r.UTCOffset, err = d.instant(d.part(from[theTime].text, 1)); err != nil {
		return from[theTime].at, err
	}
	var known vitals.Name
	if d.in.Origin != nil {
		known = d.in.Origin.Device
	}
	switch name, broken := vitals.ParseName(from[theDevice].text); {
	case len(from[theDevice].text) > 0 && broken != nil:
		err = broken
	case !name.IsZero() && !known.IsZero() && name != known:
		err = vitals.ErrOrigin
	case !name.IsZero():
		r.Device = name
	case !known.IsZero():
		r.Device = known
	default:
		err = vitals.ErrMissing
	}
	return from[theDevice].at, err
}

// paired reports whether a reading is the second half of a blood pressure, and was added to the first.
func (d *decoder) paired(path []byte, sign vitals.Sign, p *place) bool {
	group := string(path[:max(bytes.LastIndexByte(path, '.'), 0)])
	for _, pair := range vitals.Pairs {
		if sign != pair.High && sign != pair.Low {
			continue
		}
		key := half{sign, d.obr, p.reading.Device, p.reading.TimeUnixMs, group}
		ofSource := func(i int) bool { return d.places[i].order == p.order }
		waiting := d.halves[key]
		n := slices.IndexFunc(waiting, ofSource)
		if n < 0 { // no value of another source, unless one is generic
			n = slices.IndexFunc(waiting, func(i int) bool { return p.order == codes.Generic || d.places[i].order == codes.Generic })
		}
		if n >= 0 {
			value, _ := p.reading.Values.Get(sign)
			first := &d.places[waiting[n]]
			first.reading.Values.Set(sign, value)
			first.doubt = max(first.doubt, p.doubt)
			first.obx[1], first.signs[1] = d.obx, sign
			d.halves[key] = slices.Delete(waiting, n, n+1)
			return true
		}
		if d.halves == nil {
			d.halves = map[half][]int{}
		}
		if key.sign = pair.Low; sign == pair.Low {
			key.sign = pair.High
		}
		if !slices.ContainsFunc(d.halves[key], ofSource) {
			d.halves[key] = append(d.halves[key], len(d.places))
		}
	}
	return false
}

// leaveOut leaves out the values of the place at i.
func (d *decoder) leaveOut(i int, why codes.Doubt) {
	p := &d.places[i]
	for j, ordinal := range p.obx {
		if ordinal > 0 {
			d.in.LeftOut = append(d.in.LeftOut, ingest.LeftOut{
				Index: i, Source: ingest.HL7, Device: p.reading.Device, Field: d.opt.Signs.Field(p.signs[j]), Why: why,
			})
		}
	}
}

// settle passes the readings on.
func (d *decoder) settle() {
	d.in.Claim, d.noPatient = claimOf(d.Message, d.in)
	batch := d.in.Batch
	for i := range d.places {
		p := &d.places[i]
		if d.in.LeavesOut(p.doubt) {
			d.leaveOut(i, p.doubt)
			continue
		}
		field := p.at.name()
		if p.err == nil {
			p.at, p.err = location{}, d.in.Rules.Validate(&p.reading, d.in.NowUnixMs)
			if broken, ok := errors.AsType[*vitals.FieldError](p.err); ok {
				field, p.err = broken.Field, broken.Err
			}
		}
		switch {
		case p.err != nil || d.noPatient == nil || d.noPatient != errPatients && !d.opt.Patients.Assign:
		case !d.in.Covers(&p.reading.Device):
			field, p.err = "device", ingest.ErrNotCovered
		default:
			p.at, field, p.err = location{"PID", 1, 3}, "PID-3", d.noPatient
		}
		if p.err != nil {
			batch.Refused = append(batch.Refused, vitals.FieldError{Index: i, Field: field, Err: p.err})
			continue
		}
		batch.Readings = append(batch.Readings, p.reading)
		batch.Index = append(batch.Index, int32(i))
	}
}
