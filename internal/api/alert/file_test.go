package alert_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

const goodRules = `# the night shift
[[alert]]
name = "SpO2Low"
sign = "spo2_pct"
flag = "low"
for = "2m"
values = 3
devices = "ward3-"
labels = { severity = "page", ward = "3" }

[[alert]]
name = "Warm"
sign = "body_temperature_c"
above = 38.5
max_age = "1h30m"

[[alert]]
name = "Light"
sign = "body_weight_kg"
below = 4_0.005

[[alert]]
name = "Silent"
silent = "30m"
max_age = "24h"
[alert.labels]
severity = "info"
`

func readRules(t testing.TB, text string) ([]alert.Rule, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "alerts.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	limits := vitals.NewSigns().DefaultFlagLimits()
	return alert.ReadRules(path, &limits)
}

func TestReadRules(t *testing.T) {
	got, err := readRules(t, goodRules)
	want := []alert.Rule{
		{
			Name: "SpO2Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 91_00},
			For: 2 * time.Minute, Values: 3,
			MaxAge: 10 * time.Minute, Devices: "ward3-", Labels: map[string]string{"severity": "page", "ward": "3"},
			Field: "spo2_pct", Condition: "spo2_pct flagged as low for 2m in at least 3 values",
		},
		{Name: "Warm", Sign: vitals.BodyTemperature, Met: vitals.Range{Min: 38_51, Max: vitals.MaxValue}, Values: 1,
			MaxAge: 90 * time.Minute, Field: "body_temperature_c", Condition: "body_temperature_c above 38.5"},
		{Name: "Light", Sign: vitals.BodyWeight, Met: vitals.Range{Min: vitals.MinValue, Max: 40_004}, Values: 1,
			MaxAge: 10 * time.Minute, Field: "body_weight_kg", Condition: "body_weight_kg below 40.005"},
		{Name: "Silent", Silent: 30 * time.Minute, MaxAge: 24 * time.Hour, Labels: map[string]string{"severity": "info"},
			Condition: "no reading for 30m"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Errors have the line, the key and the reason.
func TestReadRulesErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{`name = "SpO2Low"`, ``, "alerts.toml:2: name: missing"},
		{`name = "SpO2Low"`, `name = "a\nb"`, "alerts.toml:3: name: not a text"},
		{`name = "SpO2Low"`, `nam = "SpO2Low"`, "alerts.toml:3: nam: unknown key"},
		{`sign = "spo2_pct"`, `sign = "sp02_pct"`,
			`alerts.toml:4: sign: "sp02_pct" is not a sign; the signs are systolic_mmhg`},
		{`sign = "spo2_pct"`, ``, "alerts.toml:2: sign: missing"},
		{`sign = "spo2_pct"`, `silent = "1m"`, "cannot be combined with silent"},
		{`sign = "spo2_pct"`, `sign = []`, "alerts.toml:4: sign: missing"},
		{`sign = "spo2_pct"`, `sign = 5`, `alerts.toml:4: sign: "5" is not a sign`},
		{`sign = "spo2_pct"`, `sign = ["spo2_pct", 5]`, `alerts.toml:4: sign: "5" is not a sign`},
		{`sign = "spo2_pct"`, `sign = [["spo2_pct"]]`, `alerts.toml:4: sign: "[spo2_pct]" is not a sign`},
		{`sign = "spo2_pct"`, `sign = ["spo2_pct", "pulse"]`, `alerts.toml:4: sign: "pulse" is not a sign`},
		{`sign = "spo2_pct"`, `sign = ["spo2_pct", "spo2_pct"]`, "alerts.toml:4: sign: spo2_pct is given twice"},
		{`flag = "low"`, ``, "alerts.toml:4: sign: a rule about a sign has one of flag, above and below"},
		{`flag = "low"`, "flag = \"low\"\nbelow = 88", "alerts.toml:6: below: a rule about a sign has one of"},
		{`flag = "low"`, `flag = "Low"`, "alerts.toml:5: flag: not low or high"},
		{`flag = "low"`, `flag = "high"`,
			"alerts.toml:5: flag: no value of spo2_pct is flagged as high: its usual range is 91.01.."},
		{`for = "2m"`, `for = 120`, "alerts.toml:6: for: not a duration"},
		{`for = "2m"`, `for = "24h1s"`, "alerts.toml:6: for: not from 0s to 24h0m0s"},
		{`for = "2m"`, `for = "-1s"`, "alerts.toml:6: for: not from"},
		{`values = 3`, `values = 0`, "alerts.toml:7: values: not from 1 to 1000"},
		{`values = 3`, `values = 1001`, "alerts.toml:7: values: not from 1 to 1000"},
		{`values = 3`, `values = "3"`, "alerts.toml:7: "},
		{`devices = "ward3-"`, `devices = "ward 3"`, "alerts.toml:8: devices: no name"},
		{`ward = "3"`, `"a-b" = "3"`, `alerts.toml:9: labels: "a-b" is not the name`},
		{`ward = "3"`, `__x = "3"`, `alerts.toml:9: labels: "__x" is reserved`},
		{`ward = "3"`, `device = "3"`, `alerts.toml:9: labels: "device" is set by the server`},
		{`ward = "3"`, `sign = "3"`, `"sign" is set by the server`},
		{`ward = "3"`, `alertname = "3"`, `"alertname" is set by the server`},
		{`ward = "3"`, `ward = ""`, `alerts.toml:9: labels: the value of "ward"`},
		{`above = 38.5`, `above = 38.505`, "alerts.toml:14: above: the limit has more decimals than the sign, which has 2"},
		{`above = 38.5`, `above = "warm"`, "alerts.toml:14: above: the limit is not a decimal number"},
		{`above = 38.5`, `above = nan`, "alerts.toml:14: above: the limit is not a decimal number"},
		{`max_age = "1h30m"`, `max_age = "0s"`, "alerts.toml:15: max_age: not from 1s"},
		{`max_age = "24h"`, `max_age = "30m"`, "alerts.toml:25: max_age: not from 30m1s"},
		{`silent = "30m"`, `silent = "0s"`, "alerts.toml:24: silent: not from 1s"},
		{`severity = "info"`, `severity = 1`, "alerts.toml:27: "},
		{`name = "Light"`, `name = "Light`, "alerts.toml:18: "},
		{goodRules, strings.Repeat("#", 1<<19), "is larger than 262144 bytes"},
		{goodRules, "", "alerts.toml: no [[alert]]"},
		{goodRules, "# none", "alerts.toml: no [[alert]]"},
		{goodRules, rulesOf(65), fmt.Sprintf("alerts.toml:%d: name: more than 64 alerts", 1+3*64+1)},
		{goodRules, "[[alert]]\nname = \"x\"\nsign = [\"spo2_pct\", \"heart_rate_bpm\"]\nbelow = 50\n" + rulesOf(63),
			"name: more than 64 alerts; one with several signs counts for each"},
		{`sign = "spo2_pct"
flag = "low"`, "sign = [\"spo2_pct\", \"body_weight_kg\"]\nabove = 50.005",
			"above: the limit has more decimals than the sign, which has 2"},
	} {
		_, err := readRules(t, strings.Replace(goodRules, tt.old, tt.new, 1))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40s: got %v, want %s", tt.new, err, tt.want)
		}
	}
}

func rulesOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[alert]]\nname = \"r%d\"\nsilent = \"1m\"\n", i)
	}
	return b.String()
}

// Two alerts of a device never have the same labels.
func TestSameLabels(t *testing.T) {
	const spo2 = "[[alert]]\nname = \"X\"\nsign = \"spo2_pct\"\nbelow = 88\n"
	for _, tt := range []struct {
		name, text string
		want       string
	}{
		{"the same", spo2 + spo2, "alerts.toml:6: name: for some devices, the labels are those of the alert in line 2"},
		{"a prefix of the other", spo2 + "devices = \"a\"\n" + spo2 + "devices = \"ab\"\n", "alerts.toml:7: name"},
		{"all devices", spo2 + "devices = \"a\"\n" + spo2, "alerts.toml:7: name"},
		{"other devices", spo2 + "devices = \"a\"\n" + spo2 + "devices = \"b\"\n", ""},
		{"another label", spo2 + "labels = {a=\"1\"}\n" + spo2 + "labels = {a=\"2\"}\n", ""},
		{"one more label", spo2 + "labels = {a=\"1\"}\n" + spo2, ""},
		{"another sign", spo2 + "[[alert]]\nname = \"X\"\nsign = \"heart_rate_bpm\"\nabove = 120\n", ""},
		{"one of several signs", "[[alert]]\nname = \"X\"\nsign = [\"heart_rate_bpm\", \"spo2_pct\"]\nbelow = 88\n" + spo2,
			"alerts.toml:6: name: for some devices, the labels are those of the alert in line 2"},
		{"silence",
			"[[alert]]\nname = \"X\"\nsilent = \"1m\"\n[[alert]]\nname = \"X\"\nsign = \"systolic_mmhg\"\nabove = 120\n", ""},
		{"silence twice", "[[alert]]\nname = \"X\"\nsilent = \"1m\"\n[[alert]]\nname = \"X\"\nsilent = \"2m\"\n",
			"alerts.toml:5: name"},
	} {
		_, err := readRules(t, tt.text)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A rule with several signs is one for each of them, with its flags and its label.
func TestSeveralSigns(t *testing.T) {
	const tail = "flag = \"high\"\nfor = \"5m\"\nvalues = 5\n"
	got, err := readRules(t, "[[alert]]\nname = \"X\"\nsign = [\"heart_rate_bpm\", \"resting_heart_rate_bpm\"]\n"+tail)
	try(t, err)
	want, err := readRules(t,
		"[[alert]]\nname = \"X\"\nsign = \"heart_rate_bpm\"\n"+tail+"[[alert]]\nname = \"X\"\nsign = "+
			"\"resting_heart_rate_bpm\"\n"+tail)
	try(t, err)
	if !reflect.DeepEqual(got, want) || got[0].Met == got[1].Met {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i, field := range []string{"heart_rate_bpm", "resting_heart_rate_bpm"} {
		a := alert.Alert{Rule: &got[i]}
		if sign := a.Labels()["sign"]; sign != field {
			t.Errorf("label %q, want %q", sign, field)
		}
	}
}

// The rules that are shipped do not lose those whose rate is that of a pulse.
func TestExampleRules(t *testing.T) {
	limits := vitals.NewSigns().DefaultFlagLimits()
	rules, err := alert.ReadRules("../../../examples/alerts.toml", &limits)
	try(t, err)
	signs := map[string][]string{}
	for _, r := range rules {
		signs[r.Name] = append(signs[r.Name], r.Field)
	}
	for name, of := range signs {
		if slices.Contains(of, "heart_rate_bpm") != slices.Contains(of, "pulse_rate_bpm") {
			t.Errorf("%s is about %q", name, of)
		}
	}
}

// FuzzReadRules tests that a file is either refused with its name, or has rules within the bounds.
func FuzzReadRules(f *testing.F) {
	f.Add(goodRules)
	f.Add("alert = [{name='a',silent='1h',labels={b='c'}}]")
	f.Add("alert = [{name='a',sign=['spo2_pct',['pulse_rate_bpm'],'spo2_pct'],below=88}]")
	f.Add("[[alert]]\nname = 'x'\nsign = 'spo2_pct'\nabove = 0x7F\nfor = 1979-05-27")
	path := filepath.Join(f.TempDir(), "alerts.toml")
	limits := vitals.NewSigns().DefaultFlagLimits()
	f.Fuzz(func(t *testing.T, text string) {
		try(t, os.WriteFile(path, []byte(text), 0o600))
		rules, err := alert.ReadRules(path, &limits)
		if err != nil {
			if rules != nil || !strings.Contains(err.Error(), path) {
				t.Errorf("got %+v, %v", rules, err)
			}
			return
		}
		for _, r := range rules {
			ofValues := r.Values >= 1 && r.Values <= alert.MaxValues && r.For >= 0 && r.For <= alert.MaxFor && r.MaxAge > 0 &&
				r.Met.Min <= r.Met.Max
			if r.Name == "" || (r.Silent == 0) != ofValues || len(rules) > alert.MaxRules {
				t.Errorf("%+v", r)
			}
		}
	})
}

var try = polltest.Try
