package transfer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
)

// TestEndless follows a server behind a proxy, which answers for it for a while, with a token that is replaced. Errors
// do not have the query, whose prefix is a part of a device's name.
func TestEndless(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	try(t, os.WriteFile(file, []byte("first"), 0o600))
	answers := []int{502, 503, 504, 507, 520, 530, 200}
	var tokens []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		n := len(tokens) - 1
		if n >= len(answers) {
			_, _ = io.WriteString(w, `{"changes":[],"next":"T25l","caught_up":true}`)
			return
		}
		w.WriteHeader(answers[n])
		_, _ = io.WriteString(w, "<html>Please wait</html>")
	}))
	defer server.Close()
	cred, err := (&transfer.CredentialFiles{TokenFile: file}).Load(server.URL, "")
	try(t, err)
	client, err := transfer.NewClient(server.URL, cred)
	try(t, err)
	defer client.Close()
	client.Endless = true
	client.SetWait(func(context.Context, time.Duration) error { return nil })
	var failed []string
	client.OnRetry = func(err error, n int, _ time.Duration) {
		if failed = append(failed, err.Error()); n == len(answers) {
			server.CloseClientConnections()
			try(t, os.WriteFile(file, nil, 0o600))
		}
		if n == len(answers)+1 { // the file was empty
			try(t, os.WriteFile(file, []byte("second"), 0o600))
		}
	}
	enough := errors.New("enough")
	sel := transfer.ChangeSelection{Prefix: "icu-7", Follow: true}
	err = transfer.Changes(t.Context(), client, sel, func(*transfer.ChangesPage) error { return enough })
	want := append(slices.Repeat([]string{"first"}, len(answers)), "second")
	if err != enough || !slices.Equal(tokens, want) || len(failed) != len(answers)+1 {
		t.Errorf("the error is %v, the tokens are %v, the errors before are %q", err, tokens, failed)
	}
	server.Close()
	client.Endless = false
	if err = transfer.Changes(t.Context(), client, sel, nil); err == nil || strings.Contains(err.Error(), "icu-7") {
		t.Errorf("the error without a server is %v, want one without the prefix", err)
	}
}
