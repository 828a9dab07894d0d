package main

import (
	"strings"
	"testing"
)

// TestAlerts runs one short round and writes the results.
func TestAlerts(t *testing.T) {
	needWrk(t)
	_, text := runResults(t, []string{"alerts"}, "ingest", "--parts=alerts", "--rounds=1", "--warm-up=0s", "--seconds=1", "--connections=1",
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

// TestBefore compares this Pulsegate with itself, in short rounds.
func TestBefore(t *testing.T) {
	needWrk(t)
	_, ingest := runResults(t, []string{"ingest-before"}, "ingest", "--parts=before", "--rounds=1", "--warm-up=0s", "--seconds=1", "--connections=1",
		"--programs="+built(t), "--before="+built(t), "--dir="+t.TempDir())
	_, store := runResults(t, []string{"store-before"}, "store", "--parts=before", "--rounds=1", "--warm-up=0s", "--seconds=1", "--readings=10000", "--devices=100", "--settled=10ms",
		"--programs="+built(t), "--before="+built(t), "--dir="+t.TempDir())
	for want, text := range map[string]string{"make bench-ingest PARTS=before": ingest, "make bench-store PARTS=before": store} {
		if !strings.Contains(text, want) || !strings.Contains(text, "the earlier pulsegate") || strings.Contains(text, "not measured") {
			t.Errorf("%q, the earlier pulsegate or a goal is missing in:\n%s", want, text)
		}
	}
}
