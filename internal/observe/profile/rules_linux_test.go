package profile_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

// TestRulesExist checks that every package and function named in a rule exists in the
// sources of this test binary. If a function was renamed, its rule would match nothing
// and its cost would move to another part unnoticed.
func TestRulesExist(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the source of the standard library")
	}
	var patterns []string
	for _, r := range pg.Rules() {
		patterns = append(patterns, r.Package)
	}
	known := functions(t, patterns)
	for _, r := range pg.Rules() {
		root, below := strings.CutSuffix(r.Package, "/...")
		var names []string
		found := false
		for pkg, declared := range known {
			if pkg == root || below && strings.HasPrefix(pkg, root+"/") {
				names, found = append(names, declared...), true
			}
		}
		if !found {
			t.Errorf("there is no package %s", r.Package)
			continue
		}
		for _, f := range r.Functions {
			matches := func(name string) bool { return strings.HasPrefix(name, f) }
			if r.Exact {
				matches = func(name string) bool { return name == f }
			}
			if !slices.ContainsFunc(names, matches) {
				t.Errorf("there is no %s in package %s", f, r.Package)
			}
		}
	}
}

// functions returns the functions of all packages that match patterns, by import path,
// with their linker names: f, T.f or (*T).f.
func functions(t *testing.T, patterns []string) map[string][]string {
	t.Helper()
	slices.Sort(patterns)
	args := append([]string{"list", "-e", "-f",
		`{{if .GoFiles}}{{.ImportPath}}{{$dir := .Dir}}{{range .GoFiles}}|{{$dir}}/{{.}}{{end}}{{end}}`},
		slices.Compact(patterns)...)
	list, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	found := map[string][]string{}
	for line := range strings.Lines(string(list)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		for _, path := range fields[1:] {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(path), nil, parser.SkipObjectResolution)
			try(t, err)
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					found[fields[0]] = append(found[fields[0]], linkName(f))
				}
			}
		}
	}
	return found
}

// linkName returns the linker's name of a function within its package.
func linkName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver, format := f.Recv.List[0].Type, [2]string{"", ""}
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver, format = star.X, [2]string{"(*", ")"}
	}
	generic := ""
	switch r := receiver.(type) {
	case *ast.IndexExpr:
		receiver, generic = r.X, "[...]"
	case *ast.IndexListExpr:
		receiver, generic = r.X, "[...]"
	}
	return format[0] + receiver.(*ast.Ident).Name + generic + format[1] + "." + f.Name.Name
}
