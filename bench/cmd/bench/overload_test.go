package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOverload runs one short round of one setting and writes the page.
func TestOverload(t *testing.T) {
	t.Parallel()
	_, text := runPage(t, []string{"overload"}, "overload", "--rounds=1", "--seconds=1", "--connections=16", "--settings=commits", "--multiples=5", "--programs="+built(t))
	for _, want := range []string{"make overload ROUNDS=1 SECONDS=1", "\n**commits**: ", "\n| closed loop | ", "\n| 5x | ", "commits: stored at 5x / best"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

// A run without stored readings or with undocumented answers is an error. Refusals are
// expected, although pulsegate sim exits with an error.
func TestSimulate(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		ok           bool
	}{
		{"clean", `echo '{"stored":7,"tries":7}'`, true},
		{"given up", `echo '{"stored":7,"tries":9,"refused_503":2}'; exit 1`, true},
		{"undocumented", `echo '{"stored":7,"tries":9,"undocumented":2}'; exit 1`, false},
		{"nothing stored", `echo '{"stored":0,"tries":9}'`, false},
		{"no report", `echo no such server >&2; exit 1`, false},
	} {
		program := filepath.Join(t.TempDir(), "pulsegate")
		try(t, os.WriteFile(program, []byte("#!/bin/sh\n"+tt.script), 0o700))
		r, err := simulate(t.Context(), program, time.Minute)
		if (err == nil) != tt.ok || tt.ok && r.Stored != 7 {
			t.Errorf("%s: %+v, %v; want success: %v", tt.name, r, err, tt.ok)
		}
	}
}

// Failed requests are counted, but not those interrupted by the end.
func TestAsk(t *testing.T) {
	n := 0
	done := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n++; n {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusNotFound)
		case 3:
			close(done)
			<-r.Context().Done()
		}
	}))
	defer srv.Close()
	stop := poll(context.Background(), srv.URL, true)
	<-done
	if got := stop(); got.asked != 2 || got.failed != 1 || len(got.took) != 2 {
		t.Errorf("%+v, want 2 asked and 1 failed", got)
	}
}
