package codes_test

import (
	"strconv"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/vitals"
)

// Each code of IEEE 11073-10101 has its partition: signs are in 2 or 3, units in 4. A unit has the decimal prefix that
// the last five bits of its code stand for (IEEE 11073-10101, A.3). Two sources of a sign have never the same place.
func TestMDC(t *testing.T) {
	table := codes.Table{Signs: vitals.NewSigns()}
	units, places := map[string]bool{}, map[[2]int]int{}
	for code := range 1 << 19 {
		text := strconv.Itoa(code)
		if m := table.MDC(text); m != 0 {
			s, order, ok := table.Sign(m)
			if code>>16 != 2 || !ok {
				t.Errorf("%d is the code of %s", code, table.Signs.Field(s))
			}
			place := [2]int{int(s), order}
			if other, twice := places[place]; twice {
				t.Errorf("%d and %d have the same place", other, code)
			}
			places[place] = code
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
	for _, d := range table.Signs.All() {
		if !units[d.Unit] {
			t.Errorf("no code of %s", d.Unit)
		}
	}
	// A ventilator, the airway, the skin, arterial blood.
	for _, code := range []string{"151586", "151570", "150388", "150324"} {
		if table.MDC(code) != 0 {
			t.Errorf("%s is the code of a sign", code)
		}
	}
}

// Each sign has a LOINC code of its own, which comes first.
func TestLOINC(t *testing.T) {
	table := codes.Table{Signs: vitals.NewSigns()}
	for s, d := range table.Signs.All() {
		if got, _, ok := table.Sign(table.LOINC(d.LOINC[0])); !ok || got != s {
			t.Errorf("%s is the code of %s, want %s", d.LOINC[0], table.Signs.Field(got), d.Field)
		}
	}
	if table.LOINC("1-8") != 0 {
		t.Error("1-8 is the code of a sign")
	}
	own := vitals.Definition{Field: "fev1_l", Label: "FEV1", Unit: "L", LOINC: []string{"20150-9"},
		Accepted: vitals.Range{Min: 1, Max: 12}, Usual: vitals.Range{Min: 1, Max: 12}}
	for _, define := range [][]vitals.Definition{{own}, nil} {
		try(t, table.Signs.Define(define))
		if _, _, ok := table.Sign(table.LOINC("20150-9")); ok != (define != nil) {
			t.Errorf("own sign defined: %v, known: %v", define != nil, ok)
		}
	}
}
