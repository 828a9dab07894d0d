package vitals_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/vitals"
)

// v2Reading is a reading for unmarshalling with encoding/json/v2, without the package's
// rules.
type v2Reading struct {
	Device       *string        `json:"device"`
	Time         jsontext.Value `json:"time"` // v2 has no type for "string or integer"
	Systolic     *float64       `json:"systolic_mmhg"`
	Diastolic    *float64       `json:"diastolic_mmhg"`
	SpO2         *float64       `json:"spo2_pct"`
	HeartRate    *float64       `json:"heart_rate_bpm"`
	Resting      *float64       `json:"resting_heart_rate_bpm"`
	Respiratory  *float64       `json:"respiratory_rate_bpm"`
	Temperature  *float64       `json:"body_temperature_c"`
	Weight       *float64       `json:"body_weight_kg"`
	GlucoseMass  *float64       `json:"glucose_mg_dl"`
	GlucoseMolar *float64       `json:"glucose_mmol_l"`
	Pulse        *float64       `json:"pulse_rate_bpm"`
	OwnDelta     *float64       `json:"delta_c"`
	OwnCount     *float64       `json:"steps"`
	OwnFine      *float64       `json:"fev1_l"`
	Gateway      *string        `json:"gateway"`
}

func (r *v2Reading) signs() map[string]*float64 {
	return map[string]*float64{
		"systolic_mmhg": r.Systolic, "diastolic_mmhg": r.Diastolic, "spo2_pct": r.SpO2, "heart_rate_bpm": r.HeartRate,
		"resting_heart_rate_bpm": r.Resting,
		"respiratory_rate_bpm":   r.Respiratory, "body_temperature_c": r.Temperature, "body_weight_kg": r.Weight,
		"glucose_mg_dl":  r.GlucoseMass,
		"glucose_mmol_l": r.GlucoseMolar, "pulse_rate_bpm": r.Pulse, "delta_c": r.OwnDelta, "steps": r.OwnCount,
		"fev1_l": r.OwnFine,
	}
}

// A brokenRule is a rule that a value breaks.
type brokenRule struct {
	field string
	err   error
}

// A modelElement is the model's result for one value of a body.
type modelElement struct {
	broken  []brokenRule // all of them, in no order
	reading vitals.Reading
}

// modelBody splits a body into values with encoding/json/v2. ok is false if the body is
// invalid.
//
// It differs from v2, which accepts values without line breaks in between, in two
// listed rules: each value of NDJSON starts on a new line, and a byte order mark is ignored.
func modelBody(body []byte) (shape vitals.Shape, elements []jsontext.Value, ok bool) {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	var whole jsontext.Value
	if json.Unmarshal(body, &whole) == nil {
		if whole.Kind() != '[' {
			return vitals.Single, []jsontext.Value{whole}, true
		}
		return vitals.Array, elements, json.Unmarshal(body, &elements) == nil
	}
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) == 0 || first[0] == '[' {
		return 0, nil, false
	}
	// A value ends with the first line that completes it.
	var lines []byte
	for line := range bytes.Lines(body) {
		lines = append(lines, line...)
		var value jsontext.Value
		if json.Unmarshal(lines, &value) == nil {
			elements = append(elements, value)
			lines = nil
		}
	}
	return vitals.NDJSON, elements, len(bytes.Trim(lines, " \t\r\n")) == 0
}

var nameShape = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// modelReading decodes one valid value with encoding/json/v2 and applies the rules
// listed in the package comment. It returns an error for a difference that no rule
// explains.
func modelReading(value jsontext.Value, latestUnixMs int64, limits vitals.Limits, ignoreUnknown bool) (e modelElement,
	err error) {
	var v2 v2Reading
	v2Err := json.Unmarshal(value, &v2, json.RejectUnknownMembers(!ignoreUnknown))
	if value.Kind() != '{' {
		e.breaks("", vitals.ErrNotObject)
		if v2Err == nil && value.Kind() != 'n' { // v2 reads null as a zero struct
			return e, fmt.Errorf("v2 reads %s", value)
		}
		return e, nil
	}

	var members map[string]jsontext.Value
	if err := json.Unmarshal(value, &members); err != nil {
		return e, err
	}
	mistyped := false // whether v2 must reject it, too
	for name, member := range members {
		s, isSign := limits.Signs.Named(name)
		known := isSign || name == "time" || name == "device" || name == "gateway"
		switch {
		case known && member.Kind() == 'n':
			delete(members, name)
		case isSign:
			mistyped = e.sign(s, member, v2.signs()[name], limits) || mistyped
		case name == "time":
			e.time(member, latestUnixMs)
		case name == "device":
			e.reading.Device, mistyped = e.name(name, member, v2.Device, mistyped)
		case name == "gateway":
			e.reading.Gateway, mistyped = e.name(name, member, v2.Gateway, mistyped)
		case !ignoreUnknown:
			mistyped = true
			if !nameShape.MatchString(name) || bytes.IndexByte([]byte(name), ':') >= 0 {
				name = ""
			}
			e.breaks(name, vitals.ErrUnknownField)
		}
	}
	for _, name := range []string{"device", "time"} {
		if _, ok := members[name]; !ok {
			e.breaks(name, vitals.ErrMissing)
		}
	}
	pair := 0
	given := 0
	for s, d := range limits.Signs.All() {
		if _, ok := members[d.Field]; ok {
			given++
			if s == vitals.Systolic || s == vitals.Diastolic {
				pair++
			}
		}
	}
	if given == 0 {
		e.breaks("", vitals.ErrEmpty)
	}
	if pair == 1 {
		e.breaks("systolic_mmhg", vitals.ErrPair)
		e.breaks("diastolic_mmhg", vitals.ErrPair)
	}
	if v2.Systolic != nil && v2.Diastolic != nil && *v2.Systolic <= *v2.Diastolic {
		e.breaks("systolic_mmhg", vitals.ErrPressureOrder)
	}
	if (v2Err != nil) != mistyped {
		return e, fmt.Errorf("v2 returns %v for %s; the rules about types and unknown fields are broken: %v", v2Err,
			value, mistyped)
	}
	return e, nil
}

func (e *modelElement) breaks(field string, err error) {
	e.broken = append(e.broken, brokenRule{field, err})
}

// name checks the name of a device or gateway.
func (e *modelElement) name(field string, member jsontext.Value, v2 *string, before bool) (n vitals.Name,
	mistyped bool) {
	switch {
	case member.Kind() != '"':
		e.breaks(field, vitals.ErrType)
		return n, true
	case v2 == nil:
		// v2 stopped at another member.
		var text string
		if err := json.Unmarshal(member, &text); err != nil {
			panic(err)
		}
		v2 = &text
		fallthrough
	default:
		if !nameShape.MatchString(*v2) {
			e.breaks(field, vitals.ErrName)
			break
		}
		n, _ = vitals.ParseName(*v2)
	}
	return n, before
}

// time checks a time. All its rules are listed.
func (e *modelElement) time(member jsontext.Value, latestUnixMs int64) {
	var unixMs int64
	var err error
	switch member.Kind() {
	case '"':
		var text string
		if err := json.Unmarshal(member, &text); err != nil {
			panic(err)
		}
		unixMs, e.reading.UTCOffset, err = modelRFC3339(text)
	case '0':
		switch {
		case !integer.Match(member):
			err = vitals.ErrTimeFormat
		case json.Unmarshal(member, &unixMs) == nil:
		case member[0] == '-':
			err = vitals.ErrPast
		default:
			err = vitals.ErrFuture
		}
	default:
		err = vitals.ErrType
	}
	switch {
	case err != nil:
	case unixMs < 0:
		err = vitals.ErrPast
	case unixMs > latestUnixMs:
		err = vitals.ErrFuture
	}
	if err != nil {
		e.breaks("time", err)
	}
	e.reading.TimeUnixMs = unixMs
}

// sign checks a value. Listed differences from v2 are precision, range and zero.
func (e *modelElement) sign(s vitals.Sign, member jsontext.Value, v2 *float64, limits vitals.Limits) (mistyped bool) {
	d := limits.Signs.Of(s)
	switch member.Kind() {
	case '0':
	default:
		e.breaks(d.Field, vitals.ErrType)
		return true
	}
	v, err := modelValue(string(member), d.Decimals)
	switch {
	case err != nil:
	case v >= limits.Accepted[s].Min && v <= limits.Accepted[s].Max:
		if v2 != nil && *v2 != float64(v)/math.Pow10(d.Decimals) {
			panic(fmt.Sprintf("v2 reads %v as %v, the model as %d with %d decimals", member, *v2, v, d.Decimals))
		}
	case v == 0:
		err = vitals.ErrNoSignal
	default:
		err = vitals.ErrRange
	}
	if err != nil {
		e.breaks(d.Field, err)
		var number float64
		return json.Unmarshal(member, &number) != nil // beyond float64
	}
	e.reading.Values.Set(s, v)
	return false
}

// checkAgainstModel decodes body and compares the result with the model.
func checkAgainstModel(t *testing.T, body []byte, ignoreUnknown bool) {
	t.Helper()
	var batch vitals.Batch
	err := newDecoder(t, vitals.DecoderOptions{IgnoreUnknown: ignoreUnknown}).Decode(body, nowUnixMs, &batch)
	checkBatch(t, &batch, err)

	shape, elements, ok := modelBody(body)
	var syntax *vitals.SyntaxError
	if !ok {
		if !errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > int64(len(body)) || syntax.Reason == "" {
			t.Fatalf("%q: %v, want a SyntaxError within the body", body, err)
		}
		return
	}
	if err != nil || batch.Shape != shape || batch.Len() != len(elements) {
		t.Fatalf("%q: %v, %v of %d; want %v of %d", body, err, batch.Shape, batch.Len(), shape, len(elements))
	}
	accepted, refused := 0, 0
	for i, value := range elements {
		want, err := modelReading(value, nowUnixMs+300_000, withOwn.DefaultLimits(), ignoreUnknown)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if len(want.broken) == 0 {
			if accepted == len(batch.Index) || int(batch.Index[accepted]) != i || batch.Readings[accepted] != want.reading {
				t.Fatalf("%q: reading %d is not %+v in %+v", body, i, want.reading, batch)
			}
			accepted++
			continue
		}
		if refused == len(batch.Refused) || batch.Refused[refused].Index != i {
			t.Fatalf("%q: reading %d breaks %v but is not rejected in %+v", body, i, want.broken, batch)
		}
		got := &batch.Refused[refused]
		if !slices.ContainsFunc(want.broken, func(b brokenRule) bool {
			return b.field == got.Field &&
				errors.Is(got, b.err)
		}) {
			t.Fatalf("%q: reading %d is rejected with %v, but it breaks %v", body, i, got, want.broken)
		}
		refused++
	}
	checkWritten(t, batch.Readings)
}

// checkWritten checks that encoded readings are decoded to equal readings.
func checkWritten(t *testing.T, readings []vitals.Reading) {
	t.Helper()
	text := []byte("[")
	for i := range readings {
		if i > 0 {
			text = append(text, ',')
		}
		text = withOwn.AppendJSON(text, &readings[i])
	}
	text = append(text, ']')
	var batch vitals.Batch
	if err := newDecoder(t, vitals.DecoderOptions{}).Decode(text, nowUnixMs, &batch); err != nil ||
		!slices.Equal(batch.Readings, readings) {
		t.Fatalf("%s: %+v, %v; want %+v", text, batch, err, readings)
	}
}
