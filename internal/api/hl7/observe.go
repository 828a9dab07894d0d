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
//
// A message may have as many places as OBX, so they are small. Their readings are in the batch.
type place struct {
	from  [2]location // of the device and the time
	obx   [2]int32    // ordinals; the second is 0 if there is none
	rank  int         // of the source among those of its sign, see package codes
	signs [2]vitals.Sign
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

	obr, obx, prt  int32 // ordinals of the last segments
	orderNumber    int
	ofOrder        origin
	componentCount int                  // of the order
	components     map[component]origin // at most 2 * maxComponents
	pending        fields               // the last OBX, if open
	participant    origin               // of PRT after it
	open           bool

	// If counts is set, OBX are only counted, by what they are half of: nothing, a high or a low pressure.
	counts  bool
	counted [3]int

	ends  []vitals.Reading    // see noteEnd
	endOf map[vitals.Name]int // index of ends

	// Segments with bytes whose characters are not known. They reject all readings of the order, the readings of the
	// order that inherit a device or a time, and the pending OBX. The segment is empty if there is none.
	brokenOrder, brokenOrigin, brokenOBX location
	rejections                           int // of OBX
	// positions of blood pressures of the last OBR that lack a sign, at most one of each source
	halves map[half][]int
}

// A component is a part of a device: an OBX of structure.
type component struct {
	orderNumber int
	path        string // OBX-4
}

// A half is a sign that lacks to a blood pressure, and what it must have in common.
type half struct {
	sign   vitals.Sign
	device vitals.Name
	unixMs int64
	group  string // of OBX-4
}

// Decode implements [ingest.Input]. The position of a reading is the number of its OBX, from 0, among the OBX that are
// stored or rejected. The argument message is ignored: a Message has it.
func (m *Message) Decode(_ []byte, in *ingest.Intake) error {
	if m.err == nil {
		// What is too long is rejected before it takes up memory.
		if bytes.Count(m.text, []byte("OBX")) > in.MaxReadings {
			d := decoder{Message: m, in: in, counts: true}
			if err := d.decode(); err != nil {
				return err
			}
		}
		in.Claim, m.noPatient = claimOf(m, in)
		d := decoder{Message: m, in: in, gateway: m.gateway(in)}
		if err := d.decode(); err != nil {
			return err
		}
		d.settle()
		codes.LeaveOut(in.Batch, func(i int32) int { return m.places[i].rank },
			func(i int32, device vitals.Name) { d.leaveOut(int(i), device, 0) })
		in.Batch.Readings = slices.Insert(in.Batch.Readings, 0, d.ends...)
		in.Batch.Index = slices.Insert(in.Batch.Index, 0, make([]int32, len(d.ends))...)
		return nil
	}
	return ingest.Malformed(m.err.reason)
}

// decode reads the segments.
func (d *decoder) decode() error {
	m, ordinal, headers := d.Message, 0, 0
	m.places, m.unknown, m.dropped = m.places[:0], 0, 0
	clear(m.devices)
	for name, segment := range m.segments() {
		ordinal++
		switch d.segment(name, segment); {
		case name == "MSH":
			if headers++; headers == 2 {
				m.at, m.err = location{segment: inMSH, ordinal: 2}, &rule{segmentSequence, "a second message"}
			}
		case !isName(name):
			m.at, m.err = location{}, &rule{segmentSequence, "segment " + strconv.Itoa(ordinal) + " has no name"}
		}
		if err := d.stops(); err != nil {
			return err
		}
	}
	d.close()
	return d.stops()
}

// stops returns why the message is rejected as a whole, or nil.
func (d *decoder) stops() error {
	switch {
	case d.err != nil:
		return ingest.Malformed(d.err.reason)
	case len(d.places)+d.dropped+d.counted[0]+max(d.counted[1], d.counted[2]) > d.in.MaxReadings:
		return vitals.ErrTooManyReadings
	}
	return nil
}

// isName reports whether a text is the name of a segment.
func isName(text string) bool {
	return len(text) == 3 && text[0]-'A' <= 'Z'-'A' && isAlphanumeric(text[1]) && isAlphanumeric(text[2]) &&
		text == strings.ToUpper(text)
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
		d.halves = nil
		if d.begin(origin{theTime: {f[7], location{inOBR, 7, d.obr}}}); !read {
			d.brokenOrder = location{inOBR, 0, d.obr}
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
		into, broken := &d.ofOrder, &d.brokenOrigin
		if d.open {
			into, broken = &d.participant, &d.brokenOBX
		}
		if !read {
			*broken = location{inPRT, 0, d.prt}
		}
		into.inherit(&origin{theDevice: {d.identifier(f[10]), location{inPRT, 10, d.prt}}})
	}
}

// begin begins an order.
func (d *decoder) begin(from origin) {
	if len(d.components) > maxComponents {
		clear(d.components) // of earlier orders
	}
	d.orderNumber++
	d.ofOrder, d.componentCount, d.brokenOrder, d.brokenOrigin = from, 0, location{}, location{}
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
	from := origin{{d.identifier(f[18]), d.at(18)}, {f[14], d.at(14)}}
	from.inherit(&d.participant)
	p := place{obx: [2]int32{d.obx}}
	broken := d.brokenOBX
	if d.brokenOBX = (location{}); broken.segment != noSegment {
		if len(f[2]) == 0 || len(f[5]) == 0 {
			d.brokenOrigin = broken // it may be the structure above others
		}
		p.at, p.err = broken, errBytes
		d.add(&p, nil)
		return
	}
	sign, rank, at, err := d.sign(f[3])
	// a correction that disowns a value is about a stored one, and stays an error
	if err == nil && at != 0 && !isChange(f[11]) {
		p.doubt = d.doubt(f[8])
	}
	leftOut := d.in.LeavesOut(p.doubt)
	if len(f[5]) == 0 && !isChange(f[11]) && !leftOut {
		if path := structural(f[4]); len(path) > 0 && len(from[theDevice].text)+len(from[theTime].text) > 0 {
			d.addComponent(path, from)
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
	if d.counts {
		d.counted[halfOf(sign, err)]++
		return
	}
	r := vitals.Reading{Gateway: d.gateway}
	p.signs, p.rank = [2]vitals.Sign{sign, sign}, rank
	if err == nil && !leftOut {
		at, err = d.read(f, sign, &r)
	}
	where, misplaced := d.locate(f[4], &from, &r)
	if p.at, p.err = d.at(at), err; err == nil {
		p.at, p.err = where, misplaced
	}
	if p.from = [2]location{from[theDevice].at, from[theTime].at}; p.err == nil && d.paired(f[4], sign, &p, &r) {
		return
	}
	d.add(&p, &r)
}

// halfOf returns the index of decoder.counted for an OBX.
func halfOf(sign vitals.Sign, err error) int {
	for _, pair := range vitals.Pairs {
		switch {
		case err != nil:
		case sign == pair.High:
			return 1
		case sign == pair.Low:
			return 2
		}
	}
	return 0
}

// add adds a place, and its reading unless the OBX is rejected. Rejected OBX beyond those that the answer names are
// only counted, because a place takes up more memory than the shortest OBX.
func (d *decoder) add(p *place, r *vitals.Reading) {
	switch leftOut := d.in.LeavesOut(p.doubt); {
	case d.counts:
		d.counted[0]++
		return
	case p.err == nil || leftOut:
		d.in.Batch.Readings = append(d.in.Batch.Readings, *r)
		d.in.Batch.Index = append(d.in.Batch.Index, int32(len(d.places)))
	case d.rejections == maxErrors:
		d.dropped++
		return
	default:
		d.rejections++
	}
	d.places = append(d.places, *p)
	if r != nil {
		d.noteEnd(r)
	}
}

// noteEnd notes the device of an OBX, and its time, if nobody wears the devices of the message: an assignment of HL7
// ends at the earliest time of its device, whatever becomes of the values, such as those that the device disowns. A
// reading without values says so.
func (d *decoder) noteEnd(r *vitals.Reading) {
	if c := d.in.Claim; c == nil || !c.Assign || c.Unknown || c.Subject != "" {
		return
	}
	end := vitals.Reading{Device: r.Device, TimeUnixMs: r.TimeUnixMs}
	err := d.in.Rules.Validate(&end, d.in.NowUnixMs)
	if !errors.Is(err, vitals.ErrEmpty) || !d.in.Covers(&end.Device) {
		return // of no device, or of no time that is accepted
	}
	if i, known := d.endOf[end.Device]; known {
		d.ends[i].TimeUnixMs = min(d.ends[i].TimeUnixMs, end.TimeUnixMs)
		return
	}
	if d.endOf == nil {
		d.endOf = map[vitals.Name]int{}
	}
	d.endOf[end.Device], d.ends = len(d.ends), append(d.ends, end)
}

// addComponent adds a component of the order's device.
func (d *decoder) addComponent(path []byte, from origin) {
	if d.components == nil {
		d.components = map[component]origin{}
	}
	key := component{d.orderNumber, string(path)}
	if _, known := d.components[key]; !known {
		d.componentCount++
	}
	if d.components[key] = from; d.componentCount > maxComponents {
		d.Message.at, d.err = d.at(4), &rule{internalError, "more than " + strconv.Itoa(maxComponents) + " structures"}
	}
}

// at returns the location of a field of the last OBX.
func (d *decoder) at(field uint8) location { return location{inOBX, field, d.obx} }

// maxComponents bounds the components in an order.
const maxComponents = 4096

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

// locate sets the device and the time of a reading, and adds to from what it inherits. It returns the field and the
// rule that it breaks.
func (d *decoder) locate(path []byte, from *origin, r *vitals.Reading) (at location, err error) {
	inherits := len(from[theDevice].text) == 0 || len(from[theTime].text) == 0
	for above := parent(path); len(above) > 0; above = parent(above) {
		if its, ok := d.components[component{d.orderNumber, string(above)}]; ok {
			from.inherit(&its)
		}
	}
	from.inherit(&d.ofOrder)
	switch {
	case d.brokenOrder.segment != noSegment:
		return d.brokenOrder, errBytes
	case d.brokenOrigin.segment != noSegment && inherits:
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
func (d *decoder) paired(path []byte, sign vitals.Sign, p *place, r *vitals.Reading) bool {
	group := string(path[:max(bytes.LastIndexByte(path, '.'), 0)])
	for _, pair := range vitals.Pairs {
		if sign != pair.High && sign != pair.Low {
			continue
		}
		key := half{sign, r.Device, r.TimeUnixMs, group}
		ofSource := func(i int) bool { return d.places[i].rank == p.rank }
		waiting := d.halves[key]
		n := slices.IndexFunc(waiting, ofSource)
		if n < 0 { // no value of another source, unless one is generic
			n = slices.IndexFunc(waiting, func(i int) bool {
				return p.rank == codes.Generic ||
					d.places[i].rank == codes.Generic
			})
		}
		if n >= 0 {
			value, _ := r.Values.Get(sign)
			first := &d.places[waiting[n]]
			at, _ := slices.BinarySearch(d.in.Batch.Index, int32(waiting[n]))
			d.in.Batch.Readings[at].Values.Set(sign, value)
			first.doubt = max(first.doubt, p.doubt)
			first.obx[1], first.signs[1] = d.obx, sign
			if d.halves[key] = slices.Delete(waiting, n, n+1); len(waiting) == 1 {
				delete(d.halves, key)
			}
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
func (d *decoder) leaveOut(i int, device vitals.Name, why codes.Doubt) {
	p := &d.places[i]
	for j, ordinal := range p.obx {
		if ordinal > 0 {
			d.in.LeftOut = append(d.in.LeftOut, ingest.LeftOut{
				Index: i, Source: ingest.HL7, Device: device, Field: d.opt.Signs.Field(p.signs[j]), Why: why,
			})
		}
	}
}

// settle removes from the batch what is left out or rejected.
func (d *decoder) settle() {
	batch, read, kept := d.in.Batch, 0, 0
	for i := range d.places {
		p := &d.places[i]
		var r vitals.Reading
		if read < len(batch.Index) && int(batch.Index[read]) == i {
			r = batch.Readings[read]
			read++
		}
		if d.in.LeavesOut(p.doubt) {
			d.leaveOut(i, r.Device, p.doubt)
			continue
		}
		field := p.at.name()
		if p.err == nil {
			p.at, p.err = location{}, d.in.Rules.Validate(&r, d.in.NowUnixMs)
			if broken, ok := errors.AsType[*vitals.FieldError](p.err); ok {
				field, p.err = broken.Field, broken.Err
			}
		}
		switch {
		case p.err != nil || d.noPatient == nil || d.noPatient != errPatients && !d.opt.Patients.Assign:
		case !d.in.Covers(&r.Device):
			field, p.err = "device", ingest.ErrNotCovered
		default:
			p.at, field, p.err = atPatient, "PID-3", d.noPatient
		}
		if p.err != nil {
			batch.Refused = append(batch.Refused, vitals.FieldError{Index: i, Field: field, Err: p.err})
			d.keepDevice(i, r.Device)
			continue
		}
		batch.Readings[kept], batch.Index[kept] = r, int32(i)
		kept++
	}
	batch.Readings, batch.Index = batch.Readings[:kept], batch.Index[:kept]
}

// keepDevice keeps the device of a rejected reading, if the answer can name it.
func (d *decoder) keepDevice(i int, device vitals.Name) {
	if device.IsZero() || len(d.devices) == maxErrors {
		return
	}
	if d.devices == nil {
		d.Message.devices = map[int]vitals.Name{}
	}
	d.devices[i] = device
}

// atPatient is the location of the identifiers of a patient.
var atPatient = location{inPID, 3, 1}
