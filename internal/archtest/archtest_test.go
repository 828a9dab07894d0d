package archtest_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// repository parses this module, once for all tests, which must not change it.
var repository = sync.OnceValues(func() (*source, error) { return parse(os.DirFS(root)) })

func parseRepository(t *testing.T) *source {
	t.Helper()
	s, err := repository()
	try(t, err)
	return s
}

// TestRepository checks the rules for this module.
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
	try(t, err)
	named := make(map[string]bool)
	for _, word := range strings.FieldsFunc(string(text),
		func(r rune) bool { return strings.ContainsRune(" \t\n`,;:()|", r) }) {
		named[word] = true
	}
	for _, p := range parseRepository(t).packages {
		if !named[p.dir] {
			t.Errorf("ARCHITECTURE.md does not name package %s", p.dir)
		}
	}
}

// TestDocumentsNameFiles checks that every file and directory of this repository that
// a document names exists. A path begins with a directory of the root.
func TestDocumentsNameFiles(t *testing.T) {
	entries, err := os.ReadDir(root)
	try(t, err)
	var tops []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "bin" { // built
			tops = append(tops, regexp.QuoteMeta(e.Name()))
		}
	}
	paths := regexp.MustCompile("`((?:" + strings.Join(tops, "|") + ")/[\\w./-]*)`")
	documents := []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"}
	pages, err := filepath.Glob(root + "/docs/*.md")
	try(t, err)
	for _, page := range pages {
		documents = append(documents, "docs/"+filepath.Base(page))
	}
	named := 0
	for _, document := range documents {
		text, err := os.ReadFile(filepath.Join(root, document))
		try(t, err)
		for _, m := range paths.FindAllStringSubmatch(string(text), -1) {
			named++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", document, m[1])
			}
		}
	}
	const atLeast = 20 // ARCHITECTURE.md names more
	if named < atLeast {
		t.Errorf("found %d paths in the documents, want at least %d", named, atLeast)
	}
}

// TestArchitectureNamesSymbols checks that every symbol and test named in
// ARCHITECTURE.md exists.
func TestArchitectureNamesSymbols(t *testing.T) {
	text, err := os.ReadFile(root + "/ARCHITECTURE.md")
	try(t, err)
	for _, missing := range missingSymbols(parseRepository(t), string(text)) {
		t.Errorf("ARCHITECTURE.md names %s, which does not exist", missing)
	}
}

// try ends the test if one of errs is not nil.
func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
