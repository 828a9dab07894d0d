package main_test

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pulsegate health and servers that are not Pulsegate; testdata/script/health.txtar has those that
// are.
func TestHealthOfOtherServers(t *testing.T) {
	stuck := make(chan struct{})
	routes := http.NewServeMux()
	routes.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "fine\nmore\n") })
	routes.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	routes.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // the client closes early
	})
	routes.HandleFunc("/stuck", func(http.ResponseWriter, *http.Request) { <-stuck })
	plain, secure := httptest.NewServer(routes), httptest.NewTLSServer(routes)
	defer plain.Close()
	defer secure.Close()
	defer close(stuck)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	try(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	for _, tt := range []struct {
		name             string
		args             []string
		wantCode         int
		wantOut, wantErr string // part of standard error, if wantErr
	}{
		{"one line", []string{plain.URL + "/ok"}, 0, "fine\n", ""},
		{"an answer without end", []string{plain.URL + "/long"}, 0, strings.Repeat("x", 256) + "\n", ""},
		{"redirect", []string{plain.URL + "/elsewhere"}, 1, "", "302 Found"},
		{"no answer", []string{plain.URL + "/stuck", "--timeout=50ms"}, 1, "", "deadline exceeded"},
		{"unknown certificate", []string{secure.URL + "/ok"}, 1, "", "certificate"},
		{"known certificate", []string{secure.URL + "/ok", "--ca=" + ca}, 0, "fine\n", ""},
		{"any certificate", []string{secure.URL + "/ok", "--no-check-certificate"}, 0, "fine\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs, code := output(t, program(t), append([]string{"health"}, tt.args...)...)
			if code != tt.wantCode || out != tt.wantOut || !strings.Contains(errs, tt.wantErr) || code == 0 && errs != "" {
				t.Errorf("exit code %d, %q, %q; want %d, %q, and %q in the error", code, out, errs, tt.wantCode, tt.wantOut, tt.wantErr)
			}
		})
	}
}
