package transfer_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
)

// Every request has the token, and redirects are not followed, so the token reaches no
// other URL. Seen to fail with the default client, which follows a redirect to the same
// host with the token.
func TestToken(t *testing.T) {
	var elsewhere int
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { elsewhere++ }))
	defer other.Close()
	var seen []string
	redirect := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		switch {
		case redirect:
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		case r.Method == http.MethodPost:
			io.WriteString(w, `{"stored":1,"duplicate":0}`)
		default:
			io.WriteString(w, "device\n"+r.URL.Query().Get("end"))
		}
	}))
	defer server.Close()
	client, err := transfer.NewClient(server.URL, transfer.Credentials{Token: "pgt_x"})
	try(t, err)
	defer client.Close()
	both := func() []error {
		_, sent := client.SendBatch(t.Context(), []byte("[1]"), 1)
		_, fetched := client.Download(t.Context(), io.Discard, transfer.Selection{Device: "d", Format: "csv"})
		return []error{sent, fetched}
	}
	for _, err := range both() {
		if err != nil {
			t.Error(err)
		}
	}
	redirect = true
	for _, err := range both() {
		var problem *transfer.Problem
		if !errors.As(err, &problem) || problem.Status != http.StatusTemporaryRedirect {
			t.Errorf("redirected: %v, want a problem of status 307", err)
		}
	}
	if elsewhere != 0 {
		t.Errorf("%d requests went elsewhere", elsewhere)
	}
	for i, got := range seen {
		if got != "Bearer pgt_x" {
			t.Errorf("request %d has Authorization %q", i, got)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d requests, want 4", len(seen))
	}
}
