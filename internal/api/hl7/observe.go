package hl7

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Rules of an OBX.
var (
	errPatient  = &rule{valueNotFound, "not 1 to 64 of A-Z, a-z, 0-9, hyphen and dot"}
	errPatients = &rule{valueNotFound, "the message has several patients"}
	errType     = &rule{wrongType, "not NM; only numbers are stored"}
	errCode     = &rule{valueNotFound, "not a code of a sign in MDC or LN"}
	errCodes    = &rule{valueNotFound, "the codes are of different signs"}
	errSeveral  = &rule{wrongType, "several values"}
	errNumber   = &rule{wrongType, "not a number"}
	errUnit     = &rule{valueNotFound, "not the unit of the sign; units are not converted"}
	errDisowned = &rule{valueNotFound, "no signal: the device marks the value as invalid, or as not measured on the patient"}
	errStatus   = &rule{valueNotFound, "neither R nor F; other results are not stored"}
	errTime     = &rule{wrongType, "not a time such as 20060102150405.000+0100"}
	errCoarse   = &rule{wrongType, "coarser than a second; times are not guessed"}
	errFine     = &rule{wrongType, "finer than a millisecond; times are not rounded"}
)

// A place is what is at a position: an OBX, or the two of a blood pressure.
type place struct {
	reading vitals.Reading
	from    origin
	obx     [2]int // ordinals; the second is 0 if there is none
	signs   [2]vitals.Sign

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
	order         origin
	structure     map[string]origin // of the order, by OBX-4
	pending       fields            // the last OBX, if open
	participant   origin            // of PRT after it
	open          bool
	halves        map[half]int // positions of blood pressures that lack a sign
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
		m.places = m.places[:0]
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
			if len(m.places) > in.MaxReadings {
				return vitals.ErrTooManyReadings
			}
		}
		if d.close(); len(m.places) > in.MaxReadings {
			return vitals.ErrTooManyReadings
		}
		if m.err == nil {
			d.settle()
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
	switch name {
	case "PID":
		d.close()
		d.order, d.structure = origin{}, nil
	case "OBR":
		d.close()
		d.split(&f, segment)
		d.obr++
		d.order, d.structure = origin{theTime: {f[7], location{"OBR", d.obr, 7}}}, nil
	case "OBX":
		d.close()
		d.split(&d.pending, segment)
		d.obx++
		d.participant, d.open = origin{}, true
	case "PRT":
		d.split(&f, segment)
		d.prt++
		into := &d.order
		if d.open {
			into = &d.participant
		}
		into.inherit(&origin{theDevice: {d.identifier(f[10]), location{"PRT", d.prt, 10}}})
	}
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
func (m *Message) identifier(field []byte) []byte {
	if id := m.part(field, 1); len(id) > 0 {
		return id
	}
	return m.part(field, 3)
}

// close reads the pending OBX.
func (d *decoder) close() {
	if !d.open {
		return
	}
	d.open = false
	f := &d.pending
	p := place{obx: [2]int{d.obx}, from: origin{{d.identifier(f[18]), d.at(18)}, {f[14], d.at(14)}}}
	p.from.inherit(&d.participant)
	if len(f[5]) == 0 && !isChange(f[11]) {
		if path := structural(f[4]); len(path) > 0 && len(p.from[theDevice].text)+len(p.from[theTime].text) > 0 {
			if d.structure == nil {
				d.structure = map[string]origin{}
			}
			d.structure[string(path)] = p.from
		}
		return
	}
	sign, at, err := d.sign(f[3])
	if err == nil && at == 0 || err == errCode && d.opt.IgnoreUnknown {
		return
	}
	p.signs, p.reading.Gateway = [2]vitals.Sign{sign, sign}, d.gateway
	if err == nil {
		at, err = d.read(f, sign, &p.reading)
	}
	if p.at, p.err = d.at(at), err; err == nil {
		p.at, p.err = d.place(f[4], &p)
	}
	if p.err == nil && d.paired(f[4], sign, &p) {
		return
	}
	d.places = append(d.places, p)
}

// at returns the location of a field of the last OBX.
func (d *decoder) at(field int) location { return location{"OBX", d.obx, field} }

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

// sign returns the sign of OBX-3, or the field and the rule that it breaks. Both are zero if OBX-3 is not the code of a
// measurement.
func (d *decoder) sign(field []byte) (sign vitals.Sign, at int, err error) {
	found := false
	for _, first := range []int{1, 4} { // the code, and an alternate one
		code, system := d.part(field, first), d.part(field, first+2)
		var its vitals.Sign
		var ok bool
		switch string(system) {
		case "MDC":
			if n, err := strconv.ParseUint(string(code), 10, 32); err == nil && (n>>16 == 1 || n>>16 == 8) {
				return 0, 0, nil
			}
			its, ok = codes.MDC(code)
		case "LN":
			its, ok = codes.LOINC(d.opt.Signs, string(code))
		default:
			continue
		}
		switch {
		case !ok:
			return 0, 3, errCode
		case found && its != sign:
			return 0, 3, errCodes
		}
		sign, found = its, true
	}
	if !found {
		return 0, 3, errCode
	}
	return sign, 3, nil
}

// disowning has the flags of OBX-8 with which a device disowns a value: invalid, not available, calibrating, data of a
// test and of a demonstration.
var disowning = []string{"INV", "NAV", "CALIB", "TEST", "DEMO"}

// read sets the value of an OBX. It returns the field and the rule that it breaks.
func (d *decoder) read(f *fields, sign vitals.Sign, r *vitals.Reading) (at int, err error) {
	definition := d.opt.Signs.Of(sign)
	number, ok := appendNumber(nil, f[5])
	switch {
	case len(f[11]) == 0:
		return 11, vitals.ErrMissing
	case string(f[11]) != "R" && string(f[11]) != "F":
		return 11, errStatus
	case string(f[2]) != "NM":
		return 2, errType
	case bytes.IndexByte(f[5], d.repetition) >= 0:
		return 5, errSeveral
	case !ok:
		return 5, errNumber
	case len(f[6]) == 0:
		return 6, vitals.ErrMissing
	case !d.hasUnit(f[6], definition.Unit):
		return 6, errUnit
	}
	for flag := range bytes.SplitSeq(f[8], []byte{d.repetition}) {
		for _, no := range disowning {
			if string(d.part(flag, 1)) == no {
				return 8, errDisowned
			}
		}
	}
	value, err := definition.Parse(number)
	if err == nil {
		r.Values.Set(sign, value)
	}
	return 5, err
}

// isChange reports whether OBX-11 says that an OBX changes what was sent before: a correction, a deletion, another status
// or a mistake.
func isChange(status []byte) bool { return len(status) == 1 && bytes.Contains([]byte("CDUW"), status) }

// appendNumber appends a number with the spelling of JSON, which has a digit on both sides of a point, no plus sign and
// no zeros in front. It returns false if text is not a number of HL7.
func appendNumber(dst, text []byte) ([]byte, bool) {
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		if text[0] == '-' {
			dst = append(dst, '-')
		}
		text = text[1:]
	}
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	if len(whole)+len(fraction) == 0 || !isDigits(whole) || !isDigits(fraction) {
		return dst, false
	}
	if whole = bytes.TrimLeft(whole, "0"); len(whole) == 0 {
		whole = []byte("0")
	}
	dst = append(dst, whole...)
	if len(fraction) > 0 {
		dst = append(append(dst, '.'), fraction...)
	}
	return dst, true
}

func isDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// hasUnit reports whether OBX-6 is a unit. If it has an alternate code, both must be of the unit.
func (d *decoder) hasUnit(field []byte, unit string) bool {
	found := false
	for _, first := range []int{1, 4} {
		code, system := d.part(field, first), d.part(field, first+2)
		var its string
		switch string(system) {
		case "MDC":
			its, _ = codes.MDCUnit(code)
		case "UCUM", "":
			if its = string(code); its == "" {
				continue
			}
			if !strings.Contains(unit, "{") {
				its = withoutAnnotations(its)
			}
		default:
			continue
		}
		if its != unit {
			return false
		}
		found = true
	}
	return found
}

// withoutAnnotations returns a UCUM code without what is in braces, which does not change a unit.
func withoutAnnotations(code string) string {
	for {
		before, rest, open := strings.Cut(code, "{")
		_, after, closed := strings.Cut(rest, "}")
		if !open || !closed {
			return code
		}
		code = before + after
	}
}

// place sets the device and the time of a reading. It returns the field and the rule that it breaks.
func (d *decoder) place(path []byte, p *place) (at location, err error) {
	for above := parent(path); len(above) > 0; above = parent(above) {
		if structure, ok := d.structure[string(above)]; ok {
			p.from.inherit(&structure)
		}
	}
	p.from.inherit(&d.order)
	from, r := &p.from, &p.reading
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

// cutOffset cuts the offset off the end of a time.
func cutOffset(text []byte) (local, offset []byte) {
	if i := len(text) - len("+0100"); i >= 0 && (text[i] == '+' || text[i] == '-') && isDigits(text[i+1:]) {
		return text[:i], text[i:]
	}
	return text, nil
}

// instant returns the instant of a time.
func (m *Message) instant(text []byte) (unixMs int64, offset vitals.UTCOffset, err error) {
	const second = len("20060102150405")
	local, zone := cutOffset(text)
	if len(zone) == 0 {
		zone = m.zone
	}
	whole, fraction, point := bytes.Cut(local, []byte("."))
	switch {
	case len(text) == 0:
		return 0, 0, vitals.ErrMissing
	case !point && len(whole) < second && len(whole) >= len("2006") && isDigits(whole):
		return 0, 0, errCoarse
	case len(text) > vitals.MaxTimeBytes, len(whole) != second, !isDigits(whole), !isDigits(fraction), point != (len(fraction) > 0):
		return 0, 0, errTime
	case len(fraction) > 3 && len(bytes.TrimRight(fraction[3:], "0")) > 0:
		return 0, 0, errFine
	}
	w, hasZone := string(local), len(zone) > 0
	rfc := w[:4] + "-" + w[4:6] + "-" + w[6:8] + "T" + w[8:10] + ":" + w[10:12] + ":" + w[12:]
	if hasZone {
		rfc += string(zone[:3]) + ":" + string(zone[3:])
	} else {
		rfc += "Z"
	}
	unixMs, offset, err = vitals.ParseRFC3339(rfc)
	switch {
	case err != nil:
		return 0, 0, errTime
	case hasZone:
		return unixMs, offset, nil
	case m.opt.Zone == nil:
		return 0, 0, vitals.ErrTimeZone
	}
	return localtime.Instant(time.UnixMilli(unixMs).UTC(), m.opt.Zone)
}

// paired reports whether a reading is the second half of a blood pressure, and was added to the first.
func (d *decoder) paired(path []byte, sign vitals.Sign, p *place) bool {
	group := string(path[:max(bytes.LastIndexByte(path, '.'), 0)])
	for _, pair := range vitals.Pairs {
		if sign != pair.High && sign != pair.Low {
			continue
		}
		key := half{sign, d.obr, p.reading.Device, p.reading.TimeUnixMs, group}
		if i, ok := d.halves[key]; ok {
			value, _ := p.reading.Values.Get(sign)
			first := &d.places[i]
			first.reading.Values.Set(sign, value)
			first.obx[1], first.signs[1] = d.obx, sign
			delete(d.halves, key)
			return true
		}
		if d.halves == nil {
			d.halves = map[half]int{}
		}
		if key.sign = pair.Low; sign == pair.Low {
			key.sign = pair.High
		}
		if _, waits := d.halves[key]; !waits {
			d.halves[key] = len(d.places)
		}
	}
	return false
}

// settle passes the readings on.
func (d *decoder) settle() {
	var patient storage.Subject
	var unknown error
	if d.opt.Assign != nil {
		patient, unknown = d.Subject()
	}
	batch := d.in.Batch
	for i := range d.places {
		p := &d.places[i]
		field := p.at.name()
		if p.err == nil {
			p.at, p.err = location{}, d.in.Rules.Validate(&p.reading, d.in.NowUnixMs)
			if broken, ok := errors.AsType[*vitals.FieldError](p.err); ok {
				field, p.err = broken.Field, broken.Err
			}
		}
		switch {
		case p.err != nil || patient == "" && unknown == nil:
		case !d.in.Covers(&p.reading.Device):
			field, p.err = "device", ingest.ErrNotCovered
		default:
			p.at, field, p.err = location{"PID", 1, 3}, "PID-3", unknown
			if unknown == nil {
				p.err = d.opt.Assign(d.in, &p.reading, patient)
			}
		}
		if p.err != nil {
			batch.Refused = append(batch.Refused, vitals.FieldError{Index: i, Field: field, Err: p.err})
			continue
		}
		batch.Readings = append(batch.Readings, p.reading)
		batch.Index = append(batch.Index, int32(i))
	}
}
