package main

import (
	"strings"
	"testing"
)

// TestAlerts runs one short round and writes the page.
func TestAlerts(t *testing.T) {
	needWrk(t)
	_, text := runPage(t, []string{"bench-alerts"}, "ingest", "--parts=alerts", "--rounds=1", "--warm-up=0s", "--seconds=1", "--connections=1",
		"--programs="+built(t), "--dir="+t.TempDir())
	for _, want := range []string{"make bench-alerts ROUNDS=1 SECONDS=1", "\n| **with alerts**: ", "\n| single readings | ", "\n| batches | "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "not measured") {
		t.Errorf("a goal was not measured:\n%s", text)
	}
}
