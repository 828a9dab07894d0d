package oidc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/oidc"
)

// write writes a file of rules and returns its path.
func write(t testing.TB, path, text string) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "access.toml")
	}
	try(t, os.WriteFile(path+".new", []byte(text), 0o600))
	try(t, os.Rename(path+".new", path))
	return path
}

const nurses = `
[[rule]]
claim = "groups"
value = "ward-3-nurses"
rights = ["read"]
devices = "ward3-"
`

func TestRulesErrors(t *testing.T) {
	many := ""
	for i := range oidc.MaxRules + 1 {
		many += fmt.Sprintf("[[rule]]\nclaim = \"groups\"\nvalue = \"%d\"\nrights = [\"read\"]\n", i)
	}
	rule := func(lines string) string { return "[[rule]]\nclaim = \"groups\"\nvalue = \"x\"\n" + lines }
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "access.toml: no [[rule]], so that nobody could sign in"},
		{"only a comment", "# none", "access.toml: no [[rule]], so that nobody could sign in"},
		{"not TOML", "[[rule]\n", "access.toml:1: toml: expected ']]'"},
		{"unknown key", rule("right = [\"read\"]"), "access.toml:4: right: unknown key"},
		{"unknown table", nurses + "[rules]\n", "access.toml:7: rules: unknown key"},
		{"no claim", "[[rule]]\nvalue = \"x\"\nrights = [\"read\"]", "access.toml:1: claim: not the name of a claim"},
		{"claim of another type", "[[rule]]\nclaim = 1\nvalue = \"x\"", "access.toml:2: claim: not the name of a claim"},
		{"empty path", "[[rule]]\nclaim = []\nvalue = \"x\"", "access.toml:2: claim: not the name of a claim"},
		{"empty name in a path", "[[rule]]\nclaim = [\"a\", \"\"]\nvalue = \"x\"",
			"access.toml:2: claim: not the name of a claim"},
		{"number in a path", "[[rule]]\nclaim = [\"a\", 1]\nvalue = \"x\"", "access.toml:2: claim: not the name of a claim"},
		{"no value", "[[rule]]\nclaim = \"x\"\nrights = [\"read\"]", "access.toml:1: value: not a text of 1 to 256 bytes"},
		{"long value", "[[rule]]\nclaim = \"x\"\nvalue = \"" + strings.Repeat("a", 257) + "\"",
			"access.toml:3: value: not a text of 1 to 256 bytes"},
		{"value of another type", "[[rule]]\nclaim = \"x\"\nvalue = true",
			"access.toml:3: value: toml: cannot decode TOML boolean"},
		{"no rights", rule(""), "access.toml:1: rights: not a list of write, read, admin and relay, each at most once"},
		{"unknown right", rule("rights = [\"read\", \"all\"]"),
			"access.toml:4: rights: not a list of write, read, admin and relay, each at most once"},
		{"right twice", rule("rights = [\"read\", \"read\"]"),
			"access.toml:4: rights: not a list of write, read, admin and relay, each at most once"},
		{"write without gateway", rule("rights = [\"write\"]"), "access.toml:1: gateway: the right write requires the name"},
		{"gateway without write", rule("rights = [\"read\"]\ngateway = \"g\""),
			"access.toml:5: gateway: the right write requires the name"},
		{"gateway", rule("rights = [\"write\"]\ngateway = \"a b\""), "access.toml:5: gateway: not a name"},
		{"devices", rule("rights = [\"read\"]\ndevices = \"a b\""),
			"access.toml:5: devices: no name of a device begins with this"},
		{"subject", rule("rights = [\"read\"]\nsubjects = [\"a b\"]"), "access.toml:5: subjects: not 1 to 16"},
		{"subject twice", rule("rights = [\"read\"]\nsubjects = [\"a\", \"a\"]"), "access.toml:5: subjects: not 1 to 16"},
		{"no subjects", rule("rights = [\"read\"]\nsubjects = []"), "access.toml:5: subjects: not 1 to 16"},
		{"subjects and write", rule("rights = [\"write\"]\ngateway = \"g\"\nsubjects = [\"a\"]"),
			"access.toml:6: subjects: requires that read is the only right"},
		{"subjects and devices", rule("rights = [\"read\"]\nsubjects = [\"a\"]\ndevices = \"d\""),
			"access.toml:5: subjects: cannot be combined with devices"},
		{"ambiguous", nurses + strings.Replace(nurses, "read", "admin", 1),
			"access.toml:10: value: the rule in line 4 has the same claim and value, and applies first"},
		{"too many", many, "access.toml:4098: claim: more than 1024 rules"},
		{"too long", nurses + "#" + strings.Repeat("x", 256<<10), "access.toml is larger than 262144 bytes"},
	} {
		_, err := oidc.ReadRules(write(t, "", tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A path of one name is the name; a name with a dot is not a path.
func TestRulesNotAmbiguous(t *testing.T) {
	rules, err := oidc.ReadRules(write(t, "", nurses+`
[[rule]]
claim = ["groups", "x"]
value = "ward-3-nurses"
rights = ["read"]
[[rule]]
claim = "groups.x"
value = "ward-3-nurses"
rights = ["read"]
[[rule]]
claim = "groups"
value = "ward-4-nurses"
rights = ["read"]
subjects = ["p-1", "p-2"]
`))
	if err != nil || rules.Len() != 4 {
		t.Fatalf("%v rules, %v", rules, err)
	}
}

// The rules in docs/signin.md are valid.
func TestRulesInDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/signin.md")
	try(t, err)
	_, rest, found := strings.Cut(string(text), "```toml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/signin.md has no rules")
	}
	if rules, err := oidc.ReadRules(write(t, "", example)); err != nil || rules.Len() != 3 {
		t.Errorf("%v", err)
	}
}
