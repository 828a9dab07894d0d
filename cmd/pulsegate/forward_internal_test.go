package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/porttest"
)

// TestForward forwards to a receiver that answers 410: the command ends, sends nothing when it is called again, and
// continues with --again. It serves metrics. A source that answers 410 without the problem cursor-unknown is no reason
// to send everything again.
func TestForward(t *testing.T) {
	after := make(chan string, 10)
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cursor := r.URL.Query().Get("after")
		after <- cursor + " " + r.URL.Query().Get("limit")
		if cursor == "TGFzdA" {
			w.WriteHeader(http.StatusGone)
			return
		}
		next := map[string]string{"": "T25l", "T25l": "TGFzdA"}[cursor]
		changed := time.Now().Add(-40 * time.Second).UTC().Format(time.RFC3339Nano)
		_, _ = io.WriteString(w,
			`{"changes":[{"kind":"sign"},{"kind":"reading","changed":"`+changed+`"}],"next":"`+next+`","caught_up":true}`)
	}))
	defer source.Close()
	metrics := porttest.Addr(t)
	var status, requests atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1); status.Load() == 200 {
			resp, err := http.Get("http://" + metrics + "/metrics")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			for _, want := range []string{"behind_seconds 4", "pending_changes 2", "delivered_changes 0", "failed_attempts 0"} {
				if !strings.Contains(string(text), "\npulsegate_forward_"+want) {
					t.Errorf("the metrics are without %s, %v:\n%s", want, err, text)
				}
			}
		}
		w.WriteHeader(int(status.Load()))
	}))
	defer receiver.Close()
	dir := t.TempDir()
	state, secrets := filepath.Join(dir, "state"), filepath.Join(dir, "secrets")
	try(t, os.WriteFile(secrets, []byte("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\n"), 0o600),
		os.WriteFile(state, []byte("T25l\n"), 0o600))
	forward := func(more ...string) (errs string, code int) {
		_, errs, code = runCommand(t,
			append([]string{"forward", "--target", source.URL, "--to", receiver.URL, "--secrets", secrets, "--state", state},
				more...)...)
		return errs, code
	}
	for _, tt := range []struct {
		status   int32
		more     []string
		state    string
		requests int32
		text     string
	}{
		{410, nil, "T25l\ngone\n", 1, "so nothing is sent to it"},
		{200, nil, "T25l\ngone\n", 0, "so nothing is sent to it"},
		{200, []string{"--again", "--batch=7", "--metrics-addr=" + metrics}, "TGFzdA\n", 1, "Metrics are at http://"},
	} {
		status.Store(tt.status)
		requests.Store(0)
		errs, code := forward(tt.more...)
		text, err := os.ReadFile(state)
		try(t, err)
		if code != exitFailed || string(text) != tt.state || requests.Load() != tt.requests ||
			!strings.Contains(errs, tt.text) {
			t.Errorf("%d %v: exit code %d, state %q, %d requests, want %q and %d:\n%s", tt.status, tt.more, code, text,
				requests.Load(), tt.state, tt.requests, errs)
		}
	}
	var asked []string
	for len(after) > 0 {
		asked = append(asked, <-after)
	}
	if got := strings.Join(asked, ", "); got != "T25l 100, T25l 7, TGFzdA 7" {
		t.Errorf("the cursors and limits are %s", got)
	}
	for _, wrong := range []string{"--batch=0", "--batch=1001", "--secrets=whsec_abc/abc", "--to=http://192.0.2.1/"} {
		if errs, code := forward(wrong); code != exitUsage ||
			!strings.Contains(errs, regexp.MustCompile("^--[a-z]+").FindString(wrong)) || strings.Contains(errs, "abc") {
			t.Errorf("%s: exit code %d, want %d:\n%s", wrong, code, exitUsage, errs)
		}
	}
}

// TestForwardAgain follows a server that does not know a cursor any more: everything is sent again, beginning without a
// cursor, and the first message that gets 410 is kept in the state, too.
func TestForwardAgain(t *testing.T) {
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("after") {
		case "T25l":
			_, _ = io.WriteString(w, `{"changes":[{"kind":"unassigned"}],"next":"VHdv","caught_up":false}`)
		case "VHdv":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"type":"https://example.org/docs/problems.md#cursor-unknown"}`)
		default:
			_, _ = io.WriteString(w, `{"changes":[{"kind":"begin"}],"next":"VHdv","caught_up":false}`)
		}
	}))
	defer source.Close()
	var kinds []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		kinds = append(kinds, regexp.MustCompile(`"kind":"[a-z]+"`).FindString(string(body)))
		if len(kinds) > 1 {
			w.WriteHeader(http.StatusGone)
		}
	}))
	defer receiver.Close()
	dir := t.TempDir()
	state, secrets := filepath.Join(dir, "state"), filepath.Join(dir, "secrets")
	try(t, os.WriteFile(secrets, []byte("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\n"), 0o600),
		os.WriteFile(state, []byte("T25l\n"), 0o600))
	_, errs, code := runCommand(t, "forward", "--target", source.URL, "--to", receiver.URL, "--secrets", secrets,
		"--state", state)
	text, err := os.ReadFile(state)
	try(t, err)
	if code != exitFailed || string(text) != "\ngone\n" ||
		strings.Join(kinds, " ") != `"kind":"unassigned" "kind":"begin"` ||
		!strings.Contains(errs, "everything is sent again") {
		t.Errorf("exit code %d, state %q, messages %v:\n%s", code, text, kinds, errs)
	}
	if _, errs, code = runCommand(t, "forward", "--target", source.URL, "--to", receiver.URL, "--secrets", secrets,
		"--state", state); code != exitFailed || len(kinds) != 2 {
		t.Errorf("again: exit code %d and %d messages, want 2:\n%s", code, len(kinds), errs)
	}
}

// TestStateOfAnother uses a state by another name while a command uses it: the second one says that it waits, and both
// names stay what they are.
func TestStateOfAnother(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "state"), filepath.Join(dir, "link")
	try(t, os.WriteFile(file, []byte("T25l\n"), 0o600), os.Symlink("state", link))
	first, second := stateFile(file), stateFile(link)
	unlock, err := first.lock(t.Context(), io.Discard)
	try(t, err)
	said, saying := io.Pipe()
	locked := make(chan error, 1)
	go func() {
		unlock, err := second.lock(t.Context(), saying)
		if err == nil {
			err = errors.Join(second.save("VHdv"), saying.Close())
			unlock()
		}
		locked <- err
	}()
	text, err := bufio.NewReader(said).ReadString('\n')
	try(t, err)
	if !strings.Contains(text, "waits") {
		t.Errorf("the command that waits says %q", text)
	}
	unlock()
	try(t, <-locked)
	content, err := os.ReadFile(file)
	info, statErr := os.Lstat(link)
	try(t, err, statErr)
	if string(content) != "VHdv\n" || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the state is %q, and its other name is a %v", content, info.Mode().Type())
	}
}
