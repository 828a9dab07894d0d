package main

import (
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// TestRead runs one short round of both parts and writes the page.
func TestRead(t *testing.T) {
	needWrk(t)
	_, text := runPage(t, []string{"bench-read"}, "read", "--rounds=1", "--warm-up=0s", "--seconds=1", "--readings=20000", "--devices=2000", "--connections=1",
		"--subscribers=20", "--rate=200", "--settled=200ms", "--dir="+t.TempDir())
	for _, want := range []string{
		"make bench-read ROUNDS=1 SECONDS=1", "20000 readings of 2000 devices", "\n| **pulsegate**: latest values", "\n| **nethttp**: ",
		"\n| 0 | ", "\n| 20 | ", "at most 35", "at most 1.25",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "not measured") {
		t.Errorf("a goal was not measured:\n%s", text)
	}
}

func TestHasAny(t *testing.T) {
	const module = "github.com/pulsegate/pulsegate"
	for stack, want := range map[string]bool{
		"runtime.memmove " + module + "/internal/api/live.(*inbox).put " + module + "/internal/api/live.(*Hub).Publish " + module + "/internal/api/ingest.(*Core).commit":  false,
		"syscall.write net/http.(*conn).Write " + module + "/internal/api/live.(*subscriber).run " + module + "/internal/api/live.(*Hub).ServeHTTP net/http.(*conn).serve": true,
		module + "/internal/api/live.(*Hub).round " + module + "/internal/api/live.(*Hub).dispatch":                                                                        true,
		"runtime.gcBgMarkWorker": false,
	} {
		s := new(profile.Sample)
		for name := range strings.FieldsSeq(stack) {
			s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
		}
		if got := hasAny(s, streamStacks); got != want {
			t.Errorf("%s: got %v, want %v", stack, got, want)
		}
	}
}
