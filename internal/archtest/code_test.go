package archtest_test

import (
	"bytes"
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
				c.report(methodsRule, p, fn.Pos(), of, "type %s has more than %d methods: split it by what it is responsible for",
					of, maxMethods)
			}
		}
	}
}

// messages checks that no text of an error begins with the name of its package, but in the packages that other programs
// import for their routes, answers and checks: there it says where the error is from.
func (c *checker) messages(p *pkg) {
	if slices.Contains([]string{"health", "mux", "reply"}, p.dir) {
		return
	}
	for f := range p.sources() {
		prefix := strconv.Quote(f.ast.Name.Name + ": ")
		prefix = prefix[:len(prefix)-1]
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			of, ok := call.Fun.(*ast.SelectorExpr)
			text, isText := call.Args[0].(*ast.BasicLit)
			if ok && isText && slices.Contains([]string{"New", "Errorf"}, of.Sel.Name) && strings.HasPrefix(text.Value, prefix) {
				c.report(messageRule, p, text.Pos(), text.Value, "the text %s begins with the name of its package", text.Value)
			}
			return true
		})
	}
}

// widths checks that lines have at most maxColumn characters, a tab being one. Raw strings are excepted: they are texts
// of other languages, or tags.
func (c *checker) widths(p *pkg) {
	for _, f := range p.files {
		lines := c.source.fset.File(f.ast.FileStart)
		raw := make(map[int]bool)
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(text.Value, "`") {
				for line := lines.Line(text.Pos()); line <= lines.Line(text.End()); line++ {
					raw[line] = true
				}
			}
			return true
		})
		line := 0
		for text := range bytes.Lines(f.text) {
			line++
			n := utf8.RuneCount(bytes.TrimSuffix(text, []byte("\n")))
			if n > maxColumn && !raw[line] {
				c.report(widthRule, p, lines.LineStart(line), f.path,
					"the line has %d characters, want at most %d", n, maxColumn)
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
		c.report(commentRule, p, first.ast.Package, p.dir,
			"package %s has no comment: document what it promises and, under \"# Not here\", what it leaves to others", p.dir)
	case len(commented) > 1:
		c.report(commentRule, p, commented[1].ast.Package, p.dir,
			"package %s has a comment in %s already: godoc would concatenate the two", p.dir, commented[0].path)
	case !p.isCommand() && !slices.Contains(strings.Split(commented[0].ast.Doc.Text(), "\n"), "# Not here"):
		c.report(commentRule, p, commented[0].ast.Package, p.dir,
			"the comment of package %s has no section \"# Not here\": document what it leaves to others", p.dir)
	}
}
