package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// maxRunTime bounds one run of a package's benchmarks.
const maxRunTime = 10 * time.Minute

// A program is the test program of a package with benchmarks.
type program struct {
	pkg  string // import path
	dir  string // directory of the package, where its tests expect to run
	path string
}

// build compiles the test programs of packages in the module in dir, and writes them to
// the directory into. It skips packages without benchmarks.
func build(ctx context.Context, dir, packages, into string) ([]program, error) {
	if strings.TrimSpace(packages) == "" {
		return nil, nil
	}
	if err := os.Mkdir(into, 0o700); err != nil {
		return nil, fmt.Errorf("create directory for programs: %w", err)
	}
	const form = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	list, err := goCommand(ctx, dir, append([]string{"list", "-f", form}, strings.Fields(packages)...)...)
	if err != nil {
		return nil, err
	}
	var programs []program
	for line := range strings.Lines(list) {
		pkg, pkgDir, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || !hasBenchmarks(pkgDir) {
			continue
		}
		p := program{pkg: pkg, dir: pkgDir, path: filepath.Join(into, strconv.Itoa(len(programs))+".test")}
		if _, err := goCommand(ctx, dir, "test", "-c", "-o", p.path, pkg); err != nil {
			return nil, err
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// hasBenchmarks reports whether a test file in dir seems to have a benchmark.
func hasBenchmarks(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte("\nfunc Benchmark")) {
			return true
		}
	}
	return false
}

// runAll runs every program once and returns the output of the benchmarks.
func runAll(ctx context.Context, programs []program, c *tests) ([]byte, error) {
	var all []byte
	for _, p := range programs {
		cmd := exec.CommandContext(ctx, p.path, "-test.run=^$", "-test.bench="+c.Match, "-test.benchmem",
			"-test.benchtime="+c.Time.String(), "-test.timeout="+maxRunTime.String())
		cmd.Dir = p.dir
		text, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("run benchmarks of %s: %w\n%s", p.pkg, err, text)
		}
		all = append(all, text...)
		all = append(all, '\n')
	}
	return all, nil
}
