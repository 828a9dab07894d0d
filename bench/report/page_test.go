package report_test

import (
	"os"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

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
