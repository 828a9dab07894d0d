package vitals_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/vitals"
)

// readings generates readings within the default limits.
func readings() *rapid.Generator[vitals.Reading] {
	limits := withOwn.DefaultLimits()
	return rapid.Custom(func(t *rapid.T) vitals.Reading {
		r := vitals.Reading{
			Device:     names().Draw(t, "device"),
			TimeUnixMs: rapid.Int64Range(0, nowUnixMs+limits.MaxAhead.Milliseconds()).Draw(t, "time"),
		}
		if rapid.Bool().Draw(t, "has offset") {
			r.UTCOffset = vitals.MakeUTCOffset(rapid.IntRange(vitals.MinUTCOffsetMinutes, vitals.MaxUTCOffsetMinutes).
				Draw(t, "offset"))
		}
		if rapid.Bool().Draw(t, "has gateway") {
			r.Gateway = names().Draw(t, "gateway")
		}
		value := func(s vitals.Sign) vitals.Value {
			accepted := limits.Accepted[s]
			return vitals.Value(rapid.Int32Range(int32(accepted.Min), int32(accepted.Max)).Draw(t, limits.Signs.Field(s)))
		}
		given := rapid.Uint32Range(1, withOwn.Known()).
			Filter(func(signs uint32) bool { return signs&withOwn.Known()&^2 != 0 }).Draw(t, "signs")
		for s := range withOwn.All() {
			if given>>s&1 != 0 && s > vitals.Diastolic {
				r.Values.Set(s, value(s))
			}
		}
		if given&1 != 0 {
			low := value(vitals.Diastolic)
			least := max(low+1, limits.Accepted[vitals.Systolic].Min)
			r.Values.Set(vitals.Diastolic, low)
			r.Values.Set(vitals.Systolic, vitals.Value(rapid.Int32Range(int32(least), 300_00).Draw(t, "systolic_mmhg")))
		}
		return r
	})
}

// TestRoundTrip checks that an encoded reading is valid JSON, breaks no rule and is
// decoded to an equal reading.
func TestRoundTrip(t *testing.T) {
	rules := validator(t)
	rapid.Check(t, func(rt *rapid.T) {
		want := readings().Draw(rt, "reading")
		if err := rules.Validate(&want, nowUnixMs); err != nil {
			rt.Fatalf("the generated reading breaks a rule: %v", err)
		}
		text := withOwn.AppendJSON(nil, &want)
		if !jsontext.Value(text).IsValid() {
			rt.Fatalf("%s is not valid JSON", text)
		}
		for _, options := range []vitals.DecoderOptions{{}, {IgnoreUnknown: true}} {
			batch, err := decode(t, string(text), options)
			if err != nil || len(batch.Readings) != 1 || batch.Readings[0] != want {
				rt.Fatalf("%s: %+v, %v; want %+v", text, batch, err, want)
			}
		}
	})
}
