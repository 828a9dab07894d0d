package main_test

import (
	"regexp"
	"testing"
)

// The commands of docs/tokens.md have the effects that it describes, and their tokens are accepted.
func followTokensPage(t *testing.T) {
	blocks := pageBlocks(t, "tokens.md", 6)
	r := newReader(t)
	for _, block := range blocks {
		r.follow(block)
	}
	r.run("pulsegate token list --file pulsegate-tokens")
	id := regexp.MustCompile(`(?m)^[0-9a-f]{12}$`).FindString(r.shown.String())
	r.want(`{"status":"stored"}`, `"device":"ppg-000123"`, `"gateway":"bed-7"`, `"gateway":"bed-9"`, id+"  bed-7")
}
