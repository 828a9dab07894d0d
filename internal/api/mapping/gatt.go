package mapping

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// A gattCharacteristic is a characteristic of Bluetooth's Generic Attribute Profile. Flags, fields and their units are
// those of the GATT Specification Supplement (https://www.bluetooth.com/specifications/gss/) and of the services' own
// specifications: Blood Pressure 1.1, Heart Rate 1.0, Pulse Oximeter 1.0, Health Thermometer 1.0 and Weight Scale 1.0.
type gattCharacteristic struct {
	parts   map[string][]string // units (UCUM), by the name of the part
	stamped bool                // it may have a time stamp
	decode  func(*measurement)
}

// characteristics has the characteristics that are decoded, by their assigned numbers. It is never modified.
var characteristics = map[string]*gattCharacteristic{
	"2A35": {map[string][]string{"systolic": {mmHg, kPa}, "diastolic": {mmHg, kPa}, "mean_arterial": {mmHg, kPa},
		"pulse_rate": {perMinute}}, true, bloodPressure},
	"2A37": {map[string][]string{"heart_rate": {perMinute}}, false, heartRate},
	"2A5E": {map[string][]string{"spo2": {percent}, "pulse_rate": {perMinute}, "pulse_amplitude": {percent}},
		true, spotCheck},
	"2A5F": {map[string][]string{"spo2": {percent}, "pulse_rate": {perMinute}, "spo2_fast": {percent},
		"pulse_rate_fast": {perMinute},
		"spo2_slow":       {percent}, "pulse_rate_slow": {perMinute}, "pulse_amplitude": {percent}}, false, continuous},
	"2A1C": {map[string][]string{"temperature": {celsius, fahrenheit}}, true, temperature},
	"2A9D": {map[string][]string{"weight": {kilogram, pound}, "bmi": {"kg/m2"}, "height": {"m", "[in_i]"}}, true, weight},
}

// Units.
const (
	mmHg, kPa, perMinute, percent        = "mm[Hg]", "kPa", "/min", "%"
	celsius, fahrenheit, kilogram, pound = "Cel", "[degF]", "kg", "[lb_av]"
)

// maxAttributeBytes is the longest value of an attribute (Bluetooth Core, Vol 3, Part F, 3.2.9).
const maxAttributeBytes = 512

var (
	errNotHex    = errors.New("not a characteristic in hex")
	errNotBase64 = errors.New("not a characteristic in base64")
	errShort     = errors.New("the characteristic is shorter than its flags say")
	errRest      = errors.New("the characteristic is longer than its flags say")
	errReserved  = errors.New("the characteristic has flags that are reserved")
	errNoDate    = errors.New("the time stamp has no date")
	errNoTime    = errors.New("the time stamp is no date and time")
	errClock     = errors.New("the clock of the device is not set")
)

// unconnected has the bits of a pulse oximeter's device and sensor status with which there is no value: the sensor
// has no contact with the skin, or is disconnected.
const unconnected = 1<<11 | 1<<15

// A measurement is what a characteristic says. Its decoder takes its bytes from rest.
type measurement struct {
	rest  []byte
	err   error // the first one
	doubt codes.Doubt
	parts []part
	stamp []byte // date and time; nil means none
	clock bool   // it is not set
	user  int    // unknownUser if there is none
}

// A part is the number mantissa × 10^exponent.
type part struct {
	name, unit         string
	mantissa, exponent int
}

const unknownUser = 255

func (m *measurement) refuse(err error) {
	if m.err == nil {
		m.err = err
	}
}

// disown notes a doubt about the values.
func (m *measurement) disown(d codes.Doubt) { m.doubt = max(m.doubt, d) }

// take returns the next bytes: n, which are 0 if there are fewer.
func (m *measurement) take(n int) []byte {
	if len(m.rest) < n {
		m.refuse(errShort)
		m.rest = nil
		return make([]byte, n)
	}
	b := m.rest[:n]
	m.rest = m.rest[n:]
	return b
}

func (m *measurement) uint16() int { return int(binary.LittleEndian.Uint16(m.take(2))) }

// flags returns a byte of flags, of which the bits of known have a meaning.
func (m *measurement) flags(known byte) byte {
	f := m.take(1)[0]
	if f&^known != 0 {
		m.refuse(errReserved)
	}
	return f
}

// isSpecial reports whether a SFLOAT or FLOAT (IEEE 11073-20601) is no value, as its mantissa, which is at most most,
// says: not a number, not at this resolution, +∞, −∞, or a reserved one.
func isSpecial(mantissa, exponent, most int) bool {
	return exponent == 0 && (mantissa >= most-1 || mantissa <= 1-most)
}

// parseSFLOAT returns the number of a 16-bit SFLOAT, a mantissa of 12 bits and an exponent of 4, both signed.
func parseSFLOAT(bits uint16) (mantissa, exponent int, ok bool) {
	mantissa, exponent = int(int16(bits<<4)>>4), int(int16(bits)>>12)
	return mantissa, exponent, !isSpecial(mantissa, exponent, 1<<11-1)
}

// parseFLOAT returns the number of a 32-bit FLOAT, a mantissa of 24 bits and an exponent of 8, both signed.
func parseFLOAT(bits uint32) (mantissa, exponent int, ok bool) {
	mantissa, exponent = int(int32(bits<<8)>>8), int(int32(bits)>>24)
	return mantissa, exponent, !isSpecial(mantissa, exponent, 1<<23-1)
}

func (m *measurement) sfloat(name, unit string) {
	if mantissa, exponent, ok := parseSFLOAT(uint16(m.uint16())); ok {
		m.parts = append(m.parts, part{name, unit, mantissa, exponent})
	}
}

// time takes a date and time.
func (m *measurement) time() { m.stamp = m.take(7) }

// choose returns one of two units.
func choose(second bool, units ...string) string {
	if second {
		return units[1]
	}
	return units[0]
}

// Names of parts, which mappings have.
const (
	pulseRate = "pulse_rate"
	spo2      = "spo2"
	fast      = "_fast"
	slow      = "_slow"
)

func bloodPressure(m *measurement) {
	flags := m.flags(0x1F)
	unit := choose(flags&1 != 0, mmHg, kPa)
	for _, name := range []string{"systolic", "diastolic", "mean_arterial"} {
		m.sfloat(name, unit)
	}
	if flags&2 != 0 {
		m.time()
	}
	if flags&4 != 0 {
		m.sfloat(pulseRate, perMinute)
	}
	if flags&8 != 0 {
		m.user = int(m.take(1)[0])
	}
	if flags&16 != 0 {
		m.take(2) // movement, fit of the cuff, irregular pulse, position: no values
	}
}

func heartRate(m *measurement) {
	flags := m.flags(0x1F)
	bpm := 0
	if flags&1 != 0 {
		bpm = m.uint16()
	} else {
		bpm = int(m.take(1)[0])
	}
	if flags&6 == 4 {
		m.disown(codes.NotAvailable) // no contact with the skin
	}
	m.parts = append(m.parts, part{"heart_rate", perMinute, bpm, 0})
	if flags&8 != 0 {
		m.take(2) // energy expended
	}
	if flags&16 != 0 {
		m.take(len(m.rest) &^ 1) // intervals in 1/1024 s, which are no decimals
	}
}

func (m *measurement) oximetry(suffix string) {
	m.sfloat(spo2+suffix, percent)
	m.sfloat(pulseRate+suffix, perMinute)
}

// oximeterStatus takes the status fields, and the pulse amplitude index.
func (m *measurement) oximeterStatus(measured, sensor, amplitude bool) {
	if measured {
		m.disown(codes.BitsDoubt(m.uint16()))
	}
	if sensor {
		if m.uint16()&unconnected != 0 {
			m.disown(codes.NotAvailable)
		}
		m.take(1) // reserved
	}
	if amplitude {
		m.sfloat("pulse_amplitude", percent)
	}
}

func spotCheck(m *measurement) {
	flags := m.flags(0x1F)
	m.oximetry("")
	if flags&1 != 0 {
		m.time()
	}
	m.clock = flags&16 != 0
	m.oximeterStatus(flags&2 != 0, flags&4 != 0, flags&8 != 0)
}

func continuous(m *measurement) {
	flags := m.flags(0x1F)
	m.oximetry("")
	if flags&1 != 0 {
		m.oximetry(fast)
	}
	if flags&2 != 0 {
		m.oximetry(slow)
	}
	m.oximeterStatus(flags&4 != 0, flags&8 != 0, flags&16 != 0)
}

func temperature(m *measurement) {
	flags := m.flags(0x07)
	if mantissa, exponent, ok := parseFLOAT(binary.LittleEndian.Uint32(m.take(4))); ok {
		m.parts = append(m.parts, part{"temperature", choose(flags&1 != 0, celsius, fahrenheit), mantissa, exponent})
	}
	if flags&2 != 0 {
		m.time()
	}
	if flags&4 != 0 {
		m.take(1) // where on the body
	}
}

func weight(m *measurement) {
	flags := m.flags(0x0F)
	imperial := flags&1 != 0
	scaled := func(name, unit string, n, step, exponent int) {
		m.parts = append(m.parts, part{name, unit, n * step, exponent})
	}
	switch n := m.uint16(); { // 0xFFFF: measurement unsuccessful
	case n == 0xFFFF:
	case imperial:
		scaled("weight", pound, n, 1, -2)
	default:
		scaled("weight", kilogram, n, 5, -3)
	}
	if flags&2 != 0 {
		m.time()
	}
	if flags&4 != 0 {
		m.user = int(m.take(1)[0])
	}
	if flags&8 == 0 {
		return
	}
	scaled("bmi", "kg/m2", m.uint16(), 1, -1)
	if n := m.uint16(); imperial {
		scaled("height", "[in_i]", n, 1, -1)
	} else {
		scaled("height", "m", n, 1, -3)
	}
}

// measure decodes a characteristic.
func (c *gattCharacteristic) measure(b []byte) measurement {
	m := measurement{rest: b, user: unknownUser}
	c.decode(&m)
	if len(m.rest) > 0 {
		m.refuse(errRest)
	}
	return m
}

const valueField = "value"

// disowned is the error of a payload whose values are left out.
type disowned struct{ why codes.Doubt }

func (d *disowned) Error() string { return d.why.Reason() }

// readGATT sets what the characteristic of a payload says.
func (d *decoding) readGATT(m *mapping, r *vitals.Reading) (got measurement, field string, err error) {
	v := d.payload.values[m.slots[len(m.slots)-1]]
	switch {
	case v.Kind == shape.Absent:
		return got, valueField, errMissing
	case v.Kind != shape.Text && v.Kind != shape.Number: // hex may be a number
		return got, valueField, errNotText
	case len(v.Text) > 2*maxAttributeBytes:
		return got, valueField, errRest
	}
	var b []byte
	if m.bytes != nil {
		if b, err = m.bytes(string(v.Text)); err != nil {
			return got, valueField, errNotBase64
		}
	} else if b, err = hex.DecodeString(string(v.Text)); err != nil {
		return got, valueField, errNotHex
	}
	if got = m.gatt.measure(b); got.err != nil {
		return got, valueField, got.err
	}
	if m.userSuffix != "" && got.user != unknownUser {
		if r.Device, err = vitals.ParseName(r.Device.String() + m.userSuffix + strconv.Itoa(got.user)); err != nil {
			return got, "device", err
		}
	}
	if d.in.LeavesOut(got.doubt) {
		return got, "", &disowned{got.doubt}
	}
	for _, part := range got.parts {
		if field, err := d.take(m, part, r); err != nil {
			return got, field, err
		}
	}
	if len(got.parts) == 0 { // all are not a number
		return got, "", &disowned{codes.NotAvailable}
	}
	return got, "", nil
}

// take sets the value of the sign that a part has in its unit, if the mapping has one of the part.
func (d *decoding) take(m *mapping, p part, r *vitals.Reading) (field string, err error) {
	for i := range m.Signs {
		s := &m.Signs[i]
		if s.At != p.name {
			continue
		}
		v, rounded, ok, failed := s.Part(p.mantissa, p.exponent, p.unit)
		if !ok {
			field, err = s.Field, fmt.Errorf("in %s, of which the mapping has no sign; units are not converted", p.unit)
			continue
		}
		if failed == nil && !r.Values.Has(s.Number) {
			if r.Values.Set(s.Number, v); rounded {
				d.in.Rounded++
			}
		}
		return s.Field, failed
	}
	return field, err
}

// when returns the instant of the time stamp; fallback means that there is none.
func (m *measurement) when(c *shape.Clock) (unixMs int64, offset vitals.UTCOffset, fallback bool, err error) {
	switch {
	case m.clock:
		return 0, 0, true, errClock
	case m.stamp == nil:
		return 0, 0, true, errMissing
	}
	year, month, day := int(binary.LittleEndian.Uint16(m.stamp)), int(m.stamp[2]), int(m.stamp[3])
	if year == 0 || month == 0 || day == 0 {
		return 0, 0, true, errNoDate
	}
	unixMs, offset, ok, err := c.Local(year, month, day, int(m.stamp[4]), int(m.stamp[5]), int(m.stamp[6]))
	if err == nil && !ok {
		err = errNoTime
	}
	return unixMs, offset, false, err
}
