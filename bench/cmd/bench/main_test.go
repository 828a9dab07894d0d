package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

// programs are those that the tests measure. TestMain removes them.
var programs struct {
	build sync.Once
	dir   string
	err   error
}

// built returns the directory of programs. It builds them for its first caller.
func built(t *testing.T) string {
	t.Helper()
	programs.build.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "bench-"); programs.err == nil {
			programs.err = buildPrograms(context.Background(), "../../..", programs.dir, "peer", report.Own)
		}
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.dir
}

// runResults runs a command, and returns its directory of results and the text of the
// files with the given names. No other ones may be written.
func runResults(t *testing.T, names []string, args ...string) (dir, text string) {
	t.Helper()
	dir = t.TempDir()
	var out strings.Builder
	if err := run(t.Context(), append(args, "--root=../../..", "--results="+dir), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var all strings.Builder
	for _, name := range names {
		written, err := os.ReadFile(filepath.Join(dir, name+".txt"))
		try(t, err)
		all.Write(written)
	}
	if written, err := filepath.Glob(filepath.Join(dir, "*.txt")); err != nil || len(written) != len(names) {
		t.Errorf("wrote %q, %v; want %q", written, err, names)
	}
	return dir, all.String()
}

// needWrk skips the test if wrk is missing. In CI it fails the test.
func needWrk(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("wrk"); err != nil {
		const reason = "wrk is not installed; make setup installs it"
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
}

// try ends the test if one of errs is not nil.
func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
