package report_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

func TestReplaceBlock(t *testing.T) {
	const page = "# Title\n\n<!-- a:begin -->\nold\n<!-- a:end -->\n\ntext\n<!-- b:begin -->\n<!-- b:end -->\n"
	got, err := report.ReplaceBlock([]byte(page), "a", "\nnew\n")
	if err != nil {
		t.Fatal(err)
	}
	const want = "# Title\n\n<!-- a:begin -->\n\nnew\n\n<!-- a:end -->\n\ntext\n<!-- b:begin -->\n<!-- b:end -->\n"
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	again, err := report.ReplaceBlock(got, "a", "new")
	if err != nil || string(again) != want {
		t.Errorf("a second time: got %q, %v", again, err)
	}
}

// The page in the repository has the blocks of all commands.
func TestPageHasBlocks(t *testing.T) {
	page, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bench-ingest", "bench-micro", "bench-mux", "bench-store", "bench-store-large"} {
		if _, err := report.ReplaceBlock(page, name, ""); err != nil {
			t.Error(err)
		}
	}
}

func TestUpdatePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := report.UpdatePage(path, "a", "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a page: got %v, want ErrNotExist", err)
	}
	if err := os.WriteFile(path, []byte("<!-- a:begin --><!-- a:end -->"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report.UpdatePage(path, "a", "x"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := "<!-- a:begin -->\n\nx\n\n<!-- a:end -->"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("files remain: %v", left)
	}
}
