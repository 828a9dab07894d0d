package codes_test

import (
	"strconv"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/vitals"
)

// Each code of IEEE 11073-10101 has its partition: signs are in 2 or 3, units in 4. A unit has the decimal prefix that
// the last five bits of its code stand for (IEEE 11073-10101, A.3).
func TestMDC(t *testing.T) {
	signs := vitals.NewSigns()
	units := map[string]bool{}
	for code := range 1 << 19 {
		text := strconv.Itoa(code)
		if s, ok := codes.MDC(text); ok && (code>>16 != 2 || signs.Of(s) == nil) {
			t.Errorf("%d is the code of %s", code, signs.Field(s))
		}
		unit, ok := codes.MDCUnit(text)
		if !ok {
			continue
		}
		units[unit] = true
		prefix := map[int]string{0: "", 3: "k", 18: "m"}[code&31]
		if code>>16 != 4 || !vitals.IsUCUM(unit) || prefix != "" && unit[:1] != prefix {
			t.Errorf("%d is the code of %s", code, unit)
		}
	}
	for _, d := range signs.All() {
		if !units[d.Unit] {
			t.Errorf("no code of %s", d.Unit)
		}
	}
}

// A LOINC code is that of the first sign that has it, and each sign has one.
func TestLOINC(t *testing.T) {
	signs := vitals.NewSigns()
	for s, d := range signs.All() {
		if got, ok := codes.LOINC(signs, d.LOINC[0]); !ok || got != s {
			t.Errorf("%s is the code of %s, want %s", d.LOINC[0], signs.Field(got), d.Field)
		}
	}
	if got, _ := codes.LOINC(signs, "8867-4"); signs.Field(got) != "heart_rate_bpm" {
		t.Errorf("8867-4 is the code of %s", signs.Field(got))
	}
	if _, ok := codes.LOINC(signs, "1-8"); ok {
		t.Error("1-8 is the code of a sign")
	}
	own := vitals.Definition{Field: "fev1_l", Label: "FEV1", Unit: "L", LOINC: []string{"20150-9"}, Accepted: vitals.Range{Min: 1, Max: 12}, Usual: vitals.Range{Min: 1, Max: 12}}
	for _, define := range [][]vitals.Definition{{own}, nil} {
		if err := signs.Define(define); err != nil {
			t.Fatal(err)
		}
		if _, ok := codes.LOINC(signs, "20150-9"); ok != (define != nil) {
			t.Errorf("own sign defined: %v, known: %v", define != nil, ok)
		}
	}
}
