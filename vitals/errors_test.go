package vitals_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// rules lists the rules of a reading with their texts, which clients may rely on.
var rules = []struct {
	err    error
	reason string
}{
	{vitals.ErrNotObject, "not a JSON object"},
	{vitals.ErrUnknownField, "unknown field"},
	{vitals.ErrType, "wrong type"},
	{vitals.ErrMissing, "missing"},
	{vitals.ErrEmpty, "no vital sign given"},
	{vitals.ErrName, "not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"},
	{vitals.ErrTimeFormat, "neither an RFC 3339 time nor integer Unix milliseconds"},
	{vitals.ErrTimeZone, "no time zone"},
	{vitals.ErrPast, "before 1970"},
	{vitals.ErrOld, "older than this server keeps"},
	{vitals.ErrFuture, "too far ahead of the server's clock"},
	{vitals.ErrNumber, "not a number"},
	{vitals.ErrPrecision, "more than two decimals"},
	{vitals.ErrRange, "outside the accepted range"},
	{vitals.ErrNoSignal, "no signal"},
	{vitals.ErrPair, "systolic and diastolic go together"},
	{vitals.ErrPressureOrder, "systolic is not above diastolic"},
}

func TestFieldError(t *testing.T) {
	for i, rule := range rules {
		e := &vitals.FieldError{Index: 3, Field: "spo2_pct", Err: rule.err}
		if got := e.Reason(); got != rule.reason {
			t.Errorf("Reason() = %q, want %q", got, rule.reason)
		}
		if got, want := e.Error(), "reading 3: spo2_pct: "+rule.reason; got != want {
			t.Errorf("Error() = %q, want %q", got, want)
		}
		if got, want := rule.err.Error(), rule.reason; got != want {
			t.Errorf("Error() of the rule = %q, want %q", got, want)
		}
		if strings.ContainsAny(rule.reason, "\"\\") {
			t.Errorf("%q needs escapes in JSON", rule.reason)
		}
		for j, other := range rules {
			if got, want := errors.Is(e, other.err), i == j; got != want {
				t.Errorf("errors.Is(%v, %v) = %v, want %v", e, other.err, got, want)
			}
		}
		if got := testing.AllocsPerRun(100, func() { _ = e.Reason() }); got != 0 {
			t.Errorf("Reason() allocates %v times, want 0", got)
		}
	}
}

func TestFieldErrorTexts(t *testing.T) {
	for _, tt := range []struct {
		err          vitals.FieldError
		text, reason string
	}{
		{vitals.FieldError{Err: vitals.ErrEmpty}, "reading 0: no vital sign given", "no vital sign given"},
		{vitals.FieldError{Index: 1}, "reading 1: ", ""},
		{
			vitals.FieldError{Field: "time", Err: fmt.Errorf("other: %w", vitals.ErrPast)},
			"reading 0: time: other: before 1970", "other: before 1970",
		},
	} {
		if got := tt.err.Error(); got != tt.text {
			t.Errorf("Error() = %q, want %q", got, tt.text)
		}
		if got := tt.err.Reason(); got != tt.reason {
			t.Errorf("Reason() = %q, want %q", got, tt.reason)
		}
	}
}
