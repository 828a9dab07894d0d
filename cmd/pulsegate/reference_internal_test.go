package main

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew in TestReference")

// docs/configuration.md has every setting as the code has it. make docs writes it.
func TestReference(t *testing.T) {
	const path, mark = "../../docs/configuration.md", "<!-- What follows is written by `make docs`."
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := strings.Index(string(doc), mark)
	if begin < 0 {
		t.Fatalf("%s has no line that begins with %q", path, mark)
	}
	line := strings.Index(string(doc[begin:]), "\n")
	written, existing := string(doc[:begin+line+1]), string(doc[begin+line+1:])
	var reference strings.Builder
	parser, err := newParser(new(commands), stdio{strings.NewReader(""), io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := settings.WriteReference(&reference, parser.Model); err != nil {
		t.Fatal(err)
	}
	if existing == reference.String() {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(written+reference.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := strings.Split(existing, "\n"), strings.Split(reference.String(), "\n")
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%s is not what the code says; 'make docs' writes it anew. The first difference:\n%s\nwant\n%s", path, got[i], want[i])
		}
	}
	t.Fatalf("%s is not what the code says: %d lines, want %d; 'make docs' writes it anew", path, len(got), len(want))
}
