package archtest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAnotherSign adds a built-in sign as CONTRIBUTING.md says. The packages that must know each sign do not compile
// until they do: without that, the sign would be treated as a user's own.
func TestAnotherSign(t *testing.T) {
	const (
		sign = "\tNumBuiltIn - 1: {Field: \"another_mmhg\", Label: \"Another\", Unit: \"mm[Hg]\", Decimals: 2, LOINC: " +
			"[]string{\"1-8\"}, Accepted: Range{1, 2}, Usual: Range{1, 2}},\n"
		row = "\tvitals.NumBuiltIn - 2: {\"another\", \"\", vitalSigns, nil, \"\", []component{{sign: vitals.NumBuiltIn - " +
			"1}}, \"mmHg\"},\n"
		own = "\t{vitals.NumBuiltIn - 1, false, 1, 1, 1, 1, 2, 1},\n"

		mapping = "internal/api/fhir/mapping.go"
		wearer  = "internal/client/sim/wearer.go"
	)
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	// edit inserts lines before the last closing bracket of the table that ends before other lines.
	edit := func(path, after, lines string) string {
		t.Helper()
		code, err := os.ReadFile("../../" + path)
		try(t, err)
		table, rest, found := strings.Cut(string(code), "}\n\n"+after)
		if !found {
			t.Fatalf("%s does not have %q", path, after)
		}
		return table + lines + "}\n\n" + after + rest
	}
	build := func(path, code string) string {
		t.Helper()
		edited := filepath.Join(dir, filepath.Base(path))
		original, err := filepath.Abs("../../" + path)
		try(t, err)
		overlay.Replace[original] = edited
		text, err := json.Marshal(overlay)
		list := filepath.Join(dir, "overlay.json")
		try(t, err, os.WriteFile(edited, []byte(code), 0o600), os.WriteFile(list, text, 0o600))
		cmd := exec.Command("go", "build", "-overlay="+list, "./internal/api/fhir", "./internal/client/sim")
		cmd.Dir = "../.."
		out, _ := cmd.CombinedOutput()
		return string(out)
	}

	table := edit(signTable, "// Each built-in sign has a definition.\n", sign)
	table = regexp.MustCompile(`NumBuiltIn = (\d+)`).ReplaceAllString(table, "NumBuiltIn = 1 + $1")
	if out := build(signTable, table); !strings.Contains(out, mapping) || !strings.Contains(out, wearer) {
		t.Errorf("%s\nwant errors in %s and %s", out, mapping, wearer)
	}
	build(mapping, edit(mapping, "// Each built-in sign has a mapping", row))
	if out := build(wearer, edit(wearer, "// Each built-in sign is in traits or has a habit.\n", own)); out != "" {
		t.Error(out)
	}
}
