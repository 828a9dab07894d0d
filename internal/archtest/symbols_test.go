package archtest_test

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// symbols are the names declared in a package: "Name" at package level, "Type.Name" for
// methods, fields and interface methods.
type symbols map[string]bool

// symbolsOf returns the symbols of each package by directory. It includes tests,
// because comments name the tests that check an invariant.
func symbolsOf(s *source) map[string]symbols {
	all := make(map[string]symbols)
	for _, p := range s.packages {
		all[p.dir] = make(symbols)
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				all[p.dir].declare(d)
			}
		}
		all[p.dir].promote()
	}
	return all
}

// embedding begins the key of an embedded field.
const embedding = "embedded "

// promote gives each type the methods and fields of the types of its package that it embeds.
func (s symbols) promote() {
	for range 2 { // an embedded type may embed another
		for _, key := range slices.Collect(maps.Keys(s)) {
			key, ok := strings.CutPrefix(key, embedding)
			outer, inner, _ := strings.Cut(key, ".")
			if !ok {
				continue
			}
			for symbol := range maps.Clone(s) {
				if member, ok := strings.CutPrefix(symbol, inner+"."); ok {
					s[outer+"."+member] = true
				}
			}
		}
	}
}

func (s symbols) declare(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			name = typeName(d.Recv.List[0].Type) + "." + name
		}
		s[name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					s[name.Name] = true
				}
			case *ast.TypeSpec:
				s[spec.Name.Name] = true
				s.declareMembers(spec)
			}
		}
	}
}

func (s symbols) declareMembers(spec *ast.TypeSpec) {
	var list *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			s[spec.Name.Name+"."+name.Name] = true
		}
		if len(field.Names) == 0 {
			s[spec.Name.Name+"."+typeName(field.Type)] = true
			s[embedding+spec.Name.Name+"."+typeName(field.Type)] = true
		}
	}
}

// typeName returns the name of a receiver's or an embedded field's type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

var (
	docLink   = regexp.MustCompile(`\[\*?([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*){0,2})\]`)
	selector  = regexp.MustCompile(`\b([a-z][A-Za-z0-9]*)\.([A-Za-z]\w*)(?:\.([A-Za-z]\w*))?`)
	testName  = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
	fileNames = []string{"go", "md", "js", "json", "toml", "csv", "svg"}
)

// symbols checks that the symbols named in a package comment exist: doc links and tests.
func (c *checker) symbols(p *pkg) {
	for f := range p.sources() {
		if f.ast.Doc == nil {
			continue
		}
		report := func(what, format string, args ...any) {
			c.report(symbolRule, p, f.ast.Doc.Pos(), what, format, args...)
		}
		text := f.ast.Doc.Text()
		for _, m := range docLink.FindAllStringSubmatch(text, -1) {
			if !c.exists(p, f, m[1]) {
				report(m[1], "the package comment links [%s], which does not exist", m[1])
			}
		}
		for _, name := range testName.FindAllString(text, -1) {
			if !c.declared(name) {
				report(name, "the package comment names %s, which does not exist", name)
			}
		}
	}
}

// exists reports whether the symbol of a doc link in p exists. It assumes that symbols
// of other modules exist.
func (c *checker) exists(p *pkg, f *file, link string) bool {
	first, rest, qualified := strings.Cut(link, ".")
	if c.declaredBy[p.dir][link] {
		return true
	}
	if !qualified || token.IsExported(first) {
		return !token.IsExported(first) && !qualified // [n] is an index, not a link
	}
	for _, spec := range f.ast.Imports {
		if dir, own := ownDir(importPath(spec)); !own && path.Base(dir) == first {
			return true
		}
	}
	for dir, declared := range c.declaredBy {
		if path.Base(dir) == first {
			return declared[rest]
		}
	}
	return true // in the standard library or in a library
}

// declared reports whether any package of the module declares name.
func (c *checker) declared(name string) bool {
	for _, s := range c.declaredBy {
		if s[name] {
			return true
		}
	}
	return false
}

// missingSymbols returns the symbols and tests named in text that do not exist in the
// module.
func missingSymbols(s *source, text string) (missing []string) {
	c := &checker{source: s, declaredBy: symbolsOf(s)}
	byBase := make(map[string]symbols)
	for dir, declared := range c.declaredBy {
		byBase[path.Base(dir)] = declared
	}
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		declared, own := byBase[m[1]]
		if !own || slices.Contains(fileNames, m[2]) {
			continue
		}
		name := m[2]
		if m[3] != "" {
			name += "." + m[3]
		}
		if !declared[name] {
			missing = append(missing, m[0])
		}
	}
	for _, name := range testName.FindAllString(text, -1) {
		if !c.declared(name) {
			missing = append(missing, name)
		}
	}
	return missing
}
