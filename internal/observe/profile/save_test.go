package profile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

// TestOpenRejects damages a saved capture in several ways.
func TestOpenRejects(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(dir string) error
		want  string
	}{
		{"no directory", os.RemoveAll, "no complete profile"},
		{"no summary", func(dir string) error { return os.Remove(filepath.Join(dir, "summary.json")) }, "no complete profile"},
		{"summary cut off", func(dir string) error { return os.Truncate(filepath.Join(dir, "summary.json"), 40) }, "summary.json"},
		{"another format", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "summary.json"), []byte(`{"format":99}`), 0o666)
		}, "format 99"},
		{"profile cut off", func(dir string) error { return os.Truncate(filepath.Join(dir, "cpu.pb.gz"), 40) }, "cpu.pb.gz: the profile is damaged or cut off"},
		{"profile is something else", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "allocs.pb.gz"), []byte("text"), 0o666)
		}, "allocs.pb.gz"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "p")
			if err := pg.PrepareDir(dir); err != nil {
				t.Fatal(err)
			}
			c := example(t, 50)
			if err := c.Save(dir, pg.Analyze(c)); err != nil {
				t.Fatal(err)
			}
			if _, err := pg.Open(dir); err != nil {
				t.Fatalf("before the damage: %v", err)
			}
			if err := tt.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := pg.Open(dir); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestSaveNeverOverwrites checks that existing files are kept, even if they were
// created after PrepareDir.
func TestSaveNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cpu.pb.gz")
	if err := os.WriteFile(path, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
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
