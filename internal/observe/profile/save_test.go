package profile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/pprof/profile"
	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

// TestSave checks that a saved capture has its profiles, which go tool pprof can parse, and the
// summary.
func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	try(t, pg.PrepareDir(dir))
	c := example(t, 50)
	try(t, c.Save(dir, pg.Analyze(c)))
	for _, name := range []string{"cpu", "allocs", "heap", "goroutine", "mutex", "block"} {
		raw, err := os.ReadFile(filepath.Join(dir, name+".pb.gz"))
		try(t, err)
		if _, err := profile.ParseData(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var summary pg.Report
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	try(t, err)
	if err := json.Unmarshal(text, &summary); err != nil || summary.Requests != 1000 {
		t.Errorf("the summary has %d requests, %v; want 1000", summary.Requests, err)
	}
}

// TestSaveNeverOverwrites checks that existing files are kept, even if they were
// created after PrepareDir.
func TestSaveNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cpu.pb.gz")
	try(t, os.WriteFile(path, []byte("mine"), 0o666))
	if err := pg.PrepareDir(dir); err == nil {
		t.Error("PrepareDir: got no error")
	}
	c := example(t, 50)
	if err := c.Save(dir, pg.Analyze(c)); err == nil {
		t.Error("Save: got no error")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
		t.Errorf("the file has %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "summary.json")); err == nil {
		t.Error("an incomplete directory has a summary")
	}
	if err := pg.PrepareDir(path); err == nil {
		t.Error("a file in place of a directory: got no error")
	}
}
