package vitals_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/vitals"
)

// TestValuesEqual sets signs in any order, some of them repeatedly, and checks that ==
// compares only the final values.
func TestValuesEqual(t *testing.T) {
	type model map[vitals.Sign]vitals.Hundredths
	draw := func(t *rapid.T, label string) (vitals.Values, model) {
		var values vitals.Values
		given := model{}
		for range rapid.IntRange(0, 8).Draw(t, label) {
			s := vitals.Sign(rapid.IntRange(0, vitals.NumSigns-1).Draw(t, "sign"))
			v := vitals.Hundredths(rapid.Uint16Range(0, 2).Draw(t, "value"))
			values.Set(s, v)
			given[s] = v
		}
		return values, given
	}
	same := func(a, b model) bool {
		if len(a) != len(b) {
			return false
		}
		for s, v := range a {
			if w, ok := b[s]; !ok || v != w {
				return false
			}
		}
		return true
	}
	rapid.Check(t, func(t *rapid.T) {
		a, givenA := draw(t, "a")
		b, givenB := draw(t, "b")
		if got, want := a == b, same(givenA, givenB); got != want {
			t.Errorf("%v == %v is %v, want %v", givenA, givenB, got, want)
		}
		if got, want := a.IsZero(), len(givenA) == 0; got != want {
			t.Errorf("%v: IsZero() = %v, want %v", givenA, got, want)
		}
		for s := range vitals.Sign(vitals.NumSigns) {
			v, has := a.Get(s)
			wantV, wantHas := givenA[s]
			if v != wantV || has != wantHas || a.Has(s) != wantHas || a.Present()>>s&1 == 1 != wantHas {
				t.Errorf("%v: Get(%v) = %d, %v; want %d, %v", givenA, s, v, has, wantV, wantHas)
			}
		}
	})
}

// TestSigns checks the numbers, which are part of the stored format, and the codes of
// the signs.
func TestSigns(t *testing.T) {
	for _, tt := range []struct {
		number vitals.Sign
		sign   vitals.Sign
		field  string
		unit   string
		loinc  []string
	}{
		{0, vitals.Systolic, "systolic_mmhg", "mm[Hg]", []string{"8480-6"}},
		{1, vitals.Diastolic, "diastolic_mmhg", "mm[Hg]", []string{"8462-4"}},
		{2, vitals.SpO2, "spo2_pct", "%", []string{"59408-5", "2708-6"}},
		{3, vitals.HeartRate, "heart_rate_bpm", "/min", []string{"8867-4"}},
		{4, vitals.RestingHeartRate, "resting_heart_rate_bpm", "/min", []string{"40443-4", "8867-4"}},
	} {
		if tt.sign != tt.number || tt.sign.Field() != tt.field || tt.sign.String() != tt.field || tt.sign.Unit() != tt.unit {
			t.Errorf("sign %d is %d, %q in %q; want %q in %q", tt.number, tt.sign, tt.sign.Field(), tt.sign.Unit(), tt.field, tt.unit)
		}
		got := tt.sign.LOINC()
		if len(got) != len(tt.loinc) {
			t.Fatalf("%v: LOINC() = %q, want %q", tt.sign, got, tt.loinc)
		}
		for i := range got {
			if got[i] != tt.loinc[i] {
				t.Errorf("%v: LOINC() = %q, want %q", tt.sign, got, tt.loinc)
			}
			got[i] = "" // modify the returned copy
		}
		if tt.sign.LOINC()[0] != tt.loinc[0] {
			t.Errorf("%v: LOINC() returned shared memory", tt.sign)
		}
	}
}
