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

// roleOf returns the role of the directory dir, or "".
func roleOf(dir string) role {
	if slices.Contains(public, dir) {
		return publicRole
	}
	for r := range ranks {
		if r != publicRole && isWithin(dir, string(r)) {
			return r
		}
	}
	return ""
}

// roles checks that each package has a role, that imports point down the list of roles,
// and that clients share no code with the server.
func (c *checker) roles(p *pkg) {
	const table = "the roles are in ARCHITECTURE.md and internal/archtest/tables_test.go"
	own := roleOf(p.dir)
	if own == "" {
		c.report(roleRule, p, p.files[0].ast.Package, p.dir, "package %s has no role: %s", p.dir, table)
		return
	}
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		dir, ok := ownDir(imported)
		if !ok || dir == p.dir {
			return
		}
		to := roleOf(dir)
		switch {
		case to == "":
			c.report(roleRule, p, spec.Pos(), imported, "imports %s, which has no role: %s", dir, table)
		case to == own:
		case ranks[to] > ranks[own]:
			c.report(roleRule, p, spec.Pos(), imported, "imports %s of %s, which is above %s: imports must point down",
				dir, to, own)
		case f.test:
		case to == pollRole, to == portRole, to == pgRole, to == certRole:
			c.report(roleRule, p, spec.Pos(), imported, "imports %s, which is for tests only", dir)
		case ranks[to] == ranks[own]:
			c.report(roleRule, p, spec.Pos(), imported, "imports %s of %s, which is beside %s: only tests may import sideways",
				dir, to, own)
		case own == clientRole && to != publicRole &&
			!slices.ContainsFunc(clientImports, func(d string) bool { return isWithin(dir, d) }):
			c.report(roleRule, p, spec.Pos(), imported, "imports %s: a client shares no code with the server except %s", dir,
				strings.Join(clientImports, ", "))
		}
	})
}

// libraries checks that third-party modules are imported only where allowed.
func (c *checker) libraries(p *pkg) {
	also, onlyStandard := standardOnly[p.dir]
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		if _, own := ownDir(imported); own || isStandard(imported) {
			return
		}
		if onlyStandard && !f.test && !slices.ContainsFunc(also, func(m string) bool { return isWithin(imported, m) }) {
			c.report(standardRule, p, spec.Pos(), imported, "imports %s: %s may import only %s", imported, p.dir,
				strings.Join(append([]string{"the standard library"}, also...), " and "))
			return
		}
		i := slices.IndexFunc(libraries, func(l library) bool { return isWithin(imported, l.path) })
		if i < 0 {
			c.report(libraryRule, p, spec.Pos(), imported,
				"imports %s, which is not a listed library: a peer for comparison belongs in bench, a tool in tools; a library "+
					"needs a reason in docs/adr and a line in internal/archtest/tables_test.go", imported)
			return
		}
		l := libraries[i]
		switch {
		case f.test:
		case l.tests && p.dir != "internal/storage/storetest":
			c.report(libraryRule, p, spec.Pos(), imported, "imports %s, which is for tests only", imported)
		case l.users != nil && !slices.Contains(l.users, p.dir):
			c.report(libraryRule, p, spec.Pos(), imported, "imports %s, which is for %s only", imported,
				strings.Join(l.users, " and "))
		}
	})
}

// stores checks that only commands, the server and tests name a concrete store.
func (c *checker) stores(p *pkg) {
	const stores = "internal/storage"
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		dir, ok := ownDir(imported)
		if !ok || f.test || p.isCommand() || roleOf(p.dir) == serverRole || !strings.HasSuffix(dir, "store") ||
			path.Dir(dir) != stores {
			return
		}
		c.report(storeRule, p, spec.Pos(), imported,
			"imports the concrete store %s: only cmd and server may; use an interface", dir)
	})
}

// parts checks that the packages below the embedded store import of this module only what they may
// know. Which may import Pebble is in libraries.
func (c *checker) parts(p *pkg) {
	const store = "internal/storage/pebblestore"
	if !isWithin(p.dir, store) || p.dir == store {
		return
	}
	may, ok := parts[strings.TrimPrefix(p.dir, store+"/")]
	if !ok {
		c.report(partRule, p, p.files[0].ast.Package, p.dir,
			"package %s is not a listed part: parts are in ARCHITECTURE.md and internal/archtest/tables_test.go", p.dir)
		return
	}
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		dir, own := ownDir(imported)
		if !own || f.test || slices.Contains(may, dir) || slices.Contains(may, strings.TrimPrefix(dir, store+"/")) {
			return
		}
		c.report(partRule, p, spec.Pos(), imported, "imports %s, which this part of the embedded store must not know", dir)
	})
}

// modules checks that the directories bench and tools are separate modules, which the
// parser skips.
func (c *checker) modules(p *pkg) {
	for _, dir := range []string{"bench", "tools"} {
		if isWithin(p.dir, dir) {
			c.report(moduleRule, p, p.files[0].ast.Package, p.dir,
				"%s is part of the main module: %s/go.mod is missing, so that users of Pulsegate inherit what it imports",
				p.dir, dir)
		}
	}
}

// importForms checks that files use no cgo, and unsafe only for sizes and offsets. That none
// uses dot imports is a check of staticcheck.
func (c *checker) importForms(p *pkg) {
	eachImport(p, func(f *file, spec *ast.ImportSpec, imported string) {
		if imported == "C" || imported == "unsafe" && (spec.Name != nil || !usesOnlySizes(f.ast)) {
			c.report(unsafeRule, p, spec.Pos(), imported,
				"imports %q: an exception needs a proof in a comment, a test, and a line in internal/archtest/tables_test.go",
				imported)
		}
	})
}

// usesOnlySizes reports whether f uses unsafe only for sizes and offsets, which are
// constants.
func usesOnlySizes(f *ast.File) bool {
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
