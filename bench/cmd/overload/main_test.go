package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// One short round of one setting, from the sources to the page.
func TestRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the usage of a process is read from /proc")
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("<!-- overload:begin --><!-- overload:end -->"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := []string{"-rounds=1", "-seconds=1", "-connections=16", "-settings=commits", "-multiples=5", "-root=../../..", "-page=" + page}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"make overload ROUNDS=1 SECONDS=1", "\n**commits**: ", "\n| closed loop | ", "\n| 5x | ", "commits: stored at 5x / best"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, arg := range []string{"-rounds=0", "-seconds=0", "-connections=3", "-multiples=5,x", "-multiples=-1"} {
		if _, err := parse([]string{arg}); err == nil {
			t.Errorf("parse(%q): got nil, want an error", arg)
		}
	}
	cfg, err := parse([]string{"-settings=rude,nonsense"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&bench{cfg: cfg}).scenarios(); err == nil {
		t.Error("an unknown setting: got nil, want an error")
	}
}

// A run in which nothing was stored, or with an answer that the contract does not
// have, must not become a figure. One with refusals is what is measured, although
// pulsegate sim fails.
func TestLoad(t *testing.T) {
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
		r, err := load(t.Context(), "/bin/sh", []string{"-c", tt.script}, 10*time.Second)
		if (err == nil) != tt.ok || tt.ok && r.Stored != 7 {
			t.Errorf("%s: %+v, %v; want success: %v", tt.name, r, err, tt.ok)
		}
	}
}

// Failed questions are counted, and those that the end cuts off are not.
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
	a := ask(context.Background(), srv.URL, true)
	<-done
	if got := a.stop(); got.Asked != 2 || got.Failed != 1 || len(got.Took) != 2 {
		t.Errorf("%+v, want 2 asked and 1 failed", got)
	}
}
