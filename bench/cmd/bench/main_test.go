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

func TestInvalidFlags(t *testing.T) {
	for _, line := range []string{
		"", "nonsense",
		"ingest --rounds=0", "ingest --seconds=0", "ingest --seconds=0.5", "ingest --connections=", "ingest --connections=64,x", "ingest --connections=0",
		"ingest --idle=0", "ingest --parts=single,bulky", "ingest --servers=flor", "ingest --programs=/no/such/directory",
		"overload --connections=3", "overload --multiples=5,x", "overload --multiples=-1", "overload --settings=rude,nonsense",
		"store --readings=1", "store --devices=0", "devices --devices=1000", "devices --readings=0", "store --year=1", "store --table-readings=1", "store --settled=0s", "store --parts=loads", "store --peers=mysql", "read --readings=1", "read --rate=1", "read --rate=1000000", "read --parts=aggregates", "postgres --connections=0", "postgres --warm-up=1ms", "postgres --rows=1", "postgres --parts=bulk", "fhir --readings=0", "mqtt --connections=0", "mqtt --idle-wait=0s", "micro --rounds=0", "micro --time=0s", "mux --rounds=0",
	} {
		if err := run(t.Context(), strings.Fields(line), new(strings.Builder)); err == nil {
			t.Errorf("%q: got nil, want an error", line)
		}
	}
	if _, err := choose(forms(), form.String, []string{"array+gzip", "csv"}); err == nil {
		t.Error("an unknown form was accepted")
	}
}

// try ends the test if one of errs is not nil.
func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
