package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// One round of one package, from the sources to the page. benchstat has its say
// about it, with too few rounds to say much.
func TestRun(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("<!-- bench-micro:begin --><!-- bench-micro:end -->"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := []string{"-rounds=1", "-time=1ms", "-match=^BenchmarkHea", "-root=../../..", "-own=", "-page=" + page}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n| Healthz | ", "\n| Headers/set=fixed | ", "\n| Headers/set=dynamic | ", "before", "sec/op"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func TestNothingToRun(t *testing.T) {
	for _, args := range [][]string{{"-rounds=0"}, {"-time=0"}, {"-own=", "-peers=", "-page="}, {"-own=./no/such/package", "-peers=", "-page=", "-root=../../.."}} {
		if err := run(t.Context(), args, new(strings.Builder)); err == nil {
			t.Errorf("run(%q) returns nil", args)
		}
	}
}

// Packages without benchmarks are not built: that takes long.
func TestHasBenchmarks(t *testing.T) {
	for dir, want := range map[string]bool{"../../answers": true, "../../report": false} {
		if got := hasBenchmarks(dir); got != want {
			t.Errorf("hasBenchmarks(%q) = %v, want %v", dir, got, want)
		}
	}
}
