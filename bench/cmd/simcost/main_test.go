package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// One short round of all generators, from the sources to the page.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("wrk"); err != nil {
		const reason = "wrk is not installed; make setup installs it"
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("<!-- bench-sim:begin --><!-- bench-sim:end -->"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := []string{"-rounds=1", "-seconds=1", "-connections=8", "-root=../../..", "-page=" + page}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"make bench-sim ROUNDS=1 SECONDS=1", "\n| wrk with Lua | ", "\n| `pulsegate sim` | ", "\n| `pulsegate sim` with a ledger | ", "at most 1.5"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, arg := range []string{"-rounds=0", "-seconds=0", "-connections=0"} {
		if _, err := parse([]string{arg}); err == nil {
			t.Errorf("parse(%q): got nil, want an error", arg)
		}
	}
}

// A run with a failure must not become a figure.
func TestUncleanRuns(t *testing.T) {
	const clean = "  5000 requests in 1.00s, 1.2MB read\n"
	if n, err := wrkRequests([]byte(clean)); err != nil || n != 5000 {
		t.Errorf("wrk: got %d, %v, want 5000", n, err)
	}
	for _, text := range []string{"", clean + "  Non-2xx or 3xx responses: 1\n", clean + "  Socket errors: connect 0, read 1\n"} {
		if n, err := wrkRequests([]byte(text)); err == nil {
			t.Errorf("wrk: got %d of %q, want an error", n, text)
		}
	}
	if n, err := simRequests([]byte(`{"sent":7,"stored":7,"requests":7}`)); err != nil || n != 7 {
		t.Errorf("sim: got %d, %v, want 7", n, err)
	}
	for _, text := range []string{"", `{"sent":7,"stored":6,"requests":7}`} {
		if n, err := simRequests([]byte(text)); err == nil {
			t.Errorf("sim: got %d of %q, want an error", n, text)
		}
	}
}
