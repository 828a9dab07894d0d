package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestFHIR runs one short round and writes the page.
func TestFHIR(t *testing.T) {
	_, text := runPage(t, []string{"bench-fhir"}, "fhir", "--rounds=1", "--warm-up=0s", "--seconds=1", "--readings=2500")
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

// No two Observations of a sender have the same time.
func TestBundles(t *testing.T) {
	next := newBundle(&bundleKind{"batch", 3}, 7).oneByOne(time.Unix(1e9, 0))
	times := map[string]bool{}
	for range 2 {
		body := next()
		var bundle struct {
			Entry []struct {
				Resource struct{ EffectiveDateTime string }
			}
		}
		if err := json.Unmarshal(body, &bundle); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		for _, e := range bundle.Entry {
			times[e.Resource.EffectiveDateTime] = true
		}
	}
	if len(times) != 6 || !times["2001-09-09T01:46:45.000Z"] {
		t.Errorf("got the times %v", times)
	}
}
