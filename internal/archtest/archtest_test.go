package archtest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const root = "../.."

func parseRepository(t *testing.T) *source {
	t.Helper()
	s, err := parse(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRepository checks the rules for this module. TestRulesCanFail checks that each
// rule can fail.
func TestRepository(t *testing.T) {
	s := parseRepository(t)
	violations, used := check(s)
	for _, v := range violations {
		t.Error(v)
	}
	for e, reason := range exceptions {
		if !used[e] {
			t.Errorf("the exception %+v (%s) is not needed: remove it from internal/archtest/tables_test.go", e, reason)
		}
	}
	// A walk that finds no packages would find no violations.
	const atLeast = 3
	if len(s.packages) < atLeast {
		t.Errorf("found %d packages under %s, want at least %d", len(s.packages), root, atLeast)
	}
}

// TestArchitectureNamesPackages checks that ARCHITECTURE.md names every package.
func TestArchitectureNamesPackages(t *testing.T) {
	text, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" \t\n`,;:()|", r) }) {
		named[word] = true
	}
	for _, p := range parseRepository(t).packages {
		if !named[p.dir] {
			t.Errorf("ARCHITECTURE.md does not name package %s", p.dir)
		}
	}
}

// TestArchitectureNamesSymbols checks that every symbol, file and test named in
// ARCHITECTURE.md exists.
func TestArchitectureNamesSymbols(t *testing.T) {
	text, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range missingSymbols(parseRepository(t), string(text)) {
		t.Errorf("ARCHITECTURE.md names %s, which does not exist", missing)
	}
}

// TestMissingSymbols checks that TestArchitectureNamesSymbols can fail.
func TestMissingSymbols(t *testing.T) {
	s, err := parse(fstest.MapFS{"internal/api/ingest/a.go": &fstest.MapFile{Data: []byte(
		"package ingest; type Core struct{ queue int }; func (*Core) Admit() {}; func TestOne() {}",
	)}})
	if err != nil {
		t.Fatal(err)
	}
	const text = "ingest.Core, ingest.Core.Admit and ingest.Core.queue; ingest.go and TestOne; but" +
		" ingest.Gone, ingest.Core.admit and TestTwo; store.Else is of no package"
	want := []string{"ingest.Gone", "ingest.Core.admit", "TestTwo"}
	if got := missingSymbols(s, text); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
