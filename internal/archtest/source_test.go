package archtest_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A source is the parsed Go files of a module.
type source struct {
	fset     *token.FileSet
	packages []*pkg // sorted by directory
	pages    []page // scripts and documents of the dashboard, sorted by path
}

// A page is a text that a browser gets.
type page struct{ path, text string }

// A pkg is the Go files of one directory.
type pkg struct {
	dir   string  // slash-separated, from the module's root; "." is the root
	files []*file // sorted by name
	info  *types.Info
}

// A file is one Go file.
type file struct {
	path string // slash-separated, from the module's root
	test bool   // a _test.go file
	text []byte
	ast  *ast.File
}

// parse parses every Go file of the module at root. Like the go command, it skips
// testdata, vendor, names that begin with . or _, and nested modules.
func parse(root fs.FS) (*source, error) {
	s := &source{fset: token.NewFileSet()}
	byDir := make(map[string]*pkg)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		hidden := name != "." && (base[0] == '.' || base[0] == '_')
		if d.IsDir() {
			_, modErr := fs.Stat(root, path.Join(name, "go.mod"))
			if hidden || base == "testdata" || base == "vendor" || name != "." && modErr == nil {
				return fs.SkipDir
			}
			return nil
		}
		isPage := strings.HasPrefix(name, dashboard+"/") &&
			(strings.HasSuffix(name, ".js") || strings.HasSuffix(name, ".html"))
		if hidden || !strings.HasSuffix(name, ".go") && !isPage {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if isPage {
			s.pages = append(s.pages, page{name, string(text)})
			return nil
		}
		tree, err := parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir}
		}
		byDir[dir].files = append(byDir[dir].files, &file{name, isTest(name), text, tree})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		p := byDir[dir]
		p.resolve(s.fset)
		s.packages = append(s.packages, p)
	}
	return s, nil
}

// isTest reports whether the file is built only for tests.
func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// resolve resolves the identifiers in p's files, except test files, to objects.
//
// It imports no packages, so types from other packages stay unknown. The scopes within
// p do not depend on them: a name still resolves to an import, a package-level variable
// or a local variable.
func (p *pkg) resolve(fset *token.FileSet) {
	p.info = &types.Info{
		Defs: make(map[*ast.Ident]types.Object),
		Uses: make(map[*ast.Ident]types.Object),
	}
	var files []*ast.File
	for f := range p.sources() {
		files = append(files, f.ast)
	}
	conf := types.Config{Importer: noImporter{}, Error: func(error) {}}
	// Ignore errors: they are about missing imports, and about names that files for
	// different systems declare repeatedly.
	_, _ = conf.Check(p.dir, fset, files, p.info)
}

type noImporter struct{}

func (noImporter) Import(string) (*types.Package, error) {
	return nil, errors.New("archtest: imports are not resolved")
}

// sources yields the files of p except test files.
func (p *pkg) sources() func(yield func(*file) bool) {
	return func(yield func(*file) bool) {
		for _, f := range p.files {
			if !f.test && !yield(f) {
				return
			}
		}
	}
}

// isCommand reports whether p is a program and not a library.
func (p *pkg) isCommand() bool { return strings.HasPrefix(p.dir, "cmd/") }

// packageOf returns the path of the import that id names, or "".
func (p *pkg) packageOf(id *ast.Ident) string {
	if name, ok := p.info.Uses[id].(*types.PkgName); ok {
		return name.Imported().Path()
	}
	return ""
}

// importPath returns the path of an import without its quotes.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}

// ownDir returns the directory of an import from this module, and whether it is one.
func ownDir(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// isStandard reports whether an import is from the standard library: its first element
// has no dot.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// isWithin reports whether an import is prefix or a package below it.
func isWithin(importPath, prefix string) bool {
	return importPath == prefix || strings.HasPrefix(importPath, prefix+"/")
}
