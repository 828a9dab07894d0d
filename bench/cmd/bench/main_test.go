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

// runPage runs a command that writes a page with the given blocks, and returns the path
// and the text of the page.
func runPage(t *testing.T, blocks []string, args ...string) (page, text string) {
	t.Helper()
	page = filepath.Join(t.TempDir(), "page.md")
	var empty strings.Builder
	for _, block := range blocks {
		empty.WriteString("<!-- " + block + ":begin --><!-- " + block + ":end -->\n")
	}
	try(t, os.WriteFile(page, []byte(empty.String()), 0o600))
	var out strings.Builder
	if err := run(t.Context(), append(args, "--root=../../..", "--page="+page), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	written, err := os.ReadFile(page)
	try(t, err)
	return page, string(written)
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
