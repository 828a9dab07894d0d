package forward_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/client/forward"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

func TestMain(m *testing.M) { polltest.Main(m) }

var try = polltest.Try

// Secrets of tests.
const (
	secret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	another = "whsec_bm9uZSBvZiB0aGVzZSBieXRlcyBhcmUgc2VjcmV0"
)

// secretsFile returns a file with lines.
func secretsFile(t *testing.T, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secrets")
	try(t, os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return name
}

// page returns a page of changes.
func page(cursor string, texts ...string) *transfer.ChangesPage {
	p := &transfer.ChangesPage{After: cursor}
	for _, text := range texts {
		p.Changes = append(p.Changes, jsontext.Value(text))
	}
	return p
}

// A received is a request.
type received struct {
	id, signature string
	body          string
}

// serve returns a webhook whose receiver calls answer with the number of each request, and what it has received. The
// webhook does not sleep; waits are its pauses.
func serve(t *testing.T, secrets string, answer func(n int, w http.ResponseWriter)) (hook *forward.Webhook,
	got *[]received, waits *[]time.Duration) {
	t.Helper()
	got, waits = new([]received), new([]time.Duration)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Webhook-Timestamp") == "" {
			t.Errorf("headers %v, %v", r.Header, err)
		}
		*got = append(*got, received{r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Signature"), string(body)})
		answer(len(*got), w)
	}))
	t.Cleanup(server.Close)
	hook, err := forward.NewWebhook(server.URL+"/hook", secrets, nil)
	try(t, err)
	t.Cleanup(hook.Close)
	hook.SetWait(func(ctx context.Context, d time.Duration) error {
		*waits = append(*waits, d)
		return ctx.Err()
	})
	return hook, got, waits
}

// TestSend sends a message to a receiver that fails in several ways, and accepts it then: id and body are the same each
// time, and each secret has a signature.
func TestSend(t *testing.T) {
	hook, got, waits := serve(t, secretsFile(t, secret, another), func(n int, w http.ResponseWriter) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusFound)
		case 3:
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case 4:
			panic(http.ErrAbortHandler)
		case 5:
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	var texts []string
	hook.OnRetry = func(err error, _ time.Duration) { texts = append(texts, err.Error()) }
	const one, two = `{"kind":"reading","device":"a"}`, `{"kind":"reading","device":"b"}`
	try(t, hook.Send(t.Context(), page("cursor", one, two)))
	if len(*got) != 6 || len(*waits) != 5 || (*waits)[2] != 7*time.Second {
		t.Fatalf("%d requests and the pauses %v, want 6 and one of 7s", len(*got), *waits)
	}
	want := `"data":{"changes":[` + one + "," + two + `],"caught_up":false}}`
	for _, r := range *got {
		if r.id != (*got)[0].id || r.body != (*got)[0].body || !strings.HasSuffix(r.body, want) ||
			!strings.HasPrefix(r.body, `{"type":"changes","timestamp":"`) {
			t.Errorf("request %+v, want the first one again", r)
		}
		if all := strings.Fields(r.signature); len(all) != 2 || all[0] == all[1] || !strings.HasPrefix(all[1], "v1,") {
			t.Errorf("the signatures are %q, want two", all)
		}
	}
	if text := strings.Join(texts, "\n"); len(texts) != 5 || strings.Contains(text, "hook") ||
		!strings.Contains(text, "the receiver answers 302 Found") {
		t.Errorf("the errors are %q, want five without the URL", texts)
	}
	if hook.Delivered() != 2 || hook.Failed() != 5 || hook.Pending() != 0 {
		t.Errorf("%d delivered, %d failed, %d pending, want 2, 5, 0", hook.Delivered(), hook.Failed(), hook.Pending())
	}
}

// TestID checks that other changes, or another cursor, have another id: the receiver drops what has an id that it
// knows.
func TestID(t *testing.T) {
	hook, got, _ := serve(t, secretsFile(t, secret), func(int, http.ResponseWriter) {})
	for _, m := range []struct{ cursor, text string }{{"a", "1"}, {"b", "1"}, {"a", "2"}, {"a", "1"}} {
		try(t, hook.Send(t.Context(), page(m.cursor, m.text)))
	}
	ids := map[string]int{}
	for _, r := range *got {
		ids[r.id]++
	}
	if (*got)[0].id != (*got)[3].id || len(ids) != 3 {
		t.Errorf("the ids are %v, want three, of which one twice", ids)
	}
}

// TestGone ends with a receiver that answers 410, and when ctx ends.
func TestGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hook, got, _ := serve(t, secretsFile(t, secret), func(n int, w http.ResponseWriter) {
		if n == 2 {
			cancel()
		}
		w.WriteHeader(map[bool]int{true: http.StatusGone, false: http.StatusServiceUnavailable}[n == 1])
	})
	if err := hook.Send(ctx, page("", "1")); !errors.Is(err, forward.ErrGone) {
		t.Errorf("after 410: %v, want ErrGone", err)
	}
	if err := hook.Send(ctx, page("", "1")); !errors.Is(err, context.Canceled) || len(*got) != 2 {
		t.Errorf("after the end of ctx: %v and %d requests, want 2", err, len(*got))
	}
}

// TestGiveUp sends to a receiver that is not there, for three days.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secrets := secretsFile(t, secret)
		hook, err := forward.NewWebhook("http://127.0.0.1:1/hook", secrets, nil)
		try(t, err)
		defer hook.Close()
		begun := time.Now()
		try(t, os.Remove(secrets)) // so that it does not connect
		err = hook.Send(t.Context(), page("", "1"))
		if d := time.Since(begun); err == nil || d < forward.GiveUpAfter || d > forward.GiveUpAfter+10*time.Minute {
			t.Errorf("gave up after %v with %v, want %v", d, err, forward.GiveUpAfter)
		}
	})
}

// TestRejected checks what NewWebhook rejects, and that errors have nothing of URLs and secrets.
func TestRejected(t *testing.T) {
	good := secretsFile(t, secret)
	long := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))
	for _, tt := range []struct{ to, secrets string }{
		{"http://192.0.2.1/private", good}, {"ftp://localhost/private", good}, {"https://user:private@localhost/", good},
		{"private", good},
		{"https://localhost/#private", good},
		{"https://localhost", secretsFile(t)}, {"https://localhost", secretsFile(t, secret, secret, secret)},
		{"https://localhost", secretsFile(t, "whsec_private")},
		{"https://localhost", secretsFile(t, strings.TrimPrefix(secret, "whsec_"))},
		{"https://localhost", secretsFile(t, long)}, {"https://localhost", good + "-not"},
	} {
		if _, err := forward.NewWebhook(tt.to, tt.secrets, nil); err == nil || strings.Contains(fmt.Sprint(err), "private") ||
			strings.Contains(err.Error(), secret[6:]) {
			t.Errorf("%s: %v, want an error without what is private", tt.to, err)
		}
	}
	for _, to := range []string{"https://192.0.2.1/x?y=z", "http://[::1]:1/", "http://localhost:1"} {
		if _, err := forward.NewWebhook(to, good, nil); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// TestAnswers sends to receivers that are none of HTTP, or answer oddly: no error has a text of theirs, which may be
// the message or the path, and a pause is at most an hour.
func TestAnswers(t *testing.T) {
	secrets := secretsFile(t, secret)
	for answer, want := range map[string]struct {
		text  string
		pause time.Duration
	}{
		"private\r\n\r\n":                    {"the connection failed, or the answer is not one of HTTP", 0},
		"":                                   {"the receiver closed the connection without an answer", 0},
		"HTTP/1.1 200 OK\r\nprivate\r\n\r\n": {"the connection failed, or the answer is not one of HTTP", 0},
		"HTTP/1.1 302 private\r\nLocation: http://%zz/private\r\nContent-Length: 0\r\n\r\n": {
			"the receiver answers 302 Found", 0},
		"HTTP/1.1 503 private\r\nRetry-After: 99999999999\r\nContent-Length: 0\r\n\r\n": {
			"the receiver answers 503 Service Unavailable", time.Hour},
		"HTTP/1.1 503 private\r\nRetry-After: Fri, 31 Dec 2100 23:59:59 GMT\r\nContent-Length: 0\r\n\r\n": {
			"the receiver answers 503 Service Unavailable", time.Hour},
		"HTTP/1.1 503 private\r\nRetry-After: private\r\nContent-Length: 100000\r\nConnection: close\r\n\r\nshort": {
			"the receiver answers 503 Service Unavailable", 0},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		try(t, err)
		var serving sync.WaitGroup
		serving.Go(func() {
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(conn, answer)
		})
		hook, err := forward.NewWebhook("http://"+listener.Addr().String()+"/private", secrets, nil)
		try(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var got string
		var pause time.Duration
		hook.OnRetry = func(err error, wait time.Duration) {
			got, pause = err.Error(), wait
			cancel()
		}
		err = hook.Send(ctx, page("", `"private"`))
		if !errors.Is(err, context.Canceled) || got != want.text || want.pause > 0 && pause != want.pause ||
			pause > time.Hour {
			t.Errorf("%q: %q and a pause of %v, want %q and %v", answer, got, pause, want.text, want.pause)
		}
		hook.Close()
		try(t, listener.Close())
		serving.Wait()
	}
}

// TestHangs sends to a receiver that does not answer, and to one that accepts a message and does not end its answer.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, err := forward.NewWebhook("http://127.0.0.1:1/hook", secretsFile(t, secret), nil)
		try(t, err)
		var serving sync.WaitGroup
		answers := []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"}
		hook.SetDial(func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			answer := answers[0]
			answers = answers[1:]
			serving.Go(func() {
				_, _ = http.ReadRequest(bufio.NewReader(far))
				_, _ = io.WriteString(far, answer)
				_, _ = io.Copy(io.Discard, far)
			})
			return near, nil
		})
		var texts []string
		hook.OnRetry = func(err error, _ time.Duration) { texts = append(texts, err.Error()) }
		begun := time.Now()
		try(t, hook.Send(t.Context(), page("", "1")))
		if d := time.Since(begun); d < 16*time.Second || d > 20*time.Second || fmt.Sprint(texts) != "[no answer within 15s]" {
			t.Errorf("accepted after %v with the errors %q, want one attempt of 15s, a pause and one of 1s", d, texts)
		}
		hook.Close()
		serving.Wait()
	})
}
