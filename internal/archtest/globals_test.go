package archtest_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// globals checks that package-level variables are set where they are declared and never
// change: they are not assigned to and do not have a type that is meant to be modified.
//
// It does not detect changes through a pointer or by a method. Test files are exempt.
func (c *checker) globals(p *pkg) {
	specs := p.typeSpecs()
	for f := range p.sources() {
		for _, d := range f.ast.Decls {
			if gen, ok := d.(*ast.GenDecl); ok && gen.Tok == token.VAR {
				for _, spec := range gen.Specs {
					c.globalTypes(p, spec.(*ast.ValueSpec), specs)
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			c.globalChanges(p, n)
			return true
		})
	}
}

// typeSpecs returns the type declarations of p by the declared object.
func (p *pkg) typeSpecs() map[types.Object]*ast.TypeSpec {
	specs := make(map[types.Object]*ast.TypeSpec)
	for f := range p.sources() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				// Files for different systems may declare the same type; only the first
				// declaration has an object.
				if object := p.info.Defs[spec.Name]; object != nil {
					specs[object] = spec
				}
			}
			return true
		})
	}
	return specs
}

// globalTypes reports the variables of spec whose types are meant to be modified.
func (c *checker) globalTypes(p *pkg, spec *ast.ValueSpec, specs map[types.Object]*ast.TypeSpec) {
	for i, name := range spec.Names {
		v, ok := p.info.Defs[name].(*types.Var)
		if !ok || v.Parent() != v.Pkg().Scope() {
			continue
		}
		if _, ok := v.Type().Underlying().(*types.Chan); ok {
			c.report(globalRule, p, name.Pos(), name.Name, "var %s is a channel at package level: let a value own it", name.Name)
			continue
		}
		found := ""
		look := func(n ast.Node) {
			if n != nil && found == "" {
				found = p.mutableType(n, specs, nil)
			}
		}
		if spec.Type != nil {
			look(spec.Type)
		}
		if i < len(spec.Values) {
			look(spec.Values[i])
		}
		if named := namedOf(v.Type()); named != nil {
			if spec := specs[named.Obj()]; spec != nil {
				look(spec.Type)
			}
		}
		if found != "" {
			c.report(globalRule, p, name.Pos(), name.Name, "var %s holds a %s at package level: let a value own it",
				name.Name, found)
		}
	}
}

// namedOf returns the named type that t is or points to, or nil.
func namedOf(t types.Type) *types.Named {
	if ptr, ok := types.Unalias(t).(*types.Pointer); ok {
		t = ptr.Elem()
	}
	named, _ := types.Unalias(t).(*types.Named)
	return named
}

// mutableType returns the first type of sync or sync/atomic in n, directly or within a
// type of p, or "". It ignores function bodies.
func (p *pkg) mutableType(n ast.Node, specs map[types.Object]*ast.TypeSpec, seen []*ast.TypeSpec) string {
	mutable := map[string][]string{
		"sync":        {"Cond", "Locker", "Map", "Mutex", "Once", "Pool", "RWMutex", "WaitGroup"},
		"sync/atomic": {"Bool", "Int32", "Int64", "Pointer", "Uint32", "Uint64", "Uintptr", "Value"},
	}
	found := ""
	ast.Inspect(n, func(n ast.Node) bool {
		if found != "" {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit, *ast.FuncType:
			return false
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok {
				if imported := p.packageOf(id); slices.Contains(mutable[imported], n.Sel.Name) {
					found = imported + "." + n.Sel.Name
				}
			}
		case *ast.Ident:
			if spec := specs[p.info.Uses[n]]; spec != nil && !slices.Contains(seen, spec) {
				found = p.mutableType(spec.Type, specs, append(seen, spec))
			}
		}
		return true
	})
	return found
}

// globalChanges reports n if it assigns to a package-level variable, or to a field or
// element of one.
func (c *checker) globalChanges(p *pkg, n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, left := range n.Lhs {
				c.globalChange(p, left)
			}
		}
	case *ast.IncDecStmt:
		c.globalChange(p, n.X)
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			for _, left := range []ast.Expr{n.Key, n.Value} {
				if left != nil {
					c.globalChange(p, left)
				}
			}
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 {
			if b, ok := p.info.Uses[id].(*types.Builtin); ok && slices.Contains([]string{"clear", "copy", "delete"}, b.Name()) {
				c.globalChange(p, n.Args[0])
			}
		}
	}
}

// globalChange reports a change of e if e is a package-level variable of p or a part of
// one.
func (c *checker) globalChange(p *pkg, e ast.Expr) {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok {
				if imported := p.packageOf(id); imported != "" {
					what := imported + "." + x.Sel.Name
					c.report(globalRule, p, x.Pos(), what, "changes %s, a variable of another package", what)
					return
				}
			}
			e = x.X
		case *ast.Ident:
			if v, ok := p.info.Uses[x].(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				c.report(globalRule, p, x.Pos(), x.Name, "changes the package-level variable %s: let a value own it", x.Name)
			}
			return
		default:
			return
		}
	}
}
