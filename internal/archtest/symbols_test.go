package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// symbols are the names declared in a package: "Name" at package level, "Type.Name" for
// methods, fields and interface methods.
type symbols map[string]*ast.FuncType // nil if the symbol is not a function

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
			for symbol, function := range maps.Clone(s) {
				if member, ok := strings.CutPrefix(symbol, inner+"."); ok {
					s[outer+"."+member] = function
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
		s[name] = d.Type
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					s[name.Name] = nil
				}
			case *ast.TypeSpec:
				s[spec.Name.Name] = nil
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
		function, _ := field.Type.(*ast.FuncType)
		for _, name := range field.Names {
			s[spec.Name.Name+"."+name.Name] = function
		}
		if len(field.Names) == 0 {
			s[spec.Name.Name+"."+typeName(field.Type)] = nil
			s[embedding+spec.Name.Name+"."+typeName(field.Type)] = nil
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

// byName returns the functions and methods with the given name, and whether there is
// any symbol with it.
func (s symbols) byName(name string) (functions []*ast.FuncType, found bool) {
	for symbol, function := range s {
		if symbol == name || strings.HasSuffix(symbol, "."+name) {
			found = true
			if function != nil {
				functions = append(functions, function)
			}
		}
	}
	return functions, found
}

var (
	docLink   = regexp.MustCompile(`\[\*?([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*){0,2})\]`)
	selector  = regexp.MustCompile(`\b([a-z][A-Za-z0-9]*)\.([A-Za-z]\w*)(?:\.([A-Za-z]\w*))?`)
	testName  = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
	fileNames = []string{"go", "md", "js", "json", "toml", "csv", "svg"}
)

// symbols checks that the symbols named in a package comment exist: doc links, tests,
// and calls in code blocks with the right number of arguments and results.
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
		for _, block := range codeBlocks(text) {
			c.codeBlock(p, block, report)
		}
	}
}

// exists reports whether the symbol of a doc link in p exists. It assumes that symbols
// of other modules exist.
func (c *checker) exists(p *pkg, f *file, link string) bool {
	first, rest, qualified := strings.Cut(link, ".")
	if _, ok := c.declaredBy[p.dir][link]; ok {
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
			_, ok := declared[rest]
			return ok
		}
	}
	return true // in the standard library or in a library
}

// declared reports whether any package of the module declares name.
func (c *checker) declared(name string) bool {
	for _, s := range c.declaredBy {
		if _, ok := s[name]; ok {
			return true
		}
	}
	return false
}

// codeBlocks returns the indented blocks of a comment's text.
func codeBlocks(text string) (blocks []string) {
	var block []string
	for line := range strings.Lines(text + "\n") {
		if code, ok := strings.CutPrefix(line, "\t"); ok {
			block = append(block, code)
		} else if len(block) > 0 && strings.TrimSpace(line) != "" {
			blocks, block = append(blocks, strings.Join(block, "")), nil
		}
	}
	if len(block) > 0 {
		blocks = append(blocks, strings.Join(block, ""))
	}
	return blocks
}

// codeBlock checks the calls in a block if it is Go code. It ignores other blocks, such
// as tables and drawings.
func (c *checker) codeBlock(p *pkg, block string, report func(what, format string, args ...any)) {
	tree, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() {\n"+block+"\n}", parser.SkipObjectResolution)
	if err != nil {
		return
	}
	results := make(map[*ast.CallExpr][]ast.Expr)
	ast.Inspect(tree, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Rhs) == 1 {
			if call, ok := a.Rhs[0].(*ast.CallExpr); ok {
				results[call] = a.Lhs
			}
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fn, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, _ := fn.X.(*ast.Ident)
		if x == nil {
			return true
		}
		functions, found := c.called(p, x.Name, fn.Sel.Name)
		what := x.Name + "." + fn.Sel.Name
		switch {
		case !found && isPackage(x.Name):
		case !found:
			report(what, "the package comment calls %s, which does not exist", what)
		case len(functions) > 0 && !slices.ContainsFunc(functions, func(t *ast.FuncType) bool { return fits(t, call, results[call]) }):
			report(what, "the package comment calls %s with other arguments or results than it has", what)
		}
		return true
	})
}

// called returns the functions that x.name may refer to in a code block of p: those of
// package x or, if x is a variable, those of p or of any package that declares the
// name.
func (c *checker) called(p *pkg, x, name string) (functions []*ast.FuncType, found bool) {
	for dir, declared := range c.declaredBy {
		if path.Base(dir) == x {
			return declared.byName(name)
		}
	}
	if functions, found = c.declaredBy[p.dir].byName(name); found {
		return functions, true
	}
	for _, declared := range c.declaredBy {
		f, ok := declared.byName(name)
		functions, found = append(functions, f...), found || ok
	}
	return functions, found
}

// isPackage reports whether name in a code block may be a package of the standard
// library.
func isPackage(name string) bool {
	return slices.Contains([]string{"context", "errors", "fmt", "http", "io", "log", "os", "slog", "strings", "time"}, name)
}

// fits reports whether call matches a function of type t: the number of arguments, the
// number of assigned results, and an error for a result named err.
func fits(t *ast.FuncType, call *ast.CallExpr, assigned []ast.Expr) bool {
	params := t.Params.NumFields()
	variadic := false
	if n := len(t.Params.List); n > 0 {
		_, variadic = t.Params.List[n-1].Type.(*ast.Ellipsis)
	}
	if args := len(call.Args); args != params && !(variadic && args >= params-1) {
		return false
	}
	if assigned == nil {
		return true
	}
	if t.Results.NumFields() != len(assigned) {
		return false
	}
	var types []ast.Expr
	for _, field := range t.Results.List {
		for range max(1, len(field.Names)) {
			types = append(types, field.Type)
		}
	}
	for i, target := range assigned {
		id, ok := target.(*ast.Ident)
		if ok && id.Name == "err" && typeName(types[i]) != "error" {
			return false
		}
	}
	return true
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
		if _, ok := declared[name]; !ok {
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
