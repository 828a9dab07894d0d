package main_test

import (
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/tokens.md have the effects that it describes, and their tokens are accepted.
func TestTokensPage(t *testing.T) {
	skipIfShort(t)
	blocks := pageBlocks(t, "tokens.md", 4)
	requireFreeAddr(t, "127.0.0.1:8080")
	requireFreeAddr(t, "127.0.0.1:6060")
	r := newReader(t)
	for _, block := range blocks {
		r.follow(block)
	}
	r.run("pulsegate token list --file pulsegate-tokens")
	shown := r.shown.String()
	id := regexp.MustCompile(`(?m)^[0-9a-f]{12}$`).FindString(shown)
	for _, want := range []string{`{"status":"stored"}`, `"device":"ppg-000123"`, `"gateway":"bed-7"`, id + "  bed-7"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the commands do not show %s:\n%s", want, shown)
		}
	}
}
