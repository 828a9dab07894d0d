package signsfile_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/sys/signsfile"
	"github.com/pulsegate/pulsegate/vitals"
)

const good = `# signs of the sleep laboratory
[[sign]]
field = "hrv_rmssd_ms"
label = "RMSSD"
unit = "ms"
decimals = 1
accepted = { min = 0, max = 500 }
usual = { min = 10 }
critical = { max = 5 }
loinc = ["80404-7"]

[[sign]]
field = "skin_drift_k"
label = "Drift"
unit = "K"
decimals = 3
[sign.accepted]
min = -2.125
max = 2.5e0
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "signs.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestRead checks that numbers are read exactly.
func TestRead(t *testing.T) {
	got, err := signsfile.Read(write(t, good))
	want := []vitals.Definition{
		{
			Field: "hrv_rmssd_ms", Label: "RMSSD", Unit: "ms", Decimals: 1, LOINC: []string{"80404-7"},
			Accepted: vitals.Range{Min: 0, Max: 5000}, Usual: vitals.Range{Min: 100, Max: vitals.MaxValue},
			Critical: &vitals.Range{Min: vitals.MinValue, Max: 50},
		},
		{
			Field: "skin_drift_k", Label: "Drift", Unit: "K", Decimals: 3,
			Accepted: vitals.Range{Min: -2125, Max: 2500}, Usual: vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestErrors checks that errors have the line, the key and the reason.
func TestErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{`unit = "ms"`, `unit = "millis"`,
			`signs.toml:5: unit: bad definition of a sign: "millis" is not a UCUM code that this program knows, such as ms, ` +
				`mm[Hg], /min, % or 1`},
		{`decimals = 1`, `decimals = 1.5`, "signs.toml:6: decimals: toml: cannot decode TOML float"},
		{`label = "RMSSD"`, `label = 7`, "signs.toml:4: label: toml: cannot decode TOML integer"},
		{`max = 500 }`, `max = 2026-11-26 }`, "signs.toml:7: accepted: toml: cannot decode TOML local date"},
		{`decimals = 1`, `decimals = 4`, "signs.toml:6: decimals: bad definition of a sign: not 0 to 3"},
		{`max = 500 }`, `max = 500.25 }`, "signs.toml:7: accepted: max has more decimals than the sign, which has 1"},
		{`max = 500 }`, `max = 214748364.7 }`,
			"signs.toml:7: accepted: max is not within ±2147483646 units of the last decimal"},
		{`min = 0, max = 500`, `min = 501, max = 500`,
			"signs.toml:7: accepted: bad definition of a sign: the range ends before it starts"},
		{`min = 0, max = 500`, `max = 500`, "signs.toml:7: accepted: needs min and max"},
		{`min = 10 }`, `min = "low" }`, "signs.toml:8: usual: min is not a decimal number"},
		{`max = 5 }`, `max = 5.25 }`, "signs.toml:9: critical: max has more decimals than the sign, which has 1"},
		{`max = 5 }`, `max = 10 }`, "signs.toml:9: critical: bad definition of a sign: the range has values that are usual"},
		{`max = 5 }`, `min = 6, max = 5 }`,
			"signs.toml:9: critical: bad definition of a sign: the range ends before it starts"},
		{`"80404-7"`, `"80404-8"`,
			`signs.toml:10: loinc: bad definition of a sign: "80404-8" is not a LOINC code, such as 8867-4`},
		{`field = "hrv_rmssd_ms"`, `field = "spo2_pct"`,
			"signs.toml:3: field: bad definition of a sign: spo2_pct is a built-in field"},
		{`label = "RMSSD"`, ``, "signs.toml:2: label: bad definition of a sign: not 1 to 64 bytes of text"},
		{`label = "RMSSD"`, `labl = "RMSSD"`, "signs.toml:4: labl: unknown key"},
		{`min = -2.125`, `min = -2.1256`, "signs.toml:17: accepted: min has more decimals than the sign, which has 3"},
		{`label = "RMSSD"`, `label = "RMSSD`, "signs.toml:4: "},
	} {
		_, err := signsfile.Read(write(t, strings.Replace(good, tt.old, tt.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.new, err, tt.want)
		} else if strings.Contains(err.Error(), "signsfile.") {
			t.Errorf("%s: got %v, which names a type of Go", tt.new, err)
		}
	}
}

// TestLocate checks that errors of a store are located too.
func TestLocate(t *testing.T) {
	path := write(t, strings.Replace(good, "skin_drift_k", "hrv_rmssd_ms", 1))
	own, err := signsfile.Read(path)
	try(t, err)
	err = signsfile.Locate(path, vitals.NewSigns().Define(own))
	if want := path + ":13: field: bad definition of a sign: hrv_rmssd_ms is given twice"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// FuzzRead tests that a file is either refused with its name, or has definitions that a table takes as they are.
func FuzzRead(f *testing.F) {
	f.Add(good)
	f.Add("sign = [{field='a',label='b',unit='1',accepted={min=-1_0,max=0x7F}}]")
	f.Add("[[sign]]\nfield = 1979-05-27\naccepted = { min = nan, max = inf }")
	path := filepath.Join(f.TempDir(), "signs.toml")
	f.Fuzz(func(t *testing.T, text string) {
		try(t, os.WriteFile(path, []byte(text), 0o600))
		own, err := signsfile.Read(path)
		if err != nil {
			if own != nil || !strings.Contains(err.Error(), path) {
				t.Errorf("got %+v, %v", own, err)
			}
			return
		}
		for _, want := range own {
			signs := vitals.NewSigns()
			try(t, signs.Define([]vitals.Definition{want}))
			s, ok := signs.Named(want.Field)
			if got := signs.Of(s); !ok || got.Label != want.Label || got.Unit != want.Unit || got.Decimals != want.Decimals ||
				got.Accepted != want.Accepted || got.Usual != want.Usual {
				t.Errorf("defined %+v, want %+v", got, want)
			}
		}
	})
}

var try = polltest.Try
