package oidc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of a file of rules.
const (
	MaxRules      = 1024
	maxFileBytes  = 256 << 10
	maxPath       = 8
	maxValueBytes = 256 // of a name of a claim, and of its value
)

// Rules map the claims of people to what they may do. The first rule that matches applies. They do
// not change.
type Rules struct{ rules []rule }

// A rule applies to those whose claim is a value, or a list that contains it.
type rule struct {
	path  []string // the name of the claim, or of the objects that contain it, outermost first, and its own
	value string
	spec  token.Token // rights, gateway, devices and subjects
}

// A table is a rule in a file.
type table struct {
	Claim    any      `toml:"claim"` // a name, or a list of names
	Value    string   `toml:"value"`
	Rights   []string `toml:"rights"`
	Gateway  string   `toml:"gateway"`
	Devices  string   `toml:"devices"`
	Subjects []string `toml:"subjects"`
}

// An invalid is an error about a key.
type invalid struct{ key, reason string }

func (e *invalid) Error() string { return e.key + ": " + e.reason }

// ReadRules reads the rules in a file. Errors name the file, the line, the key and the reason. A
// file without rules is an error, because nobody could sign in: more likely, it is being written.
func ReadRules(path string) (*Rules, error) {
	var f struct {
		Rule []table `toml:"rule"`
	}
	text, err := tomlfile.Read(path, maxFileBytes, &f)
	switch {
	case err != nil:
		return nil, err
	case len(f.Rule) == 0:
		return nil, fmt.Errorf("%s: no [[rule]], so that nobody could sign in", path)
	}
	r := &Rules{make([]rule, len(f.Rule))}
	seen := make(map[string]int, len(f.Rule)) // rules, by claim and value
	for i := range f.Rule {
		wrong := f.Rule[i].to(&r.rules[i])
		key := fmt.Sprintf("%q=%q", r.rules[i].path, r.rules[i].value)
		switch first, twice := seen[key]; {
		case wrong != nil:
		case twice:
			wrong = &invalid{"value", fmt.Sprintf("the rule in line %d has the same claim and value, and applies first",
				tomlfile.LineOf(text, "rule", first, "value"))}
		case i >= MaxRules:
			wrong = &invalid{"claim", fmt.Sprintf("more than %d rules", MaxRules)}
		}
		if wrong != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, tomlfile.LineOf(text, "rule", i, wrong.key), wrong)
		}
		seen[key] = i
	}
	return r, nil
}

// to sets the rule that a table describes, or returns what is wrong.
func (t *table) to(r *rule) *invalid {
	r.path, r.value = t.path(), t.Value
	var rightsErr, devicesErr, gatewayErr, subjectsErr error
	r.spec.Rights, rightsErr = token.ParseRights(strings.Join(t.Rights, ","))
	r.spec.Subjects, subjectsErr = token.MakeSubjects(t.Subjects)
	if t.Devices != "" {
		r.spec.Devices, devicesErr = vitals.ParseName(t.Devices)
	}
	if t.Gateway != "" {
		r.spec.Gateway, gatewayErr = vitals.ParseName(t.Gateway)
	}
	bound := t.Subjects != nil
	for _, c := range []struct {
		holds       bool
		key, reason string
	}{
		{len(r.path) > 0 && len(r.path) <= maxPath && !slices.ContainsFunc(r.path,
			func(name string) bool { return name == "" || len(name) > maxValueBytes }),
			"claim", `not the name of a claim such as "groups", or a list of names such as ["realm_access", "roles"]`},
		{t.Value != "" && len(t.Value) <= maxValueBytes, "value", fmt.Sprintf("not a text of 1 to %d bytes", maxValueBytes)},
		{rightsErr == nil, "rights", "not a list of write, read, admin and relay, each at most once, relay with write"},
		{devicesErr == nil, "devices", "no name of a device begins with this"},
		{gatewayErr == nil, "gateway", "not a name of 1 to 64 letters, digits, and . _ : -"},
		{subjectsErr == nil && (!bound || len(t.Subjects) > 0), "subjects",
			"not 1 to 16 distinct texts, each 1 to 64 of A-Z, a-z, 0-9, hyphen and dot"},
		{r.spec.Rights.Has(token.Write) == (t.Gateway != ""), "gateway",
			"the right write requires the name of the gateway whose readings these are, and other rights have none"},
		{!bound || r.spec.Rights == token.Read, "subjects", "requires that read is the only right"},
		{!bound || t.Devices == "", "subjects", "cannot be combined with devices"},
	} {
		if !c.holds {
			return &invalid{c.key, c.reason}
		}
	}
	return nil
}

// path returns the path of the claim, which may be invalid.
func (t *table) path() (path []string) {
	switch claim := t.Claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, name := range claim {
			text, _ := name.(string) // "" is invalid
			path = append(path, text)
		}
	}
	return path
}

// Len returns the number of rules.
func (r *Rules) Len() int { return len(r.rules) }

// match returns what the first rule that matches claims allows, or nil.
func (r *Rules) match(claims map[string]any) *token.Token {
	for i := range r.rules {
		if r.rules[i].matches(claims) {
			return &r.rules[i].spec
		}
	}
	return nil
}

func (r *rule) matches(claims map[string]any) bool {
	last := len(r.path) - 1
	for _, name := range r.path[:last] {
		inner, ok := claims[name].(map[string]any)
		if !ok {
			return false
		}
		claims = inner
	}
	switch claim := claims[r.path[last]].(type) {
	case string:
		return claim == r.value
	case []any:
		return slices.ContainsFunc(claim, func(v any) bool { text, ok := v.(string); return ok && text == r.value })
	}
	return false
}
