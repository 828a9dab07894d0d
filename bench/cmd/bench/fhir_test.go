package main

import (
	"strings"
	"testing"
)

// TestFHIR runs one short round and writes the results.
func TestFHIR(t *testing.T) {
	_, text := runResults(t, []string{"fhir"}, "fhir", "--rounds=1", "--warm-up=0s", "--seconds=1", "--readings=2500")
	for _, want := range []string{
		"make bench-fhir ROUNDS=1 SECONDS=1", "\n| 100 | ", "\n| 10000 | ", "\n| batch of 100 | ", "\n| transaction of 1000 | ",
		"\n| search, 1000 a page: Observations/s | ", "\n| transaction of 100: durable Observations/s | ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "not measured") {
		t.Errorf("something was not measured:\n%s", text)
	}
}
