package vitals_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/vitals"
)

// TestValuesEqual sets signs in any order, some of them repeatedly, and checks that ==
// compares only the final values, and that Equal, CopyFrom, Pack, Unpack and Reset agree with it.
func TestValuesEqual(t *testing.T) {
	type model map[vitals.Sign]vitals.Value
	draw := func(t *rapid.T, label string) (vitals.Values, model) {
		var values vitals.Values
		given := model{}
		for range rapid.IntRange(0, 8).Draw(t, label) {
			s := vitals.Sign(rapid.IntRange(0, vitals.MaxSigns-1).Draw(t, "sign"))
			v := vitals.Value(rapid.Int32Range(-1, 1).Draw(t, "value"))
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
		if got, want := a == b, same(givenA, givenB); got != want || a.Equal(&b) != want {
			t.Errorf("%v == %v is %v, Equal returns %v, want %v", givenA, givenB, got, a.Equal(&b), want)
		}
		if got := a.Len(); got != len(givenA) {
			t.Errorf("%v: Len() = %d", givenA, got)
		}
		copied, unpacked, reset := b, b, b
		packed := make([]vitals.Value, a.Len())
		a.Pack(packed)
		copied.CopyFrom(&a)
		unpacked.Unpack(a.Present(), packed)
		reset.Reset()
		if copied != a || unpacked != a || reset != (vitals.Values{}) {
			t.Errorf("%v made equal to %v: CopyFrom makes %v, Unpack %v; Reset makes %v", givenB, givenA, copied,
				unpacked, reset)
		}
		if got, want := a.IsZero(), len(givenA) == 0; got != want {
			t.Errorf("%v: IsZero() = %v, want %v", givenA, got, want)
		}
		for s := range vitals.Sign(vitals.MaxSigns) {
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
		{5, vitals.RespiratoryRate, "respiratory_rate_bpm", "/min", []string{"9279-1"}},
		{6, vitals.BodyTemperature, "body_temperature_c", "Cel", []string{"8310-5"}},
		{7, vitals.BodyWeight, "body_weight_kg", "kg", []string{"29463-7"}},
		{8, vitals.GlucoseMass, "glucose_mg_dl", "mg/dL", []string{"2339-0"}},
		{9, vitals.GlucoseMolar, "glucose_mmol_l", "mmol/L", []string{"15074-8"}},
		{10, vitals.PulseRate, "pulse_rate_bpm", "/min", []string{"8889-8", "8867-4"}},
	} {
		d := builtIn.Of(tt.sign)
		if tt.sign != tt.number || d.Field != tt.field || d.Unit != tt.unit || d.Label == "" || d.Retired {
			t.Errorf("sign %d is %d, %+v; want %q in %q", tt.number, tt.sign, d, tt.field, tt.unit)
		}
		if !slices.Equal(d.LOINC, tt.loinc) {
			t.Errorf("%s: LOINC %q, want %q", tt.field, d.LOINC, tt.loinc)
		}
		if !vitals.IsUCUM(d.Unit) {
			t.Errorf("%s: %q is not a known unit", tt.field, d.Unit)
		}
	}
	if got := builtIn.Known(); got != 1<<vitals.NumBuiltIn-1 {
		t.Errorf("Known() = %b", got)
	}
}
