package eventloop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The package has the same API on every system, so that its users compile everywhere.
// (Seen to fail without Loop.Gather.)
func TestOtherSystems(t *testing.T) {
	linux := exported(t, "*_linux.go")
	other := exported(t, "other.go")
	if len(linux) == 0 {
		t.Fatal("found no functions for Linux")
	}
	for name, signature := range linux {
		if other[name] != signature {
			t.Errorf("%s: %q on other systems, want %q as on Linux", name, other[name], signature)
		}
	}
	for name := range maps.Keys(other) {
		if _, ok := linux[name]; !ok {
			t.Errorf("%s: not on Linux", name)
		}
	}
}

// exported returns the exported functions and methods that files declare, with
// their types.
func exported(t *testing.T, pattern string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			if of := strings.TrimPrefix(strings.Join(typesOf(f.Recv), ""), "*"); of == "" || ast.IsExported(of) {
				found[strings.Join(append(typesOf(f.Recv), f.Name.Name), ".")] = strings.Join(typesOf(f.Type.Params), ", ") + " -> " + strings.Join(typesOf(f.Type.Results), ", ")
			}
		}
	}
	return found
}

// typesOf returns the type of each parameter or result, without its name.
func typesOf(list *ast.FieldList) (texts []string) {
	if list == nil {
		return nil
	}
	for _, field := range list.List {
		for range max(len(field.Names), 1) {
			texts = append(texts, types.ExprString(field.Type))
		}
	}
	return texts
}
