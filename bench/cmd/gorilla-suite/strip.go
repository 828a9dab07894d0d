package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A suite is gorilla's test files as an external test package.
type suite struct {
	fset     *token.FileSet
	importer types.Importer
	files    []*ast.File

	// What was removed and why: whole tests, benchmarks and examples, and calls of
	// removed helpers within remaining tests.
	stripped  []string
	shortened []string
}

func loadSuite(dir string) (*suite, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	s := &suite{fset: token.NewFileSet()}
	s.importer = importer.ForCompiler(s.fset, "source", nil)
	for _, path := range paths {
		f, err := parser.ParseFile(s.fset, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		s.redirect(f)
		s.files = append(s.files, f)
	}
	return s, nil
}

// redirect turns the file into an external test of package mux. Internal tests of
// gorilla/mux get a dot import, so that names need not change.
func (s *suite) redirect(f *ast.File) {
	internal := f.Name.Name == "mux"
	f.Name.Name = "main_test"
	for _, spec := range f.Imports {
		if spec.Path.Value == strconv.Quote(gorillaModule) {
			spec.Path.Value = strconv.Quote(muxPackage)
		}
	}
	if !internal {
		return
	}
	spec := &ast.ImportSpec{
		Name: ast.NewIdent("."),
		Path: &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(muxPackage)},
	}
	f.Imports = append(f.Imports, spec)
	f.Decls = append([]ast.Decl{&ast.GenDecl{Tok: token.IMPORT, Specs: []ast.Spec{spec}}}, f.Decls...)
	// Ensure that the import is used, whatever remains of the file.
	anchor := &ast.ValueSpec{Names: []*ast.Ident{ast.NewIdent("_")}, Type: &ast.StarExpr{X: ast.NewIdent("Router")}}
	f.Decls = append(f.Decls, &ast.GenDecl{Tok: token.VAR, Specs: []ast.Spec{anchor}})
}

// strip removes declarations until the rest type-checks. Users of a removed helper are
// removed in the next round.
func (s *suite) strip() error {
	const maxRounds = 50
	for range maxRounds {
		bad := s.check()
		if len(bad) == 0 {
			return nil
		}
		removed := false
		for _, f := range s.files {
			removed = s.remove(f, bad) || removed
		}
		if !removed {
			return fmt.Errorf("strip tests: cannot remove the cause of %w", bad[0])
		}
	}
	return errors.New("strip tests: too many rounds")
}

func (s *suite) check() []types.Error {
	var bad []types.Error
	conf := types.Config{
		Importer: s.importer,
		Error: func(err error) {
			if e, ok := errors.AsType[types.Error](err); ok {
				bad = append(bad, e)
			}
		},
	}
	// conf.Error collects the errors in bad.
	_, _ = conf.Check("main_test", s.fset, s.files, nil)
	return bad
}

// remove removes the top-level declarations with errors from the file.
func (s *suite) remove(f *ast.File, bad []types.Error) bool {
	hit := func(n ast.Node) bool {
		return slices.ContainsFunc(bad, func(e types.Error) bool { return n.Pos() <= e.Pos && e.Pos < n.End() })
	}
	removed := false
	f.Decls = slices.DeleteFunc(f.Decls, func(d ast.Decl) bool {
		if gen, ok := d.(*ast.GenDecl); ok {
			before := len(gen.Specs)
			gen.Specs = slices.DeleteFunc(gen.Specs, func(spec ast.Spec) bool { return hitSpec(spec, hit) })
			removed = removed || len(gen.Specs) < before
			return len(gen.Specs) == 0
		}
		if !hit(d) {
			return false
		}
		removed = true
		if s.shorten(f, d.(*ast.FuncDecl), bad) {
			return false
		}
		s.note(f, d.(*ast.FuncDecl), bad)
		return true
	})
	f.Imports = nil
	for _, d := range f.Decls {
		if gen, ok := d.(*ast.GenDecl); ok && gen.Tok == token.IMPORT {
			for _, spec := range gen.Specs {
				f.Imports = append(f.Imports, spec.(*ast.ImportSpec))
			}
		}
	}
	return removed
}

// hitSpec reports whether a spec has an error. The dot import added by redirect has no
// position and is kept.
func hitSpec(spec ast.Spec, hit func(ast.Node) bool) bool {
	if imp, ok := spec.(*ast.ImportSpec); ok && !imp.Path.ValuePos.IsValid() {
		return false
	}
	return hit(spec)
}

// shorten removes the statements of a function that only call a removed helper. It
// reports whether that removes all errors of the function.
func (s *suite) shorten(f *ast.File, d *ast.FuncDecl, bad []types.Error) bool {
	var rest []types.Error
	for _, e := range bad {
		if d.Pos() <= e.Pos && e.Pos < d.End() {
			rest = append(rest, e)
		}
	}
	gone := make(map[ast.Stmt]string)
	ast.Inspect(d, func(n ast.Node) bool {
		stmt, ok := n.(*ast.ExprStmt)
		if !ok {
			return true
		}
		call, ok := stmt.X.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, ok := call.Fun.(*ast.Ident)
		if !ok {
			return true
		}
		before := len(rest)
		rest = slices.DeleteFunc(rest, func(e types.Error) bool { return e.Pos == name.Pos() })
		if len(rest) < before {
			gone[stmt] = name.Name
		}
		return true
	})
	if len(rest) > 0 {
		return false
	}
	file := filepath.Base(s.fset.Position(f.Package).Filename)
	ast.Inspect(d, func(n ast.Node) bool {
		block, ok := n.(*ast.BlockStmt)
		if !ok {
			return true
		}
		block.List = slices.DeleteFunc(block.List, func(stmt ast.Stmt) bool {
			if name, found := gone[stmt]; found {
				s.shortened = append(s.shortened, fmt.Sprintf("%s (%s): without %s", d.Name.Name, file, name))
				return true
			}
			return false
		})
		return true
	})
	return true
}

// note records a removed test and the first name that it could not use.
func (s *suite) note(f *ast.File, d *ast.FuncDecl, bad []types.Error) {
	name := d.Name.Name
	if d.Recv != nil || !isTestName(name) {
		return
	}
	file := filepath.Base(s.fset.Position(f.Package).Filename)
	first := bad[slices.IndexFunc(bad, func(e types.Error) bool { return d.Pos() <= e.Pos && e.Pos < d.End() })]
	s.stripped = append(s.stripped, fmt.Sprintf("%s (%s): %s", name, file, first.Msg))
}

func isTestName(name string) bool {
	for _, prefix := range []string{"Test", "Example", "Benchmark"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// pattern returns a pattern that matches the remaining tests and examples. Benchmarks
// are not run, because they check nothing.
func (s *suite) pattern() string {
	return "^(Test|Example)"
}

func (s *suite) print() [][]byte {
	texts := make([][]byte, len(s.files))
	for i, f := range s.files {
		// Comments of removed declarations would be attached elsewhere. Comments in
		// examples have the expected output and must be kept.
		f.Comments = slices.DeleteFunc(f.Comments, func(c *ast.CommentGroup) bool {
			return !slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
				return d.Pos().IsValid() && d.Pos() <= c.Pos() && c.End() <= d.End()
			})
		})
		var out bytes.Buffer
		if err := format.Node(&out, s.fset, f); err != nil {
			// A parsed file can always be printed.
			panic(fmt.Sprintf("gorilla-suite: print %s: %v", f.Name, err))
		}
		texts[i] = out.Bytes()
	}
	return texts
}
