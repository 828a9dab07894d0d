package archtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// TestSystems checks the types of the module's packages as they are built for systems without the
// fast lane. Compiling them, as go vet does, would cost twenty times the time, because every
// dependency would be compiled for each system.
func TestSystems(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(300)) // syntax trees are large, and garbage soon
	files := parsedFiles{token.NewFileSet(), map[string]*ast.File{}}
	for _, system := range []string{"darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			if err := files.checkTypes("../..", system); err != nil {
				t.Errorf("the module does not build for %s:\n%v", system, err)
			}
		})
	}
}

// An importer returns the packages that have been checked, by path.
type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }

// parsedFiles are files by path. Most of them belong to every system.
type parsedFiles struct {
	fset  *token.FileSet
	files map[string]*ast.File
}

func (files parsedFiles) parse(path string) (*ast.File, error) {
	if f := files.files[path]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(files.fset, path, nil, parser.SkipObjectResolution)
	if err == nil {
		files.files[path] = f
	}
	return f, err
}

// checkTypes checks the types of all packages of the module in dir as they are built for a
// system. It returns the errors in the module's own packages: an error in a dependency that
// matters shows there too.
func (files parsedFiles) checkTypes(dir, system string) error {
	list := exec.Command("go", "list", "-deps", "-json=Dir,ImportPath,GoFiles,ImportMap,Module", "./...")
	list.Dir = dir
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	var found []error
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	for decoder := json.NewDecoder(out); ; {
		var p struct {
			Dir, ImportPath string
			GoFiles         []string
			ImportMap       map[string]string
			Module          *struct{ Main bool }
		}
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return errors.Join(fmt.Errorf("go list: %w", err), list.Wait())
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		own := p.Module != nil && p.Module.Main
		report := func(err error) {
			if own {
				found = append(found, err)
			}
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := files.parse(filepath.Join(p.Dir, name))
			if err != nil {
				report(err)
				continue
			}
			parsed = append(parsed, f)
		}
		c := types.Config{
			IgnoreFuncBodies: !own,
			Sizes:            types.SizesFor("gc", "amd64"),
			Error:            report,
			Importer: importer(func(path string) (*types.Package, error) {
				if vendored := p.ImportMap[path]; vendored != "" {
					path = vendored
				}
				if q := checked[path]; q != nil {
					return q, nil
				}
				return nil, fmt.Errorf("package %s is not listed", path)
			}),
		}
		checked[p.ImportPath], _ = c.Check(p.ImportPath, files.fset, parsed, nil) // errors go to report
	}
	return errors.Join(append(found, list.Wait())...)
}
