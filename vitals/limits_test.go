package vitals_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestDefaultLimits(t *testing.T) {
	limits := builtIn.DefaultLimits()
	if err := limits.Validate(); err != nil {
		t.Fatalf("Validate() = %v", err)
	}
	if limits.MaxAhead != 5*time.Minute {
		t.Errorf("MaxAhead = %v, want 5m", limits.MaxAhead)
	}
	if got := time.UnixMilli(limits.OldestUnixMs).UTC().Format(time.RFC3339); got != "2001-01-01T00:00:00Z" {
		t.Errorf("the oldest time is %s, want 2001-01-01T00:00:00Z", got)
	}
	for s, want := range [vitals.NumBuiltIn]string{"40..300", "20..250", "2..100", "20..300", "20..300", "1..150",
		"20..46", "0.2..650", "10..1000", "0.5..56", "20..300", "20..600", "1.1..33.3"} {
		if got := builtIn.Of(vitals.Sign(s)).FormatRange(limits.Accepted[s]); got != want {
			t.Errorf("%v: accepted %s, want %s", vitals.Sign(s), got, want)
		}
	}
}

func TestLimitsValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*vitals.Limits)
		ok     bool
	}{
		{"one value", func(l *vitals.Limits) { l.Accepted[vitals.SpO2] = vitals.Range{Min: 97_00, Max: 97_00} }, true},
		{"widest", func(l *vitals.Limits) { l.Accepted[vitals.SpO2] = vitals.Range{Min: 1, Max: vitals.MaxValue - 1} }, true},
		{"from zero", func(l *vitals.Limits) { l.Accepted[vitals.SpO2].Min = 0 }, false},
		{"backwards", func(l *vitals.Limits) { l.Accepted[vitals.HeartRate].Max = 10_00 }, false},
		{"up to the largest value", func(l *vitals.Limits) { l.Accepted[vitals.Systolic].Max = vitals.MaxValue }, false},
		{"no pressure possible",
			func(l *vitals.Limits) { l.Accepted[vitals.Diastolic] = vitals.Range{Min: 300_00, Max: 310_00} }, false},
		{"no time ahead", func(l *vitals.Limits) { l.MaxAhead = 0 }, true},
		{"negative time ahead", func(l *vitals.Limits) { l.MaxAhead = -1 }, false},
		{"maximum age", func(l *vitals.Limits) { l.MaxAge = time.Hour }, true},
		{"negative maximum age", func(l *vitals.Limits) { l.MaxAge = -1 }, false},
		{"any time since 1970", func(l *vitals.Limits) { l.OldestUnixMs = 0 }, true},
		{"times before 1970", func(l *vitals.Limits) { l.OldestUnixMs = -1 }, false},
		{"no time at all", func(l *vitals.Limits) { l.OldestUnixMs = vitals.MaxTimeUnixMs + 1 }, false},
		{"up to no value", func(l *vitals.Limits) { l.Accepted[vitals.BodyWeight].Max = vitals.MaxValue }, false},
		{"a built-in sign from below zero", func(l *vitals.Limits) { l.Accepted[vitals.BodyTemperature].Min = -1 }, false},
		{"beyond 16 bits", func(l *vitals.Limits) { l.Accepted[vitals.PulseRate].Max = 1000_00 }, true},
		{"zero limits", func(l *vitals.Limits) { *l = vitals.Limits{} }, false},
	} {
		limits := builtIn.DefaultLimits()
		tt.change(&limits)
		err := limits.Validate()
		if tt.ok && err != nil || !tt.ok && !errors.Is(err, vitals.ErrLimits) {
			t.Errorf("%s: Validate() = %v, want accepted: %v", tt.name, err, tt.ok)
		}
		if _, newErr := vitals.NewValidator(limits); (newErr == nil) != tt.ok {
			t.Errorf("%s: NewValidator = %v, want accepted: %v", tt.name, newErr, tt.ok)
		}
	}
}

func TestRangeText(t *testing.T) {
	for _, tt := range []struct {
		text string
		want vitals.Range
		ok   bool
	}{
		{"1..100", vitals.Range{Min: 1_00, Max: 100_00}, true},
		{"0.5..97.25", vitals.Range{Min: 50, Max: 97_25}, true},
		{"1", vitals.Range{}, false},
		{"1..", vitals.Range{Min: 1_00, Max: vitals.MaxValue}, true},
		{"..1", vitals.Range{Min: vitals.MinValue, Max: 1_00}, true},
		{"..", vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}, true},
		{"-1..1000", vitals.Range{Min: -1_00, Max: 1000_00}, true},
		{"1...2", vitals.Range{}, false},
		{"1..2.555", vitals.Range{}, false},
		{"1..21474836.47", vitals.Range{}, false},
	} {
		r, err := builtIn.Of(vitals.SpO2).ParseRange(tt.text)
		if r != tt.want || (err == nil) != tt.ok || err != nil && !errors.Is(err, vitals.ErrLimits) {
			t.Errorf("ParseRange(%q) = %v, %v; want %v", tt.text, r, err, tt.want)
		}
		if text := builtIn.Of(vitals.SpO2).FormatRange(tt.want); tt.ok && text != tt.text {
			t.Errorf("FormatRange() = %q, want %q", text, tt.text)
		}
	}
}

// Devices whose clock was never set send times of 1970 or 2000, and some send seconds.
// Both are rejected.
func TestImplausibleTime(t *testing.T) {
	const seconds = "looks like seconds; send milliseconds"
	const old = "before 2001-01-01T00:00:00.000Z, the oldest time that this server accepts"
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC).UnixMilli()
	for _, tt := range []struct {
		time, want string
		err        error
	}{
		{`1763719200`, seconds, vitals.ErrTimeFormat},
		{`0`, seconds, vitals.ErrTimeFormat},
		{`99999999999`, seconds, vitals.ErrTimeFormat},
		{`100000000000`, old, vitals.ErrPast},
		{`978307199999`, old, vitals.ErrPast},
		{`978307200000`, "", nil},
		{`"2001-01-01T00:00:00Z"`, "", nil},
		{`"2000-12-31T23:59:59.999Z"`, old, vitals.ErrPast},
		{`"1970-01-21T09:55:19.200Z"`, old, vitals.ErrPast},
		{`-1`, "before 1970", vitals.ErrPast},
	} {
		for _, ms := range []int64{vitals.DefaultOldestUnixMs, 0} {
			limits := builtIn.DefaultLimits()
			limits.OldestUnixMs = ms
			rules, err := vitals.NewValidator(limits)
			try(t, err)
			for _, spelling := range []string{`"device"`, `"devic\u0065"`} { // fast path and strict path
				var b vitals.Batch
				body := `{` + spelling + `:"a","time":` + tt.time + `,"spo2_pct":97}`
				try(t, vitals.NewDecoder(rules, vitals.DecoderOptions{}).Decode([]byte(body), now, &b))
				want, wantErr := tt.want, tt.err
				if ms == 0 && tt.time != `-1` { // any time since 1970
					want, wantErr = "", nil
				}
				got, gotErr := "", error(nil)
				if len(b.Refused) > 0 {
					got, gotErr = b.Refused[0].Reason(), b.Refused[0].Err
				}
				if got != want || !errors.Is(gotErr, wantErr) {
					t.Errorf("time %s, oldest %d: got %q (%v), want %q", tt.time, ms, got, gotErr, want)
				}
			}
		}
	}
}
