package archtest_test

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// eachImport calls f with every import of p.
func eachImport(p *pkg, f func(*file, *ast.ImportSpec, string)) {
	for _, file := range p.files {
		for _, spec := range file.ast.Imports {
			f(file, spec, importPath(spec))
		}
	}
}

// layers holds that imports point strictly down, and those of tests not up.
func (c *checker) layers(p *pkg) {
	const table = "add it to layers in internal/archtest/tables_test.go, and to ARCHITECTURE.md"
	own, ok := layers[p.dir]
	if !ok {
		c.report(layerRule, p, p.files[0].ast.Package, p.dir, "package %s is in no layer: %s", p.dir, table)
		return
	}
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		dir, ok := ownDir(imported)
		if !ok || dir == p.dir {
			return
		}
		layer, known := layers[dir]
		switch {
		case !known:
			c.report(layerRule, p, spec.Pos(), imported, "imports %s, which is in no layer: %s", dir, table)
		case layer > own:
			c.report(layerRule, p, spec.Pos(), imported, "imports %s (L%d), which stands above %s (L%d): imports point down", dir, layer, p.dir, own)
		case layer == own && !f.test:
			c.report(layerRule, p, spec.Pos(), imported, "imports %s, which stands beside %s in L%d: imports point strictly down, only tests may go sideways", dir, p.dir, own)
		}
	})
}

// libraries holds that modules of others are imported where they may be.
func (c *checker) libraries(p *pkg) {
	also, onlyStandard := standardOnly[p.dir]
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		if _, own := ownDir(imported); own || isStandard(imported) {
			return
		}
		if onlyStandard && !f.test && !slices.ContainsFunc(also, func(m string) bool { return isWithin(imported, m) }) {
			c.report(standardRule, p, spec.Pos(), imported, "imports %s: %s imports %s only", imported, p.dir, strings.Join(append([]string{"the standard library"}, also...), " and "))
			return
		}
		i := slices.IndexFunc(libraries, func(l library) bool { return isWithin(imported, l.path) })
		if i < 0 {
			c.report(libraryRule, p, spec.Pos(), imported, "imports %s, which is no library of this module: a peer to compare with belongs into bench, a tool into tools; a library needs a reason in docs/adr and a line in internal/archtest/tables_test.go", imported)
			return
		}
		l := libraries[i]
		switch {
		case f.test:
		case l.tests && p.dir != "internal/store/storetest":
			c.report(libraryRule, p, spec.Pos(), imported, "imports %s, which is for tests only", imported)
		case l.users != nil && !slices.Contains(l.users, p.dir):
			c.report(libraryRule, p, spec.Pos(), imported, "imports %s, which is for %s only", imported, strings.Join(l.users, " and "))
		}
	})
}

// stores holds that only commands name a concrete store. Tests need one to write
// to.
func (c *checker) stores(p *pkg) {
	const stores = "internal/store"
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		dir, ok := ownDir(imported)
		if !ok || f.test || p.isCommand() || path.Dir(dir) != stores || dir == stores+"/storetest" {
			return
		}
		c.report(storeRule, p, spec.Pos(), imported, "imports the concrete store %s: only cmd does; take an interface of what is needed", dir)
	})
}

// modules holds that the folders bench and tools are modules of their own, which
// the parser would have left out.
func (c *checker) modules(p *pkg) {
	for _, dir := range []string{"bench", "tools"} {
		if isWithin(p.dir, dir) {
			c.report(moduleRule, p, p.files[0].ast.Package, p.dir, "%s is a part of the main module: %s/go.mod is missing, so that users of Pulsegate inherit what it imports", p.dir, dir)
		}
	}
}

// importForms holds that no file hides where a name comes from, or leaves the
// guarantees of the language. To ask unsafe for a size leaves none.
func (c *checker) importForms(p *pkg) {
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		if spec.Name != nil && spec.Name.Name == "." {
			c.report(dotImportRule, p, spec.Pos(), imported, "imports %s without a name: its names look like those of %s", imported, p.dir)
		}
		if imported == "C" || imported == "unsafe" && (spec.Name != nil || !asksForSizesOnly(f.ast)) {
			c.report(unsafeRule, p, spec.Pos(), imported, "imports %q: an exception needs a proof in a comment, a test, and a line in internal/archtest/tables_test.go", imported)
		}
	})
}

// asksForSizesOnly reports whether f uses nothing of unsafe but sizes and offsets,
// which are constants.
func asksForSizesOnly(f *ast.File) bool {
	only := true
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == "unsafe" {
				only = only && slices.Contains([]string{"Alignof", "Offsetof", "Sizeof"}, sel.Sel.Name)
			}
		}
		return only
	})
	return only
}
