package sim

import (
	"strconv"

	"github.com/pulsegate/pulsegate/vitals"
)

// appendNumbered appends prefix and n with at least six digits.
func appendNumbered(dst []byte, prefix string, n int32) []byte {
	dst = append(dst, prefix...)
	if n >= 1_000_000 {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	var digits [6]byte
	for i := 5; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:]...)
}

// appendDevice appends the name of a device.
func (f *Fleet) appendDevice(dst []byte, device int32) []byte {
	return appendNumbered(dst, f.prefix, device)
}

// appendSample appends a reading as one JSON object. Every other one leaves the device out if
// the topic has it.
func (f *Fleet) appendSample(dst []byte, s *sample, gateway int32) []byte {
	dst = append(dst, '{')
	if !f.inTopic || s.timeMs%2 == 0 {
		dst = append(f.appendDevice(append(dst, `"device":"`...), s.device), `",`...)
	}
	dst = vitals.AppendLocalTime(append(dst, `"time":"`...), s.timeMs, s.offset)
	dst = append(dst, '"')
	dst = f.signs.AppendMembers(dst, &s.values)
	if f.namesGateway {
		dst = append(appendNumbered(append(dst, `,"gateway":"`...), "gw-", gateway), '"')
	}
	return append(dst, '}')
}

// appendLine appends a reading as a line of InfluxDB's protocol, with a timestamp in ns.
func (f *Fleet) appendLine(dst []byte, s *sample, gateway int32) []byte {
	dst = f.appendDevice(append(dst, "vitals,device="...), s.device)
	if f.namesGateway {
		dst = appendNumbered(append(dst, ",gateway="...), "gw-", gateway)
	}
	between := byte(' ')
	for sign, v := range s.values.All() {
		d := f.signs.Of(sign)
		dst = append(append(append(dst, between), d.Field...), '=')
		dst, between = d.Append(dst, v), ','
	}
	dst = strconv.AppendInt(append(dst, ' '), s.timeMs, 10)
	return append(dst, "000000\n"...)
}

// appendMapped appends a reading as a payload of another design, and a newline.
func (f *Fleet) appendMapped(dst []byte, s *sample, gateway int32) []byte {
	dst = f.appendDevice(append(dst, `{"sensor":{"id":"`...), s.device)
	if f.namesGateway {
		dst = appendNumbered(append(dst, `","hub":"`...), "gw-", gateway)
	}
	dst = vitals.AppendLocalTime(append(dst, `"},"at":"`...), s.timeMs, s.offset)
	dst = append(dst, `","data":{"n":1`...)
	return append(f.signs.AppendMembers(dst, &s.values), "}}\n"...)
}

// appendBody appends the body of a request.
func (f *Fleet) appendBody(dst []byte, r *request) []byte {
	switch {
	case f.influx:
		for i := range r.samples {
			dst = f.appendLine(dst, &r.samples[i], r.gateway)
		}
		return dst
	case f.mapped:
		for i := range r.samples {
			dst = f.appendMapped(dst, &r.samples[i], r.gateway)
		}
		return dst
	case r.kind == malformedRequest:
		return f.appendFlawed(dst, &r.samples[0], r.flaw)
	case r.kind == singleRequest:
		return f.appendSample(dst, &r.samples[0], r.gateway)
	}
	end, between := []byte("]"), byte(',')
	if r.lines {
		end, between = nil, '\n'
	} else {
		dst = append(dst, '[')
	}
	for i := range r.samples {
		if i > 0 {
			dst = append(dst, between)
		}
		dst = f.appendSample(dst, &r.samples[i], r.gateway)
	}
	return append(dst, end...)
}

// A flaw is the defect of a malformed request.
type flaw uint8

const (
	flawCutOff   flaw = iota // the body is cut off
	flawTwice                // a duplicate name
	flawUTF8                 // a string is not UTF-8
	flawUnknown              // a field's name is misspelt
	flawNoSignal             // a zero instead of a value
	flawSpecial              // an SFLOAT's "not a number", decoded as 2047
	flawZone                 // the time has no zone
	flawPair                 // systolic without diastolic
	flawNull                 // the only value is null
	numFlaws
)

// flawedBodies has the text after the device and the time. A server that rejects
// unknown fields rejects each; see TestFlawsAreRejected.
var flawedBodies = [numFlaws]struct {
	zone   string
	rest   string
	status int // expected status of the response
}{
	flawCutOff:   {"Z", `,"heart_rate_bpm":7`, 400},
	flawTwice:    {"Z", `,"heart_rate_bpm":71,"heart_rate_bpm":72}`, 400},
	flawUTF8:     {"Z", ",\"heart_rate_bpm\":71,\"gateway\":\"\xff\"}", 400},
	flawUnknown:  {"Z", `,"sp02_pct":97,"heart_rate_bpm":71}`, 422},
	flawNoSignal: {"Z", `,"heart_rate_bpm":71,"spo2_pct":0}`, 422},
	flawSpecial:  {"Z", `,"heart_rate_bpm":2047}`, 422},
	flawZone:     {"", `,"heart_rate_bpm":71}`, 422},
	flawPair:     {"Z", `,"heart_rate_bpm":71,"systolic_mmhg":121}`, 422},
	flawNull:     {"Z", `,"spo2_pct":null}`, 422},
}

// appendFlawed appends a body that a server must reject.
func (f *Fleet) appendFlawed(dst []byte, s *sample, kind flaw) []byte {
	dst = f.appendDevice(append(dst, `{"device":"`...), s.device)
	dst = vitals.AppendTime(append(dst, `","time":"`...), s.timeMs)
	b := &flawedBodies[kind]
	dst = append(dst[:len(dst)-1], b.zone...)
	return append(append(dst, '"'), b.rest...)
}
