package vitals_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// builtIn has the built-in signs; withOwn has three more, with other decimals, a range with
// negative values, and values beyond 16 bits. Neither is modified.
var (
	builtIn = vitals.NewSigns()
	withOwn = define(
		vitals.Definition{Field: "delta_c", Label: "Difference", Unit: "Cel", Decimals: 1,
			Accepted: vitals.Range{Min: -5_0, Max: 5_0}, Usual: vitals.Range{Min: -1_0, Max: 1_0}},
		vitals.Definition{Field: "steps", Label: "Steps", Unit: "{steps}", Accepted: vitals.Range{Min: 0, Max: 200_000},
			Usual: anyValue},
		vitals.Definition{Field: "fev1_l", Label: "FEV₁", Unit: "L", Decimals: 3, LOINC: []string{"20150-9"},
			Accepted: vitals.Range{Min: 50, Max: 12_000}, Usual: anyValue},
	)
	anyValue = vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
)

func define(own ...vitals.Definition) *vitals.Signs {
	signs := vitals.NewSigns()
	if err := signs.Define(own); err != nil {
		panic(err)
	}
	return signs
}

// rmssd returns a valid definition.
func rmssd() vitals.Definition {
	return vitals.Definition{Field: "hrv_rmssd_ms", Label: "RMSSD", Unit: "ms", Decimals: 1,
		Accepted: vitals.Range{Max: 500_0}, Usual: anyValue}
}

func TestDefinitionValidate(t *testing.T) {
	const name = "field: bad definition of a sign: not a letter and at most 39 letters, digits and underscores, all " +
		"in lower case"
	const label = "label: bad definition of a sign: not 1 to 64 bytes of text"
	for _, tt := range []struct {
		change func(*vitals.Definition)
		want   string // "" if it is valid
	}{
		{func(*vitals.Definition) {}, ""},
		{func(d *vitals.Definition) { d.Field = "a" }, ""},
		{func(d *vitals.Definition) { d.Field = "a" + strings.Repeat("_", 39) }, ""},
		{func(d *vitals.Definition) { d.Field = "a" + strings.Repeat("_", 40) }, name},
		{func(d *vitals.Definition) { d.Field = "" }, name},
		{func(d *vitals.Definition) { d.Field = "1a" }, name},
		{func(d *vitals.Definition) { d.Field = "_a" }, name},
		{func(d *vitals.Definition) { d.Field = "A" }, name},
		{func(d *vitals.Definition) { d.Field = "a-b" }, name},
		{func(d *vitals.Definition) { d.Field = "ä" }, name},
		{func(d *vitals.Definition) { d.Field = "spo2_pct" },
			"field: bad definition of a sign: spo2_pct is a built-in field"},
		{func(d *vitals.Definition) { d.Field = "body_weight_kg" },
			"field: bad definition of a sign: body_weight_kg is a built-in field"},
		{func(d *vitals.Definition) { d.Field = "time" }, "field: bad definition of a sign: time is a built-in field"},
		// a column in PostgreSQL
		{func(d *vitals.Definition) { d.Field = "changed" }, "field: bad definition of a sign: changed is a built-in field"},
		{func(d *vitals.Definition) { d.Field = "pulse_pressure_mmhg" },
			"field: bad definition of a sign: pulse_pressure_mmhg is a built-in field"},
		{func(d *vitals.Definition) { d.Label = "" }, label},
		{func(d *vitals.Definition) { d.Label = strings.Repeat("a", 64) }, ""},
		{func(d *vitals.Definition) { d.Label = strings.Repeat("a", 65) }, label},
		{func(d *vitals.Definition) { d.Label = "a\nb" }, label},
		{func(d *vitals.Definition) { d.Label = "<b>" }, label},
		{func(d *vitals.Definition) { d.Label = "a\xff" }, label},
		{func(d *vitals.Definition) { d.Unit = "bpm" },
			`unit: bad definition of a sign: "bpm" is not a UCUM code that this program knows, such as ms, mm[Hg], ` +
				`/min, % or 1`},
		{func(d *vitals.Definition) { d.Decimals = 0 }, ""},
		{func(d *vitals.Definition) { d.Decimals = 3 }, ""},
		{func(d *vitals.Definition) { d.Decimals = 4 }, "decimals: bad definition of a sign: not 0 to 3"},
		{func(d *vitals.Definition) { d.Decimals = -1 }, "decimals: bad definition of a sign: not 0 to 3"},
		{func(d *vitals.Definition) { d.LOINC = []string{"80404-7"} }, ""},
		{func(d *vitals.Definition) { d.LOINC = []string{"80404-6"} },
			`loinc: bad definition of a sign: "80404-6" is not a LOINC code, such as 8867-4`},
		{func(d *vitals.Definition) { d.LOINC = slices.Repeat([]string{"80404-7"}, 9) },
			"loinc: bad definition of a sign: more than 8 codes"},
		{func(d *vitals.Definition) { d.Accepted = vitals.Range{Min: -2, Max: -1} }, ""},
		{func(d *vitals.Definition) { d.Accepted = vitals.Range{Min: 2, Max: 1} },
			"accepted: bad definition of a sign: the range ends before it starts"},
		{func(d *vitals.Definition) { d.Accepted.Max = vitals.MaxValue },
			"accepted: bad definition of a sign: the range has no end"},
		{func(d *vitals.Definition) { d.Accepted.Min = vitals.MinValue },
			"accepted: bad definition of a sign: the range has no end"},
		{func(d *vitals.Definition) { d.Usual = vitals.Range{Min: 2, Max: 1} },
			"usual: bad definition of a sign: the range ends before it starts"},
	} {
		d := rmssd()
		tt.change(&d)
		got := ""
		if err := d.Validate(); err != nil {
			got = err.Error()
			var part *vitals.FieldOf
			if !errors.Is(err, vitals.ErrDefinition) || !errors.As(err, &part) {
				t.Errorf("%v is no FieldOf that wraps ErrDefinition", err)
			}
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", d, got, tt.want)
		}
	}
}

// TestLOINC checks real codes, and that no other check digit is accepted.
func TestLOINC(t *testing.T) {
	for _, code := range []string{
		"8480-6", "8462-4", "59408-5", "2708-6", "8867-4", "40443-4", "9279-1", "8310-5", "29463-7", "2339-0",
		"15074-8", "8889-8",
		"85354-9", "80404-7", "20150-9", "8302-2", "39156-5", "41950-7",
	} {
		digits := code[:len(code)-1]
		for c := byte('0'); c <= '9'; c++ {
			d := rmssd()
			d.LOINC = []string{digits + string(c)}
			if got, want := d.Validate() == nil, d.LOINC[0] == code; got != want {
				t.Errorf("%s: valid %v, want %v", d.LOINC[0], got, want)
			}
		}
	}
	for _, code := range []string{"", "-", "-0", "1-", "8867", "88674", "8867-44", "a867-4", "8867-x", "LP8867-4",
		"12345678-0"} {
		d := rmssd()
		d.LOINC = []string{code}
		if d.Validate() == nil {
			t.Errorf("%q is accepted", code)
		}
	}
}

func TestUCUM(t *testing.T) {
	for _, unit := range strings.Fields(
		"ms s % 1 /min mm[Hg] cm[H2O] Cel mCel [degF] kg g mg/dL mmol/L umol/L mL/kg/min L/min 10*3/uL 10*9/L kg/m2 m/s2 " +
			"kcal [Cal] " +
			"U/L [iU]/mL mV W kPa {steps} {beats}/min /{a.b} mL{total}/d dB Hz [pH] [MET] min h d wk mo a m2 10*-3") {
		if !vitals.IsUCUM(unit) {
			t.Errorf("%s is refused", unit)
		}
	}
	for _, unit := range append(
		strings.Fields(
			"bpm mmHg °C C degC percent %% kmin m% k[degF] d[pH] h[MET] // min/ ./s s. m..s {} {steps {a{b}} {a}b 10* 10*x 0 "+
				"sec hr steps kk m+ 10^3 /"),
		"", "m s", " m", "{a b}", "{<\"}", "{é}", strings.Repeat("m.", 16)+"m") {
		if vitals.IsUCUM(unit) {
			t.Errorf("%q is accepted", unit)
		}
	}
}

func TestDefine(t *testing.T) {
	signs := vitals.NewSigns()
	must := func(own ...vitals.Definition) {
		t.Helper()
		try(t, signs.Define(own))
	}
	refused := func(index int, text string, own ...vitals.Definition) {
		t.Helper()
		before := fmt.Sprint(table(signs))
		err := signs.Define(own)
		var at *vitals.DefinitionError
		if !errors.As(err, &at) || at.Index != index || !errors.Is(err, vitals.ErrDefinition) || err.Error() != text {
			t.Errorf("Define = %v of %+v, want definition %d: %s", err, at, index, text)
		}
		if after := fmt.Sprint(table(signs)); after != before {
			t.Errorf("a refused Define changed %s to %s", before, after)
		}
	}
	a, b, c := rmssd(), rmssd(), rmssd()
	b.Field, c.Field = "b", "c"

	must(a, b)
	must(b) // a is retired
	must(b, c)
	if got, want := fmt.Sprint(table(signs)), "[31 hrv_rmssd_ms retired 30 b 29 c]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	must(c, a) // numbers stay
	if got, want := fmt.Sprint(table(signs)), "[31 hrv_rmssd_ms 30 b retired 29 c]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	changed := a
	changed.Label, changed.LOINC, changed.Accepted, changed.Usual = "other", []string{"80404-7"},
		vitals.Range{Min: 1, Max: 2}, vitals.Range{Min: 1, Max: 1}
	must(changed)
	if d := signs.Of(31); d.Label != "other" || d.Accepted.Max != 2 || d.LOINC[0] != "80404-7" || d.Usual.Max != 1 {
		t.Errorf("changed to %+v", d)
	}

	unit, decimals := a, a
	unit.Unit, decimals.Decimals = "s", 2
	const bad = "bad definition of a sign: "
	refused(1, "unit: "+bad+"hrv_rmssd_ms is stored in ms", b, unit)
	refused(0, "decimals: "+bad+"hrv_rmssd_ms is stored with 1 decimals", decimals)
	refused(2, "field: "+bad+"b is given twice", b, c, b)
	refused(1, "decimals: "+bad+"not 0 to 3", c, vitals.Definition{Field: "d", Label: "d", Unit: "1", Decimals: 4})

	own := make([]vitals.Definition, vitals.MaxSigns-vitals.NumBuiltIn-3)
	for i := range own {
		own[i] = a
		own[i].Field = fmt.Sprintf("x%d", i)
	}
	must(own...)
	if got := signs.Known(); got != 1<<vitals.MaxSigns-1 {
		t.Errorf("Known() = %b after as many as possible", got)
	}
	d := a
	d.Field = "d"
	refused(1, "field: "+bad+"more than 32 signs, including those that the store has", a, d)
	must() // all are retired, and known
	if got := signs.Known(); got != 1<<vitals.MaxSigns-1 {
		t.Errorf("Known() = %b after all were retired", got)
	}
}

// table returns the signs of a user's own: number and field, and whether they are retired.
func table(signs *vitals.Signs) (texts []string) {
	for s, d := range signs.All() {
		if !d.Own() {
			continue
		}
		text := fmt.Sprint(int(s), " ", d.Field)
		if d.Retired {
			text += " retired"
		}
		texts = append(texts, text)
	}
	return texts
}

func TestRestore(t *testing.T) {
	signs := vitals.NewSigns()
	a, b := rmssd(), rmssd()
	b.Field = "b"
	for range 2 {
		try(t, signs.Restore(20, a))
	}
	unit, decimals, invalid := a, a, a
	unit.Unit, decimals.Decimals, invalid.Label = "s", 2, ""
	for _, tt := range []struct {
		number vitals.Sign
		d      vitals.Definition
	}{{21, a}, {20, b}, {20, unit}, {20, decimals}, {21, invalid}, {vitals.MaxSigns, b}, {255, b}} {
		if err := signs.Restore(tt.number, tt.d); !errors.Is(err, vitals.ErrDefinition) {
			t.Errorf("Restore(%d, %+v) = %v, want ErrDefinition", tt.number, tt.d, err)
		}
	}
	// Numbers before the last one are not used, because they may have been.
	try(t, signs.Define([]vitals.Definition{b}))
	if got, want := fmt.Sprint(table(signs)), "[20 hrv_rmssd_ms retired 19 b]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s, ok := signs.Named("b"); s != 19 || !ok || signs.Field(19) != "b" || signs.Field(18) != "" ||
		signs.Of(255) != nil {
		t.Errorf("b is %d, %v, %q", s, ok, signs.Field(19))
	}
}

// TestRestoreLater restores signs of a user's own to the table of a version with one more built-in sign and
// other units: all but those that have its field or its number.
func TestRestoreLater(t *testing.T) {
	steps := vitals.Definition{Field: "step_count", Label: "Steps", Unit: "1", Accepted: vitals.Range{Min: 1, Max: 1e6},
		Usual: vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}}
	signs := vitals.NewSigns(steps)
	unit, field, other := rmssd(), rmssd(), rmssd()
	unit.Unit, field.Field, other.Field = "furlong", steps.Field, "other"
	if err := signs.Restore(vitals.OwnSign(0), unit); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		number vitals.Sign
		d      vitals.Definition
		want   string
	}{
		{30, field, "step_count is a built-in field of this version"},
		{vitals.NumBuiltIn, field, "step_count is a built-in field of this version"},
		{vitals.NumBuiltIn, other, "other has the number of step_count: this version has room for fewer signs of your own"},
		{vitals.PulseRate, other,
			"other has the number of pulse_rate_bpm: this version has room for fewer signs of your own"},
	} {
		err := signs.Restore(tt.number, tt.d)
		if !errors.Is(err, vitals.ErrTaken) || !strings.HasSuffix(err.Error(), ": "+tt.want) {
			t.Errorf("Restore(%d, %s) = %v, want ErrTaken: %s", tt.number, tt.d.Field, err, tt.want)
		}
	}
	if got, want := fmt.Sprint(table(signs)), "[31 hrv_rmssd_ms]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var own []vitals.Definition
	for i := range vitals.MaxSigns - vitals.NumBuiltIn - 1 {
		own = append(own, rmssd())
		own[i].Field = fmt.Sprintf("x%d", i)
	}
	if err := signs.Define(own); err == nil {
		t.Error("a sign got the number of a built-in one")
	}
	if err := signs.Define(own[1:]); err != nil || signs.Known() != 1<<vitals.MaxSigns-1 {
		t.Errorf("Define of as many as there is room for: %v", err)
	}
}

// TestOrder checks that signs are in the order of their numbers if they are built in, and otherwise in the
// order in which they were defined, in all that goes through a table or values.
func TestOrder(t *testing.T) {
	all := vitals.Values{}
	all.SetPresent(1<<vitals.MaxSigns - 1)
	var want []vitals.Sign
	for s := range vitals.Sign(vitals.NumBuiltIn) {
		want = append(want, s)
	}
	signs := vitals.NewSigns()
	var own []vitals.Definition
	for i := range vitals.MaxSigns - vitals.NumBuiltIn {
		want = append(want, vitals.OwnSign(i))
		own = append(own, rmssd())
		own[i].Field = fmt.Sprintf("x%d", i)
		try(t, signs.Define(own))
	}
	var ofTable, ofValues, members []vitals.Sign
	for s := range signs.All() {
		ofTable = append(ofTable, s)
	}
	for s := range all.All() {
		ofValues = append(ofValues, s)
	}
	for member := range strings.SplitSeq(string(signs.AppendMembers(nil, &all))[1:], ",") {
		field, _, _ := strings.Cut(member[1:], `"`)
		s, _ := signs.Named(field)
		members = append(members, s)
	}
	if !slices.Equal(ofTable, want) || !slices.Equal(ofValues, want) || !slices.Equal(members, want) {
		t.Errorf("the order is %d, %d, %d, want %d", ofTable, ofValues, members, want)
	}
}

// TestManyFields checks that the decoder finds each of 32 signs by its field and nothing by a text
// that is similar, and that a retired sign is an unknown field.
func TestManyFields(t *testing.T) {
	own := make([]vitals.Definition, vitals.MaxSigns-vitals.NumBuiltIn)
	for i := range own {
		own[i] = rmssd()
		own[i].Field = fmt.Sprintf("own_%02d_sign", i)
	}
	signs := define(own...)
	try(t, signs.Define(own[1:]))
	rules, err := vitals.NewValidator(signs.DefaultLimits())
	try(t, err)
	decoder := vitals.NewDecoder(rules, vitals.DecoderOptions{})
	refusal := func(member string) (field string, err error) {
		var batch vitals.Batch
		body := `{"device":"a","time":"2026-11-21T10:00:00Z",` + member + `}`
		if err := decoder.Decode([]byte(body), nowUnixMs, &batch); err != nil || batch.Len() != 1 {
			t.Fatalf("%s: %v", body, err)
		}
		if len(batch.Refused) == 0 {
			return "", nil
		}
		return batch.Refused[0].Field, batch.Refused[0].Err
	}
	for _, d := range signs.All() {
		if field, err := refusal(`"` + d.Field + `":"1"`); !errors.Is(err, vitals.ErrType) == !d.Retired || field != d.Field {
			t.Errorf("%s: %s, %v", d.Field, field, err)
		}
		for _, similar := range []string{d.Field + "x", d.Field[1:], d.Field[:len(d.Field)-1], strings.ToUpper(d.Field),
			"x" + d.Field[1:]} {
			if _, err := refusal(`"` + similar + `":1`); !errors.Is(err, vitals.ErrUnknownField) {
				t.Errorf("%s: %v, want ErrUnknownField", similar, err)
			}
		}
	}
	if _, err := refusal(`"own_00_sign":1`); !errors.Is(err, vitals.ErrUnknownField) {
		t.Errorf("a retired sign: %v, want ErrUnknownField", err)
	}
	r := vitals.Reading{Device: name(t, "a"), TimeUnixMs: nowUnixMs, Values: values(vitals.MaxSigns-1, 1)}
	if err := rules.Validate(&r, nowUnixMs); !errors.Is(err, vitals.ErrUnknownField) {
		t.Errorf("Validate of a retired sign = %v, want ErrUnknownField", err)
	}
}

// TestRetiredNotIgnored checks that a value of a retired sign is rejected also where unknown fields are ignored.
func TestRetiredNotIgnored(t *testing.T) {
	signs := vitals.NewSigns()
	own := vitals.Definition{Field: "hrv", Label: "HRV", Unit: "ms", Accepted: vitals.Range{Min: 0, Max: 500},
		Usual: vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}}
	for _, defined := range [][]vitals.Definition{{own}, nil} {
		try(t, signs.Define(defined))
	}
	rules, err := vitals.NewValidator(signs.DefaultLimits())
	try(t, err)
	var b vitals.Batch
	body := `{"device":"a","time":"2026-01-01T00:00:00Z","spo2_pct":97,"hrv":40,"other":1}`
	try(t, vitals.NewDecoder(rules, vitals.DecoderOptions{IgnoreUnknown: true}).Decode([]byte(body), nowUnixMs, &b))
	if len(b.Refused) != 1 || b.Refused[0].Field != "hrv" || b.Refused[0].Err != vitals.ErrUnknownField {
		t.Errorf("accepted %v, refused %v", b.Readings, b.Refused)
	}
}
