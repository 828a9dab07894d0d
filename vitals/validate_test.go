package vitals_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

func validator(tb testing.TB) *vitals.Validator {
	tb.Helper()
	v, err := vitals.NewValidator(sinceEpoch())
	try(tb, err)
	return v
}

// values returns Values of sign, value pairs, in units of the last decimal.
func values(pairs ...int) (vs vitals.Values) {
	for i := 0; i < len(pairs); i += 2 {
		vs.Set(vitals.Sign(pairs[i]), vitals.Value(pairs[i+1]))
	}
	return vs
}

const (
	systolic  = int(vitals.Systolic)
	diastolic = int(vitals.Diastolic)
	spo2      = int(vitals.SpO2)
	heartRate = int(vitals.HeartRate)
	resting   = int(vitals.RestingHeartRate)

	respiratory  = int(vitals.RespiratoryRate)
	temperature  = int(vitals.BodyTemperature)
	weight       = int(vitals.BodyWeight)
	glucoseMass  = int(vitals.GlucoseMass)
	glucoseMolar = int(vitals.GlucoseMolar)
	pulse        = int(vitals.PulseRate)

	// The signs of withOwn.
	delta = vitals.MaxSigns - 1
	steps = vitals.MaxSigns - 2
	fev1  = vitals.MaxSigns - 3
)

func TestValidate(t *testing.T) {
	rules := validator(t)
	device := name(t, "ppg-1")
	for _, tt := range []struct {
		name      string
		in        vitals.Reading
		wantField string
		wantErr   error
		reason    string
	}{
		{"heart rate", vitals.Reading{Device: device, TimeUnixMs: nowUnixMs, Values: values(heartRate, 62_80)}, "", nil, ""},
		{"pressure", vitals.Reading{Device: device, Values: values(systolic, 121_00, diastolic, 79_00)}, "", nil, ""},
		{"no device", vitals.Reading{Values: values(spo2, 97_00)}, "device", vitals.ErrMissing, "missing"},
		{"before 1970", vitals.Reading{Device: device, TimeUnixMs: -1, Values: values(spo2, 97_00)}, "time", vitals.ErrPast,
			"before 1970"},
		{"5 minutes ahead", vitals.Reading{Device: device, TimeUnixMs: nowUnixMs + 300_000, Values: values(spo2, 97_00)},
			"", nil, ""},
		{"more than 5 minutes ahead", vitals.Reading{Device: device, TimeUnixMs: nowUnixMs + 300_001,
			Values: values(spo2, 97_00)},
			"time", vitals.ErrFuture, "more than 5m0s ahead of the server's clock"},
		{"no vital sign", vitals.Reading{Device: device}, "", vitals.ErrEmpty, "no vital sign given"},
		{"zero", vitals.Reading{Device: device, Values: values(spo2, 0)}, "spo2_pct", vitals.ErrNoSignal, "no signal"},
		{"least SpO2", vitals.Reading{Device: device, Values: values(spo2, 2_00)}, "", nil, ""},
		{"most SpO2", vitals.Reading{Device: device, Values: values(spo2, 100_00)}, "", nil, ""},
		{"below the minimum", vitals.Reading{Device: device, Values: values(spo2, 1_99)},
			"spo2_pct", vitals.ErrRange, "outside the accepted range 2 to 100 %; a fraction? send per cent"},
		{"negative", vitals.Reading{Device: device, Values: values(spo2, -1_00)},
			"spo2_pct", vitals.ErrRange, "outside the accepted range 2 to 100 %"},
		{"just above the limit", vitals.Reading{Device: device, Values: values(heartRate, 300_01)},
			"heart_rate_bpm", vitals.ErrRange, "outside the accepted range 20 to 300 /min"},
		{"resting", vitals.Reading{Device: device, Values: values(resting, 19_99)},
			"resting_heart_rate_bpm", vitals.ErrRange, "outside the accepted range 20 to 300 /min"},
		{"systolic", vitals.Reading{Device: device, Values: values(systolic, 39_99, diastolic, 30_00)},
			"systolic_mmhg", vitals.ErrRange, "outside the accepted range 40 to 300 mm[Hg]"},
		{"diastolic", vitals.Reading{Device: device, Values: values(systolic, 300_00, diastolic, 250_01)},
			"diastolic_mmhg", vitals.ErrRange, "outside the accepted range 20 to 250 mm[Hg]"},
		{"systolic alone", vitals.Reading{Device: device, Values: values(systolic, 121_00, spo2, 97_00)},
			"diastolic_mmhg", vitals.ErrPair, "systolic and diastolic go together"},
		{"diastolic alone", vitals.Reading{Device: device, Values: values(diastolic, 79_00)},
			"systolic_mmhg", vitals.ErrPair, "systolic and diastolic go together"},
		{"equal pressures", vitals.Reading{Device: device, Values: values(systolic, 80_00, diastolic, 80_00)},
			"systolic_mmhg", vitals.ErrPressureOrder, "systolic is not above diastolic"},
		{"far from all", vitals.Reading{Device: device, Values: values(vitals.NumBuiltIn, 1)}, "", vitals.ErrUnknownField,
			"unknown field"},
		{"zero within the range", vitals.Reading{Device: device, Values: values(delta, 0, steps, 0)}, "", nil, ""},
		{"zero outside of the range", vitals.Reading{Device: device, Values: values(fev1, 0)}, "fev1_l", vitals.ErrNoSignal,
			"no signal"},
		{"lowest negative", vitals.Reading{Device: device, Values: values(delta, -50)}, "", nil, ""},
		{"below the lowest negative", vitals.Reading{Device: device, Values: values(delta, -51)},
			"delta_c", vitals.ErrRange, "outside the accepted range -5 to 5 Cel"},
		{"three decimals", vitals.Reading{Device: device, Values: values(fev1, 12_001)},
			"fev1_l", vitals.ErrRange, "outside the accepted range 0.05 to 12 L"},
		{"swapped pressures", vitals.Reading{Device: device, Values: values(systolic, 79_00, diastolic, 121_00)},
			"systolic_mmhg", vitals.ErrPressureOrder, "systolic is not above diastolic"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := rules.Validate(&tt.in, nowUnixMs)
			if tt.wantErr == nil {
				if err != nil {
					t.Fatalf("Validate() = %v, want nil", err)
				}
				return
			}
			var fe *vitals.FieldError
			if !errors.As(err, &fe) || !errors.Is(err, tt.wantErr) || fe.Field != tt.wantField || fe.Reason() != tt.reason {
				t.Fatalf("Validate() = %v, want %s: %s", err, tt.wantField, tt.reason)
			}
		})
	}
}

// TestValidateFarClock checks that extreme clocks cause no overflow.
func TestValidateFarClock(t *testing.T) {
	limits := sinceEpoch()
	limits.MaxAhead = math.MaxInt64 * time.Nanosecond
	rules, err := vitals.NewValidator(limits)
	try(t, err)
	for _, tt := range []struct {
		now, time int64
		want      error
	}{
		{math.MaxInt64, vitals.MaxTimeUnixMs, nil},
		{math.MaxInt64, vitals.MaxTimeUnixMs + 1, vitals.ErrFuture},
		{nowUnixMs, nowUnixMs + limits.MaxAhead.Milliseconds(), nil}, // 292 years
		{nowUnixMs, math.MaxInt64, vitals.ErrFuture},
		{math.MinInt64, 0, vitals.ErrFuture},
		{math.MinInt64, math.MinInt64, vitals.ErrPast},
	} {
		r := vitals.Reading{Device: name(t, "a"), TimeUnixMs: tt.time, Values: values(spo2, 97_00)}
		if err := rules.Validate(&r, tt.now); !errors.Is(err, tt.want) {
			t.Errorf("at %d, time %d: %v, want %v", tt.now, tt.time, err, tt.want)
		}
	}
}

// TestMaxAge checks that both decoding paths and Validate reject old times.
func TestMaxAge(t *testing.T) {
	for _, tt := range []struct {
		age    time.Duration
		now    int64
		time   int64
		reason string // empty: accepted
	}{
		{0, nowUnixMs, 0, ""},
		{time.Hour, nowUnixMs, nowUnixMs - 3_600_000, ""},
		{time.Hour, nowUnixMs, nowUnixMs - 3_600_001, "older than this server keeps, which is 1h0m0s"},
		{24 * time.Hour, nowUnixMs, 0, "older than this server keeps, which is 1 day"},
		{400 * 24 * time.Hour, nowUnixMs, nowUnixMs - 400*86_400_000 - 1, "older than this server keeps, which is 400 days"},
		{400 * 24 * time.Hour, nowUnixMs, nowUnixMs, ""},
		{time.Hour, 3_600_000, 0, ""},
		{time.Hour, 3_600_001, 0, "older than this server keeps, which is 1h0m0s"},
		{math.MaxInt64, math.MinInt64, -1, "before 1970"},
	} {
		limits := sinceEpoch()
		limits.MaxAge = tt.age
		rules, err := vitals.NewValidator(limits)
		try(t, err)
		check := func(what string, err *vitals.FieldError) {
			t.Helper()
			if got := err.Reason(); got != tt.reason {
				t.Errorf("%s: at %d, time %d, age %v: %q, want %q", what, tt.now, tt.time, tt.age, got, tt.reason)
			}
			if strings.HasPrefix(tt.reason, "older") && (err.Field != "time" || !errors.Is(err, vitals.ErrOld)) {
				t.Errorf("%s: field %q, %v, want time and ErrOld", what, err.Field, err)
			}
		}
		decoder := vitals.NewDecoder(rules, vitals.DecoderOptions{})
		for way, body := range map[string]string{
			"plain":  fmt.Sprintf(`{"device":"a","time":%d,"spo2_pct":97}`, tt.time),
			"strict": fmt.Sprintf(`{"device":"\u0061","time":%d,"spo2_pct":97}`, tt.time),
		} {
			var batch vitals.Batch
			try(t, decoder.Decode([]byte(body), tt.now, &batch))
			if len(batch.Refused) == 1 {
				check(way, &batch.Refused[0])
			} else {
				check(way, &vitals.FieldError{})
			}
		}
		r := vitals.Reading{Device: name(t, "a"), TimeUnixMs: tt.time, Values: values(spo2, 97_00)}
		var broken vitals.FieldError
		if err := rules.Validate(&r, tt.now); err != nil {
			broken = *err.(*vitals.FieldError)
		}
		check("Validate", &broken)
	}
}
