package archtest_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// signTable is the file with the table of signs, and dashboard the package of the page.
const (
	signTable = "vitals/sign.go"
	dashboard = "internal/api/dashboard"
)

// A signNames has the names of the built-in signs.
type signNames struct {
	constants []string       // of package vitals
	fields    *regexp.Regexp // nil if there is no table
}

// signsOf returns the names in the table of signs: its constants, and their fields.
func signsOf(s *source) (names signNames) {
	var fields []string
	for _, p := range s.packages {
		for _, f := range p.files {
			if f.path != signTable {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				table, ok := n.(*ast.ValueSpec)
				if !ok || table.Names[0].Name != "builtIn" {
					return true
				}
				ast.Inspect(table, func(n ast.Node) bool {
					row, ok := n.(*ast.KeyValueExpr)
					if !ok {
						return true
					}
					key := row.Key.(*ast.Ident).Name
					switch value := row.Value.(type) {
					case *ast.CompositeLit:
						if value.Type == nil {
							names.constants = append(names.constants, key)
						}
					case *ast.BasicLit:
						if key == "Field" {
							fields = append(fields, regexp.QuoteMeta(strings.Trim(value.Value, `"`)))
						}
					}
					return true
				})
				return false
			})
		}
	}
	if len(fields) > 0 {
		names.fields = regexp.MustCompile(`\b(` + strings.Join(fields, "|") + `)\b`)
	}
	return names
}

// signs checks that a sign is named only where signFiles allows it: everything else gets the table
// of signs, so that a new sign is one row.
func (c *checker) signs(p *pkg) {
	if c.signNames.fields == nil {
		return
	}
	report := func(pos token.Pos, name string) {
		c.report(signRule, p, pos, name,
			"names the sign %s: get it from the table of signs (vitals.Signs), or list the file in signFiles", name)
	}
	for f := range p.sources() {
		if f.path == signTable ||
			slices.ContainsFunc(signFiles, func(allowed string) bool { return isWithin(f.path, allowed) }) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && p.packageOf(id) == module+"/vitals" &&
					slices.Contains(c.signNames.constants, n.Sel.Name) {
					report(n.Pos(), n.Sel.Name)
				}
			case *ast.Ident:
				if p.dir == "vitals" && slices.Contains(c.signNames.constants, n.Name) {
					report(n.Pos(), n.Name)
				}
			case *ast.BasicLit:
				if field := c.signNames.fields.FindString(n.Value); n.Kind == token.STRING && field != "" {
					report(n.Pos(), field)
				}
			}
			return true
		})
	}
	if p.dir != dashboard {
		return
	}
	for _, page := range c.source.pages {
		for _, at := range c.signNames.fields.FindAllStringIndex(page.text, -1) {
			name := page.text[at[0]:at[1]]
			c.violations = append(c.violations, violation{
				exception: exception{signRule, p.dir, false, name},
				place:     token.Position{Filename: page.path, Line: 1 + strings.Count(page.text[:at[0]], "\n")},
				text:      "names the sign " + name + ": the page gets its signs from /v1/limits",
			})
		}
	}
}
