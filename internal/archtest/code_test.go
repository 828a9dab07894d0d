package archtest_test

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// surroundings lists what a library must get from its caller instead of accessing it.
// An empty list means every name in the package.
var surroundings = []struct {
	rule    rule
	path    string
	names   []string
	instead string
}{
	{flagsRule, "flag", nil, "take a parameter; flags are for cmd"},
	{flagsRule, "os", []string{"Args"}, "take a parameter; flags are for cmd"},
	{environmentRule, "os", []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv", "Clearenv"}, "take a parameter; the environment is for cmd"},
	{environmentRule, "syscall", []string{"Getenv", "Environ", "Setenv", "Unsetenv", "Clearenv"}, "take a parameter; the environment is for cmd"},
	{loggerRule, "log", []string{
		"Print", "Printf", "Println", "Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln",
		"Default", "Output", "SetFlags", "SetOutput", "SetPrefix", "Flags", "Prefix", "Writer",
	}, "take a *slog.Logger"},
	{loggerRule, "log/slog", []string{
		"Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext",
		"Log", "LogAttrs", "With", "Default", "SetDefault", "SetLogLoggerLevel",
	}, "take a *slog.Logger"},
}

// surroundings checks that libraries use no flags, no environment and no global logger.
func (c *checker) surroundings(p *pkg) {
	if p.isCommand() {
		return
	}
	for f := range p.sources() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			imported := p.packageOf(id)
			for _, s := range surroundings {
				if s.path == imported && (s.names == nil || slices.Contains(s.names, sel.Sel.Name)) {
					what := imported + "." + sel.Sel.Name
					c.report(s.rule, p, sel.Pos(), what, "uses %s in a library: %s", what, s.instead)
				}
			}
			return true
		})
	}
}

// inits checks that importing a package has no effects.
func (c *checker) inits(p *pkg) {
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				c.report(initRule, p, fn.Pos(), "init", "declares func init: importing a package must have no effects; let the caller call a function")
			}
		}
	}
}

// names checks that a package is named after what it does.
func (c *checker) names(p *pkg) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc"}
	seen := make(map[string]bool)
	for _, f := range p.files {
		name := f.ast.Name.Name
		if slices.Contains(vague, strings.TrimSuffix(name, "_test")) && !seen[name] {
			seen[name] = true
			c.report(nameRule, p, f.ast.Package, name, "package %s: the name is meaningless; name it after what it does", name)
		}
	}
	if base := path.Base(p.dir); slices.Contains(vague, base) && !seen[base] {
		c.report(nameRule, p, p.files[0].ast.Package, base, "directory %s: the name is meaningless; name it after its content", p.dir)
	}
}

// methods checks that no type has more than maxMethods methods. Files for different systems may declare the
// same one.
func (c *checker) methods(p *pkg) {
	declared := make(map[string]map[string]bool)
	for f := range p.sources() {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			of := typeName(fn.Recv.List[0].Type)
			if declared[of] == nil {
				declared[of] = make(map[string]bool)
			}
			if declared[of][fn.Name.Name] = true; len(declared[of]) == maxMethods+1 {
				c.report(methodsRule, p, fn.Pos(), of, "type %s has more than %d methods: split it by what it is responsible for", of, maxMethods)
			}
		}
	}
}

// comments checks that exactly one file of each package has a package comment, and that
// the comments of libraries have a section "Not here".
func (c *checker) comments(p *pkg) {
	var commented []*file
	var first *file
	for f := range p.sources() {
		if first == nil {
			first = f
		}
		if f.ast.Doc != nil {
			commented = append(commented, f)
		}
	}
	switch {
	case first == nil: // test files only
	case len(commented) == 0:
		c.report(commentRule, p, first.ast.Package, p.dir, "package %s has no comment: document what it promises and, under \"# Not here\", what it leaves to others", p.dir)
	case len(commented) > 1:
		c.report(commentRule, p, commented[1].ast.Package, p.dir, "package %s has a comment in %s already: godoc would concatenate the two", p.dir, commented[0].path)
	case !p.isCommand() && !slices.Contains(strings.Split(commented[0].ast.Doc.Text(), "\n"), "# Not here"):
		c.report(commentRule, p, commented[0].ast.Package, p.dir, "the comment of package %s has no section \"# Not here\": document what it leaves to others", p.dir)
	}
}
