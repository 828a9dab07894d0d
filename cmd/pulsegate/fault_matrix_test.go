package main_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the directory of the module.
const root = "../.."

// furtherTests are tests in the table of faults beside those that run on both lanes and fail with a mutant. A campaign
// chooses a lane for each server.
var furtherTests = []string{"TestBadInputSmuggling", "TestCluster", "TestDiskFullAtOnce", "TestDrain",
	"TestFairHandshakes", "TestPostgresPowerLoss",
	"TestSecondTerm", "TestTLSLane"}

// faultsFile has the tests of each promise, fault and upkeep.
const faultsFile = "testdata/faults.txt"

// TestFaultMatrix checks the table of faults in docs/reliability.md: each row has tests in testdata/faults.txt, and
// those of this package run on a server with the fast lane and on one without it, and fail with a mutant.
func TestFaultMatrix(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reliability.md")
	try(t, err)
	text, err := os.ReadFile(faultsFile)
	try(t, err)
	tests := testIndex{}.in(t, ".")
	caught := map[string]bool{}
	for _, m := range mutants(t) {
		for _, test := range m.tests {
			caught[test] = true
		}
	}
	onBoth := 0
	for _, section := range []string{"Faults", "Upkeep"} {
		rows, listed := firstCells(string(page), section), []string(nil)
		for name, named := range testsOf(string(text), section) {
			listed = append(listed, name)
			if !testName.MatchString(named) {
				t.Errorf("%s has no test of %q", faultsFile, name)
			}
			own, _, _ := strings.Cut(named, "of ") // the others are those of packages
			for _, test := range testName.FindAllString(own, -1) {
				if section != "Faults" || strings.HasSuffix(test, "Campaign") || slices.Contains(furtherTests, test) {
					continue
				}
				onBoth++
				if f := tests[test]; f == nil || !calls(f, "onBothLanes", "onEitherLane", "eachLane", "lanes") {
					t.Errorf("%s does not run on both lanes", test)
				}
				if !caught["./cmd/pulsegate "+test] {
					t.Errorf("no mutant names %s", test)
				}
			}
		}
		if !slices.Equal(rows, listed) {
			t.Errorf("docs/reliability.md has the rows %q under %s, and %s has %q", rows, section, faultsFile, listed)
		}
	}
	if onBoth < 15 {
		t.Errorf("the table names %d tests that run on both lanes", onBoth)
	}
}

// firstCells returns the first cell of each row of the table at the beginning of a section of a page, without links.
func firstCells(page, section string) (cells []string) {
	_, table, _ := strings.Cut(page, "\n## "+section+"\n")
	_, table, _ = strings.Cut(table, "\n|---|")
	_, table, _ = strings.Cut(table, "\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		cells = append(cells, link.ReplaceAllString(cell, "$1"))
	}
	return cells
}

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// testsOf yields the names of rows and the tests of each in a section of a list of tests.
func testsOf(list, section string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		_, list, _ := strings.Cut(list, "\n"+section+"\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for line := range strings.Lines(list) {
			name, tests, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if !yield(name, tests) {
				return
			}
		}
	}
}

// A mutant is a patch that breaks the service.
type mutant struct {
	name, what string
	tests      []string // package and test
	patch      string
}

// mutants reads the headers of all patches.
func mutants(t *testing.T) []mutant {
	t.Helper()
	files, err := filepath.Glob("testdata/mutants/*.patch")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no mutants: %v", err)
	}
	var all []mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		try(t, err)
		m := mutant{name: strings.TrimSuffix(filepath.Base(file), ".patch"), patch: string(text)}
		header, _, _ := strings.Cut(string(text), "\n\n")
		for line := range strings.Lines(header) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch key {
			case "What":
				m.what = value
			case "Test":
				m.tests = append(m.tests, value)
			default:
				t.Errorf("%s: %q is neither What nor Test", file, line)
			}
		}
		all = append(all, m)
	}
	return all
}

// TestMutants checks that every patch applies, describes what it breaks, and names existing tests. make mutants runs
// the patches.
func TestMutants(t *testing.T) {
	index := testIndex{}
	for _, m := range mutants(t) {
		if m.what == "" || len(m.tests) == 0 {
			t.Errorf("%s does not state what it breaks and which tests detect it", m.name)
		}
		for _, named := range m.tests {
			dir, test, _ := strings.Cut(named, " ")
			if index.in(t, filepath.Join(root, dir))[test] == nil {
				t.Errorf("%s: there is no %s", m.name, named)
			}
		}
		if err := applies(m.patch); err != nil {
			t.Errorf("%s no longer applies: %v", m.name, err)
		}
	}
}

// applies returns an error unless the old lines of each hunk stand in the patch's file, as git apply
// requires. A process of git for each patch takes several seconds.
func applies(patch string) error {
	var file, old string
	found := func() error {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err == nil && !strings.Contains(string(text), old) {
			err = fmt.Errorf("%s does not hold\n%s", file, old)
		}
		old = ""
		return err
	}
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "--- a/"), strings.HasPrefix(line, "@@ "):
			if old != "" {
				if err := found(); err != nil {
					return err
				}
			}
			if name, ok := strings.CutPrefix(line, "--- a/"); ok {
				file = strings.TrimSpace(name)
			}
		case file != "" && line == "\n":
			old += line // an editor may remove the space of an empty line
		case file != "" && (line[0] == ' ' || line[0] == '-'):
			old += line[1:]
		}
	}
	if old == "" {
		return errors.New("it has no hunks")
	}
	return found()
}

var (
	testName   = regexp.MustCompile(`\b(Test|Fuzz)[A-Z0-9]\w*`)
	mutantName = regexp.MustCompile(`mutants? ([a-z0-9-]+(?:(?:, | and )(?:[a-z]+-[a-z0-9-]+))*)`)
)

// TestReliabilityNames checks that the tests exist that testdata/faults.txt and docs/scaling.md
// name, and the mutants that comments name.
func TestReliabilityNames(t *testing.T) {
	index, all := testIndex{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "testdata" || strings.HasPrefix(name, ".") && path != root {
			return filepath.SkipDir
		}
		for name := range index.in(t, path) {
			all[name] = true
		}
		return nil
	})
	try(t, err)
	for name, least := range map[string]int{
		"cmd/pulsegate/" + faultsFile: 80, "docs/scaling.md": 10,
	} {
		page, err := os.ReadFile(filepath.Join(root, name))
		try(t, err)
		names := testName.FindAllString(string(page), -1)
		if len(names) < least {
			t.Errorf("%s names %d tests", name, len(names))
		}
		for _, test := range names {
			if !all[test] {
				t.Errorf("%s names %s, which does not exist", name, test)
			}
		}
	}

	known := map[string]bool{}
	for _, m := range mutants(t) {
		known[m.name] = true
	}
	found := 0
	for _, test := range index.in(t, ".") {
		text := strings.Join(strings.Fields(test.Doc.Text()), " ")
		_, seen, _ := strings.Cut(text, "Seen to fail with")
		for _, list := range mutantName.FindAllStringSubmatch(seen, -1) {
			for name := range strings.SplitSeq(strings.ReplaceAll(list[1], " and ", ", "), ", ") {
				found++
				if !known[name] {
					t.Errorf("the comment of %s names the mutant %s, which does not exist", test.Name.Name, name)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("comments name %d mutants", found)
	}
}

// A testIndex has the tests and fuzz targets of each directory that was asked for, by name.
type testIndex map[string]map[string]*ast.FuncDecl

// in returns the tests and fuzz targets of a directory by name.
func (index testIndex) in(t *testing.T, dir string) map[string]*ast.FuncDecl {
	t.Helper()
	if tests := index[dir]; tests != nil {
		return tests
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	try(t, err)
	tests := map[string]*ast.FuncDecl{}
	index[dir] = tests
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		try(t, err)
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
				tests[f.Name.Name] = f
			}
		}
	}
	return tests
}

// calls reports whether a function calls one of the given functions by its unqualified name.
func calls(f *ast.FuncDecl, names ...string) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok && slices.Contains(names, id.Name) {
				found = true
			}
		}
		return !found
	})
	return found
}
