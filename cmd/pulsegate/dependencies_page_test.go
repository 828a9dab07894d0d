package main_test

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// docs/dependencies.md lists every linked module and every module that go.mod requires
// directly, with its version. It lists no module or version that go.mod does not have.
//
// Seen to fail with a missing row, and with another version in one.
func TestDependenciesPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/dependencies.md")
	try(t, err)
	page := string(text)
	// Unlike go list -m all, go mod edit needs neither the network nor a filled module cache.
	text, err = exec.Command("go", "mod", "edit", "-json", "../../go.mod").Output()
	try(t, err)
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
	}
	try(t, json.Unmarshal(text, &mod))
	known := map[string]bool{}
	for _, m := range mod.Require {
		known[m.Path+" | "+m.Version] = true
		if !m.Indirect && !strings.Contains(page, m.Path+" | "+m.Version+" |") &&
			!strings.Contains(page, m.Path+" "+m.Version+" (") {
			t.Errorf("go.mod requires %s %s, which is not on the page", m.Path, m.Version)
		}
	}
	linked, err := buildinfo.ReadFile(program(t))
	try(t, err)
	if len(linked.Deps) < 20 {
		t.Errorf("only %d modules are linked: the test tests nothing", len(linked.Deps))
	}
	for _, m := range linked.Deps {
		if !strings.Contains(page, "\n| "+m.Path+" | "+m.Version+" |") {
			t.Errorf("%s %s is linked, but the page has no row for it", m.Path, m.Version)
		}
	}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 || !strings.Contains(cells[0], ".") || !strings.HasPrefix(cells[1], "v") {
			continue
		}
		if row := strings.TrimPrefix(cells[0], "| ") + " | " + cells[1]; !known[row] {
			t.Errorf("the page lists %s, which is not in go.mod", row)
		}
	}
}
