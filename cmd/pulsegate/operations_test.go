package main_test

import (
	"os"
	"strings"
	"testing"
)

// A new operator follows docs/operations.md on one machine, and its commands work as they are. The
// rest of the page needs a container engine or a cluster; deploy/test runs it.
func followOperations(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	try(t, err)
	r := newReader(t)
	for _, section := range []string{"A machine", "Load tests"} {
		_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
		if !found {
			t.Fatalf("docs/operations.md has no section %q", section)
		}
		rest, _, _ = strings.Cut(rest, "\n## ")
		for _, part := range strings.Split(rest, "```sh\n")[1:] {
			block, _, _ := strings.Cut(part, "```")
			r.follow(block)
		}
	}
	r.want(
		`{"status":"stored"}`,
		`"spo2_pct":{"value":97.5,`,
		`{"status":"ready"}`,
		"\npulsegate_ready 1\n",
		"sent=1000 stored=1000 duplicate=0 rejected=0 failed=0 ",
		"acknowledged=1000 read_back=1000 missing=0 ",
	)
	r.stop()
}
