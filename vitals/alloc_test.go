package vitals_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// TestDecodeAllocates checks that decoding does not allocate once the decoder and the
// batch have seen a body of the same kind: for accepted and rejected readings, in the
// fast and in the strict path.
func TestDecodeAllocates(t *testing.T) {
	for _, tt := range []struct {
		name          string
		body          string
		ignoreUnknown bool
		accepted      int
		refused       error
	}{
		{"single", typical, false, 1, nil},
		{"array", string(repeated(vitals.Array, 100)), false, 100, nil},
		{"ndjson", string(repeated(vitals.NDJSON, 100)), false, 100, nil},
		{"unix ms", with(`"spo2_pct":97.55,"gateway":"g"`), false, 1, nil},
		{"ten signs",
			with(`"systolic_mmhg":121,"diastolic_mmhg":79,"spo2_pct":97,"heart_rate_bpm":72,"respiratory_rate_bpm":14,` +
				`"body_temperature_c":36.6,` +
				`"body_weight_kg":81.205,"glucose_mg_dl":99,"glucose_mmol_l":5.5,"pulse_rate_bpm":71`), false, 1, nil},
		{"own signs", with(`"delta_c":-0.4,"steps":0,"fev1_l":3.217`), false, 1, nil},
		{"own signs, strict", with(`"delta_c":-4e-1,"steps":0,"fev1_l":3.217`), false, 1, nil},
		{"own sign too fine", with(`"delta_c":0.05`), false, 0, vitals.ErrPrecision},
		{"offset", `{"device":"a","time":"2026-11-21T11:00:00+01:00","spo2_pct":97}`, false, 1, nil},
		{"escapes and exponents", `{"devi\u0063e":"\u0061","time":"2026\u002D11-21T10:00:00Z","spo2_pct":9.755e1}`,
			false, 1, nil},
		{"ignored field", with(`"spo2_pct":97.55,"x":{"y":[1,"\n"]}`), true, 1, nil},
		{"no signal", with(`"spo2_pct":0`), false, 0, vitals.ErrNoSignal},
		{"out of range", with(`"spo2_pct":101`), false, 0, vitals.ErrRange},
		{"far out of range", with(`"spo2_pct":1e99`), false, 0, vitals.ErrRange},
		{"too fine", with(`"spo2_pct":97.555`), false, 0, vitals.ErrPrecision},
		{"null", with(`"spo2_pct":null`), false, 0, vitals.ErrEmpty},
		{"null beside a value", with(`"spo2_pct":null,"heart_rate_bpm":72`), false, 1, nil},
		{"fraction", with(`"spo2_pct":0.97`), false, 0, vitals.ErrRange},
		{"fraction too fine", with(`"spo2_pct":0.975`), false, 0, vitals.ErrPrecision},
		{"string", with(`"spo2_pct":"97"`), false, 0, vitals.ErrType},
		{"no vital sign", `{"device":"a","time":0}`, false, 0, vitals.ErrEmpty},
		{"no device", `{"time":0,"spo2_pct":97}`, false, 0, vitals.ErrMissing},
		{"not a name", `{"device":"a b","time":0,"spo2_pct":97}`, false, 0, vitals.ErrName},
		{"no zone", `{"device":"a","time":"2026-11-21T10:00:00","spo2_pct":97}`, false, 0, vitals.ErrTimeZone},
		{"not a time", `{"device":"a","time":1e3,"spo2_pct":97}`, false, 0, vitals.ErrTimeFormat},
		{"past", `{"device":"a","time":-1,"spo2_pct":97}`, false, 0, vitals.ErrPast},
		{"future", `{"device":"a","time":9999999999999,"spo2_pct":97}`, false, 0, vitals.ErrFuture},
		{"pair", with(`"systolic_mmhg":121`), false, 0, vitals.ErrPair},
		{"order", with(`"systolic_mmhg":79,"diastolic_mmhg":121`), false, 0, vitals.ErrPressureOrder},
		{"not an object", "1", false, 0, vitals.ErrNotObject},
		{"unknown field, repeated", with(`"sp02_pct":97`), false, 0, vitals.ErrUnknownField},
		{"unknown field with a harmful name", with(`"<sp02>":97`), false, 0, vitals.ErrUnknownField},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDecoder(t, vitals.DecoderOptions{IgnoreUnknown: tt.ignoreUnknown})
			var batch vitals.Batch
			for _, body := range []string{tt.body, "[" + strings.Repeat(tt.body+",", 10) + tt.body + "]"} {
				if strings.HasPrefix(tt.body, "[") || strings.Contains(tt.body, "\n") {
					body = tt.body
				}
				text := []byte(body)
				allocs := testing.AllocsPerRun(100, func() {
					try(t, d.Decode(text, nowUnixMs, &batch))
				})
				if allocs != 0 {
					t.Errorf("Decode allocates %v times for %d readings, want 0", allocs, batch.Len())
				}
			}
			if accepted := len(batch.Readings) > 0; accepted != (tt.accepted > 0) {
				t.Errorf("accepted %d readings, want some: %v", len(batch.Readings), tt.accepted > 0)
			}
			for i := range batch.Refused {
				if !errors.Is(&batch.Refused[i], tt.refused) {
					t.Errorf("rejected with %v, want %v", &batch.Refused[i], tt.refused)
				}
			}
		})
	}
}

func TestEncodeAllocates(t *testing.T) {
	r := vitals.Reading{Device: name(t, "ppg-1"), Gateway: name(t, "g"), TimeUnixMs: nowUnixMs,
		UTCOffset: vitals.MakeUTCOffset(-210),
		Values:    values(systolic, 121_00, diastolic, 79_05, spo2, 97_50, heartRate, 72_00, resting, 58_00)}
	text := make([]byte, 0, 512)
	if got := testing.AllocsPerRun(100, func() { text = builtIn.AppendJSON(text[:0], &r) }); got != 0 {
		t.Errorf("AppendJSON allocates %v times, want 0", got)
	}
	if len(text) == 0 {
		t.Error("AppendJSON wrote nothing")
	}
}

func TestValidateAllocates(t *testing.T) {
	rules := validator(t)
	r := vitals.Reading{Device: name(t, "ppg-1"), TimeUnixMs: nowUnixMs, Values: values(spo2, 97_50)}
	if got := testing.AllocsPerRun(100, func() {
		try(t, rules.Validate(&r, nowUnixMs))
	}); got != 0 {
		t.Errorf("Validate allocates %v times, want 0", got)
	}
}

// TestParseAllocates checks the helpers separately, including errors.
func TestParseAllocates(t *testing.T) {
	for _, text := range []string{"97.55", "97.555", "1e999", "x", "2026-11-21T10:00:00.123Z", "2026-11-21T10:00:00",
		"1795255205123", "a b", ""} {
		var numberErr, timeErr, nameErr error
		if got := testing.AllocsPerRun(100, func() {
			_, numberErr = vitals.ParseValue(text, 2)
			_, _, timeErr = vitals.ParseTime(text)
			_, nameErr = vitals.ParseName(text)
		}); got != 0 {
			t.Errorf("parsing %q allocates %v times, want 0; %v, %v, %v", text, got, numberErr, timeErr, nameErr)
		}
	}
}
