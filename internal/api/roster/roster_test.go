package roster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

const good = `# ward 3
[[device]]
device = "ppg-1"
label = "Bed 12"
group = "ward 3"

[[device]]
device = "PPG-2"
label = "Fenster – Ä"

[[device]]
device = "ppg-3"
group = "ward 4"
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "devices.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func defaults() *vitals.Limits { return new(vitals.NewSigns().DefaultLimits()) }

func name(t *testing.T, text string) *vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	try(t, err)
	return &n
}

func TestRead(t *testing.T) {
	r, err := roster.Read(write(t, good), defaults())
	try(t, err)
	var got []string
	for _, device := range []string{"ppg-1", "PPG-2", "ppg-3", "ppg-2"} {
		got = append(got, string(r.Of(name(t, device)).AppendTo([]byte(device))))
	}
	want := []string{
		`ppg-1,"label":"Bed 12","group":"ward 3"`, `PPG-2,"label":"Fenster – Ä"`, `ppg-3,"group":"ward 4"`, "ppg-2",
	}
	if !slices.Equal(got, want) || r.Len() != 3 {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := r.Groups(nil); !slices.Equal(got, []string{"ward 3", "ward 4"}) {
		t.Errorf("groups %q", got)
	}
	third := func(d *vitals.Name) bool { return d.String() == "ppg-3" }
	if got := r.Groups(third); !slices.Equal(got, []string{"ward 4"}) {
		t.Errorf("groups of ppg-3: %q", got)
	}
}

// TestSelects compares the selection with a plain search in lower case.
func TestSelects(t *testing.T) {
	r, err := roster.Read(write(t, good), defaults())
	try(t, err)
	labels := map[string]string{"ppg-1": "Bed 12", "PPG-2": "Fenster – Ä"}
	groups := map[string]string{"ppg-1": "ward 3", "ppg-3": "ward 4"}
	for _, of := range []*roster.Roster{r, nil} {
		if of == nil {
			clear(labels)
			clear(groups)
		}
		for _, device := range []string{"ppg-1", "PPG-2", "ppg-3", strings.Repeat("X", vitals.MaxNameBytes)} {
			for _, match := range []string{"", "ppg", "PPG-", "-2", "bed 1", "ä", "Ä", "xX", "bed 13",
				strings.Repeat("x", 65)} {
				for _, group := range []string{"", "ward 3", "Ward 3", "ward"} {
					has := func(text string) bool {
						return strings.Contains(strings.ToLower(text), strings.ToLower(match))
					}
					want := (group == "" || groups[device] == group) && (has(device) || has(labels[device]))
					if got := of.Selects(name(t, device), roster.Fold(match), group); got != want {
						t.Errorf("%s, match %q, group %q: %t, want %t", device, match, group, got, want)
					}
				}
			}
		}
	}
}

// TestRanges compares the limits of all devices and subjects with the rule: the subject's ranges come first, then those
// of the device, of its group, and of all.
func TestRanges(t *testing.T) {
	const file = good + `usual = { spo2_pct = "90..", heart_rate_bpm = "45..120" }

[[group]]
group = "ward 4"
usual = { spo2_pct = "85..", respiratory_rate_bpm = "20..60" }
critical = { spo2_pct = "..70" }

[[subject]]
subject = "P-1"
usual.spo2_pct = "88..92"
critical.heart_rate_bpm = "150.5.."

[[subject]]
subject = "P-3"
critical.spo2_pct = "..88"

[[subject]]
subject = "P-4"
usual.spo2_pct = "65..85"
critical.heart_rate_bpm = "110.."

[[group]]
group = "ward 9"
usual.spo2_pct = "85.."
`
	signs := vitals.NewSigns()
	r, err := roster.Read(write(t, file), defaults())
	try(t, err)
	all := signs.DefaultFlagLimits()
	for _, tt := range []struct{ device, subject, want string }{
		{"ppg-1", "", ""}, {"ppg-9", "P-2", ""},
		{"ppg-1", "P-1", `,"ranges":{"spo2_pct":{"usual":{"min":88,"max":92,"of":"subject"}},` +
			`"heart_rate_bpm":{"critical":{"min":150.5,"of":"subject"}}}`},
		{"ppg-3", "P-2", `,"ranges":{"spo2_pct":{"usual":{"min":90,"of":"device"},` +
			`"critical":{"max":70,"of":"group"}},` +
			`"heart_rate_bpm":{"usual":{"min":45,"max":120,"of":"device"}},` +
			`"respiratory_rate_bpm":{"usual":{"min":20,"max":60,"of":"group"}}}`},
		{"ppg-3", "P-1", `,"ranges":{"spo2_pct":{"usual":{"min":88,"max":92,"of":"subject"},` +
			`"critical":{"max":70,"of":"group"}},` +
			`"heart_rate_bpm":{"usual":{"min":45,"max":120,"of":"device"},"critical":{"min":150.5,"of":"subject"}},` +
			`"respiratory_rate_bpm":{"usual":{"min":20,"max":60,"of":"group"}}}`},
		// What contradicts a range that comes first is cut off.
		{"ppg-3", "P-3", `,"ranges":{"spo2_pct":{"usual":{"min":90,"of":"device"},"critical":{"max":88,"of":"subject"}},` +
			`"heart_rate_bpm":{"usual":{"min":45,"max":120,"of":"device"}},` +
			`"respiratory_rate_bpm":{"usual":{"min":20,"max":60,"of":"group"}}}`},
		{"ppg-3", "P-4", `,"ranges":{"spo2_pct":{"usual":{"min":65,"max":85,"of":"subject"},` +
			`"critical":{"max":64.99,"of":"subject"}},` +
			`"heart_rate_bpm":{"usual":{"min":45,"max":109.99,"of":"subject"},"critical":{"min":110,"of":"subject"}},` +
			`"respiratory_rate_bpm":{"usual":{"min":20,"max":60,"of":"group"}}}`},
		{"ppg-9", "P-4", `,"ranges":{"spo2_pct":{"usual":{"min":65,"max":85,"of":"subject"},` +
			`"critical":{"max":64.99,"of":"subject"}},` +
			`"heart_rate_bpm":{"usual":{"min":40.01,"max":109.99,"of":"subject"},"critical":{"min":110,"of":"subject"}}}`},
	} {
		subject := storage.Subject(tt.subject)
		if got := string(r.AppendRanges(nil, name(t, tt.device), subject, &all)); got != tt.want {
			t.Errorf("%s, %s: got %s, want %s", tt.device, subject, got, tt.want)
		}
		// What is shown is what decides, and all else is as for all.
		want := all
		var shown struct {
			Ranges map[string]map[string]struct{ Min, Max *json.Number }
		}
		try(t, json.Unmarshal([]byte(`{"":0`+tt.want+"}"), &shown))
		for field, parts := range shown.Ranges {
			s, _ := signs.Named(field)
			for part, ends := range parts {
				var text [2]string
				for i, end := range []*json.Number{ends.Min, ends.Max} {
					if end != nil {
						text[i] = end.String()
					}
				}
				parsed, err := signs.Of(s).ParseRange(text[0] + ".." + text[1])
				try(t, err)
				if part == "usual" {
					want.Usual[s] = parsed
				} else {
					want.Critical[s] = &parsed
				}
			}
		}
		var own vitals.FlagLimits
		if got := r.Limits(name(t, tt.device), subject, &all, &own); !reflect.DeepEqual(*got, want) {
			t.Errorf("%s, %s: got %+v, want %+v", tt.device, subject, got.Usual, want.Usual)
		}
	}
	if !reflect.DeepEqual(all, signs.DefaultFlagLimits()) {
		t.Error("the limits of all were modified")
	}
	if got := r.EmptyGroups(); !slices.Equal(got, []string{"ward 9"}) {
		t.Errorf("groups without a device: %q", got)
	}
	if !r.HasRanges() || !r.HasSubjectRanges() || (*roster.Roster)(nil).HasRanges() {
		t.Error("HasRanges and HasSubjectRanges are wrong")
	}
}

// TestErrors checks that errors have the line, the key, the reason and, of a misspelt key, the nearest one.
func TestErrors(t *testing.T) {
	long := strings.Repeat("ä", roster.MaxText+1)
	for _, tt := range []struct{ old, new, want string }{
		{`label = "Bed 12"`, `labl = "Bed 12"`, "devices.toml:4: labl: unknown key; did you mean label?"},
		{"[[device]]\ndevice = \"ppg-1\"", "[[devices]]\ndevice = \"ppg-1\"",
			"devices.toml:2: devices: unknown key; did you mean device?"},
		{`label = "Bed 12"`, `patient_name = "x"`, "devices.toml:4: patient_name: unknown key\n"},
		{`label = "Bed 12"`, `label = 12`, "devices.toml:4: label: not a string\n"},
		{`label = "Bed 12"`, "label = \"a\"\nlabel = \"b\"", "devices.toml:5: label: given twice\n"},
		{`label = "Bed 12"`, `label.short = "a"`, "devices.toml:4: label.short: unknown key\n"},
		{`label = "Bed 12"`, `label = "Bed 12`, "devices.toml:4: toml: "},
		{"# ward 3", `label = "a"`, "devices.toml:1: label: not in a [[device]]\n"},
		{"[[device]]", "[device]", "devices.toml:2: device: a table of a device begins with [[device]]\n"},
		{`label = "Bed 12"`, `label = " Bed"`,
			"devices.toml:4: label: not at most 64 printable characters without a space at"},
		{`label = "Bed 12"`, `label = "Bed\t12"`, "devices.toml:4: label: not at most 64 printable characters"},
		{`label = "Bed 12"`, `label = "` + long + `"`, "devices.toml:4: label: not at most 64 printable characters"},
		{`group = "ward 4"`, `group = "` + long + `"`, "devices.toml:13: group: not at most 64 printable characters"},
		{`group = "ward 4"`, ``, "devices.toml:12: device: ppg-3 has neither a label nor a group nor ranges"},
		{`device = "PPG-2"`, `device = "ppg 2"`, "devices.toml:8: device: not 1 to 64 of A-Z"},
		{`device = "PPG-2"`, ``, "devices.toml:7: device: not 1 to 64 of A-Z"},
		{`device = "PPG-2"`, `device = "ppg-1"`, "devices.toml:8: device: ppg-1 is given twice"},
		{good, "# nothing yet", "devices.toml: no [[device]]"},
		{`label = "Bed 12"`, `usual = { spo2 = "88..92" }`, "devices.toml:4: usual.spo2: unknown sign\n"},
		{`label = "Bed 12"`, `usual = { sp02_pct = "88..92" }`, "usual.sp02_pct: unknown sign; did you mean spo2_pct?"},
		{`label = "Bed 12"`, `usual = { spo2_pct = 88 }`,
			`devices.toml:4: usual.spo2_pct: not a string such as "88..92"`},
		{`label = "Bed 12"`, `usual = "88..92"`, "devices.toml:4: usual: not ranges by sign, as in { SIGN"},
		{`label = "Bed 12"`, `usual.spo2_pct = "88"`, "devices.toml:4: usual.spo2_pct: bad limits: a range is"},
		{`label = "Bed 12"`, `usual.spo2_pct = "92..88"`, "devices.toml:4: usual.spo2_pct: the range ends before it"},
		{`label = "Bed 12"`, `usual.spo2_pct = "88..9x"`, "devices.toml:4: usual.spo2_pct: bad limits: end of"},
		{`label = "Bed 12"`, "usual.spo2_pct = \"88..\"\nusual.spo2_pct = \"89..\"",
			"devices.toml:5: usual.spo2_pct: given twice"},
		{`label = "Bed 12"`, "usual = {}\nusual.spo2_pct = \"89..\"", "devices.toml:5: usual.spo2_pct: given twice"},
		{`label = "Bed 12"`, "usual.spo2_pct = \"88..92\"\ncritical = { spo2_pct = \"..88\" }",
			"devices.toml:5: critical.spo2_pct: the range has values that are usual"},
		{`label = "Bed 12"`, "[device.usual]\nspo2_pct = \"88..\"",
			`devices.toml:4: device.usual: write it as usual = { SIGN = "MIN..MAX" }, in the table`},
		{`label = "Bed 12"`, `unusual = { spo2_pct = "88..92" }`,
			"devices.toml:4: unusual: unknown key; did you mean usual?"},
		{"[[device]]", "[[group]]\ngroup = \"ward 3\"\n[[device]]",
			"devices.toml:3: group: neither usual nor critical ranges"},
		{"[[device]]", "[[group]]\nusual.spo2_pct = \"..\"\n[[device]]", "devices.toml:2: group: missing"},
		{"[[device]]", "[[subject.P-17]]\n[[device]]", "devices.toml:2: subject: a table of a subject begins with"},
		{"[[device]]", "[subject.P-17]\n[[device]]", "devices.toml:2: subject: a table of a subject begins with"},
		{"[[device]]", "[subject.P-17.usual]\n[[device]]", "devices.toml:2: subject: a table of a subject"},
		{"# ward 3", "subject.P-17.usual.spo2_pct = \"..\"", "devices.toml:1: subject: not in a [[device]]\n"},
		{"[[device]]", "[P-17]\n[[device]]", "devices.toml:2: unknown table\n"},
		{"[[device]]", "[[P-17]]\n[[device]]", "devices.toml:2: unknown table\n"},
		{"[[device]]", "[patients.P-17]\n[[device]]", "devices.toml:2: unknown table\n"},
		{"[[device]]", "[P-17.usual]\n[[device]]", "devices.toml:2: usual: write it as usual = {"},
		{"# ward 3", "P-17 = \"..\"", "devices.toml:1: not in a [[device]]\n"},
		{"# ward 3", "usual.P-17 = \"..\"", "devices.toml:1: usual: not in a [[device]]\n"},
		{"[[device]]", "[[subject]]\nsubject.P-17 = \"..\"\n[[device]]", "devices.toml:3: subject: not a string\n"},
		{"[[device]]", "[[subject]]\nP-17 = {}\n[[device]]", "devices.toml:3: subject: unknown key\n"},
		{"[[device]]", "[[subject]]\nusual.P-17.spo2_pct = \"..\"\n[[device]]", "devices.toml:3: usual: unknown sign\n"},
		{"[[device]]", "[[subject]]\nusual = { P-17 = \"..\" }\n[[device]]", "devices.toml:3: usual: unknown sign\n"},
		{`label = "Bed 12"`, `critical.glucose_mg_dl = "..3.0"`,
			"devices.toml:4: critical.glucose_mg_dl: no value in the range is accepted: the unit is mg/dL, and accepted " +
				"are 10..1000"},
		{`label = "Bed 12"`, `usual.body_temperature_c = "97..99.5"`, "usual.body_temperature_c: no value in the range is"},
		{`label = "Bed 12"`, `critical.spo2_pct = ".."`, "devices.toml:4: critical.spo2_pct: the range has no end"},
		{"[[device]]", "[[group]]\nlabel = \"w\"\n[[device]]", "devices.toml:3: label: unknown key\n"},
		{"[[device]]", strings.Repeat("[[group]]\ngroup = \"ward 3\"\nusual.spo2_pct = \"..\"\n", 2) + "[[device]]",
			"devices.toml:6: group: given twice"},
		{"[[device]]", strings.Repeat("[[subject]]\nsubject = \"P-1\"\nusual.spo2_pct = \"..\"\n", 2) + "[[device]]",
			"devices.toml:6: subject: given twice"},
		{"[[device]]", "[[subject]]\nsubject = \"P 1\"\nusual.spo2_pct = \"..\"\n[[device]]",
			"devices.toml:3: subject: not 1 to 64 of A-Z, a-z, 0-9, dot and hyphen\n"},
		{"[[device]]", "[subject]\n[[device]]",
			"devices.toml:2: subject: a table of a subject begins with [[subject]]"},
	} {
		_, err := roster.Read(write(t, strings.Replace(good, tt.old, tt.new, 1)), defaults())
		if err == nil || !strings.Contains(err.Error()+"\n", tt.want) {
			t.Errorf("%s: got %v, want %s", tt.new, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "P-17") {
			t.Errorf("%s: an id is in %v", tt.new, err)
		}
		if !errors.Is(err, roster.ErrFile) {
			t.Errorf("%s: %v is not an error that only a change of the file mends", tt.new, err)
		}
	}
	_, err := roster.Read(filepath.Join(t.TempDir(), "none"), defaults())
	if err == nil || errors.Is(err, roster.ErrFile) {
		t.Errorf("a file that is missing: %v", err)
	}
	// A key too many in each of many devices is found at once: with the strict decoder this test takes minutes.
	key := strings.Repeat("[[device]]\ndevice = \"d\"\nroom = \"1\"\n", 50_000)
	_, err = roster.Read(write(t, key), defaults())
	if err == nil || !strings.HasSuffix(err.Error(), "devices.toml:3: room: unknown key") {
		t.Errorf("many unknown keys: %v", err)
	}
	var many strings.Builder
	for i := range roster.MaxSubjects + 1 {
		fmt.Fprintf(&many, "[[subject]]\nsubject = \"s-%d\"\nusual.spo2_pct = \"..\"\n", i)
	}
	_, err = roster.Read(write(t, many.String()), defaults())
	if err == nil || !strings.HasSuffix(err.Error(), "devices.toml:3002: subject: more than 1000 subjects") {
		t.Errorf("too many subjects: %v", err)
	}
	many.Reset()
	for i := range roster.MaxGroups + 1 {
		fmt.Fprintf(&many, "[[device]]\ndevice = \"d-%d\"\ngroup = \"g-%d\"\n", i, i)
	}
	_, err = roster.Read(write(t, many.String()), defaults())
	if err == nil || !strings.Contains(err.Error(), "devices.toml:3003: group: more than 1000 groups") {
		t.Errorf("too many groups: %v", err)
	}
}

var try = polltest.Try
