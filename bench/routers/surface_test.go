package routers_test

import (
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	gorillaPath = "github.com/gorilla/mux"
	oursPath    = "github.com/pulsegate/pulsegate/mux"
)

// TestSurface checks that package mux exports everything that gorilla's main branch
// exports, with the same signatures.
func TestSurface(t *testing.T) {
	// A program built with -trimpath does not know GOROOT, without which packages of
	// modules are not found.
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	build.Default.GOROOT = strings.TrimSpace(string(root))
	imp := importer.ForCompiler(token.NewFileSet(), "source", nil)
	theirs, err := imp.Import(gorillaPath)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := imp.Import(oursPath)
	if err != nil {
		t.Fatal(err)
	}
	got := surface(ours)
	want := surface(theirs)
	const gorillaExports = 80 // far fewer would mean that the test is broken
	if len(want) < gorillaExports {
		t.Fatalf("gorilla exports %d items, want at least %d", len(want), gorillaExports)
	}
	for _, item := range want {
		if !slices.Contains(got, item) {
			t.Errorf("missing or different: %s", item)
		}
	}
}

// surface returns the exported objects, fields and methods of a package.
func surface(pkg *types.Package) []string {
	name := func(p *types.Package) string {
		if p == pkg {
			return "mux"
		}
		return p.Path()
	}
	var items []string
	for _, id := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(id)
		if !obj.Exported() {
			continue
		}
		named, isType := obj.Type().(*types.Named)
		if _, ok := obj.(*types.TypeName); !ok || !isType {
			items = append(items, withoutNames(obj, name))
			continue
		}
		if s, ok := named.Underlying().(*types.Struct); ok {
			items = append(items, "type "+id+" struct")
			for f := range s.Fields() {
				if f.Exported() {
					items = append(items, id+"."+f.Name()+" "+types.TypeString(f.Type(), name))
				}
			}
		} else {
			items = append(items, "type "+id+" "+signature(named.Underlying(), name))
		}
		methods := types.NewMethodSet(types.NewPointer(named))
		for m := range methods.Methods() {
			if m.Obj().Exported() {
				items = append(items, id+"."+m.Obj().Name()+signature(m.Type(), name))
			}
		}
	}
	return items
}

func withoutNames(obj types.Object, q types.Qualifier) string {
	kind, _, _ := strings.Cut(types.ObjectString(obj, q), " ")
	return kind + " " + obj.Name() + " " + signature(obj.Type(), q)
}

// signature formats a type without the names of parameters.
func signature(t types.Type, q types.Qualifier) string {
	sig, ok := t.(*types.Signature)
	if !ok {
		return types.TypeString(t, q)
	}
	tuple := func(vars *types.Tuple) string {
		var parts []string
		for v := range vars.Variables() {
			parts = append(parts, signature(v.Type(), q))
		}
		return "(" + strings.Join(parts, ", ") + ")"
	}
	dots := ""
	if sig.Variadic() {
		dots = "..."
	}
	return "func" + tuple(sig.Params()) + dots + tuple(sig.Results())
}
