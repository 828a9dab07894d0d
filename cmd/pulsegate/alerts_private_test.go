package main_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
)

// A recorder is a peer that keeps all that it gets.
type recorder struct {
	*httptest.Server
	mu     sync.Mutex
	text   strings.Builder // guarded by mu; addresses, headers and bodies
	status int             // guarded by mu; of answers
}

func record(t *testing.T) *recorder {
	r := &recorder{status: http.StatusOK}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body) // if the peer goes away, what has come counts
	if in, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
		body, _ = io.ReadAll(in)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.text, "%s %s %v\n%s\n", q.Method, q.URL, q.Header, body)
	w.WriteHeader(r.status)
	_, _ = w.Write(body) // an answer that repeats what was sent must not be logged
}

func (r *recorder) got() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *recorder) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// Nothing that a server with alerts sends to an Alertmanager and to a collector of traces, or shows in its log and
// metrics, has a measured value or a subject.
func TestAlertsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "alerts.toml")
	certtest.Write(t, file, []byte(rule("Low", 90)))
	am, collector := record(t), record(t)
	p := start(t, program(t), filepath.Join(dir, "data"), "--admin-addr=127.0.0.1:0", "--alerts="+file,
		"--alertmanager="+am.URL, "--alertmanager-every=1s",
		"--otlp-endpoint="+collector.URL, "--trace-sample=1")
	resp, text := fetch(t, http.MethodPost, "http://"+p.admin+"/admin/subject/assign",
		fmt.Sprintf(`{"device":"marked","subject":"SUBJECT-4711","from":%q}`,
			time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)), "Content-Type", "application/json")
	if resp.StatusCode/100 != 2 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	send(p, "marked", 85.31)
	awaitAlerts(p, "Low marked")
	p.await("the Alertmanager knows", func() bool { return strings.Contains(am.got(), `"device":"marked"`) })
	am.answer(http.StatusInternalServerError)
	p.awaitLine("the Alertmanager does not accept alerts; active ones are sent again and again", 1)
	_, ready := fetch(t, http.MethodGet, p.url("/readyz"), "")
	send(p, "marked", 97.43)
	awaitAlerts(p)
	am.answer(http.StatusOK)
	p.awaitLine("the Alertmanager accepts alerts again", 1)
	p.await("the collector has spans", func() bool { return strings.Contains(collector.got(), "/v1/readings") })
	_, page := fetch(t, http.MethodGet, "http://"+p.admin+"/metrics", "")
	p.stopCleanly()
	// Durations, which have a unit or more digits, are not values.
	private := regexp.MustCompile(`SUBJECT-4711|(^|[^0-9.])(85\.31|97\.43)([^0-9a-zµ]|$)|"(8531|9743)"`)
	for where, text := range map[string]string{"Alertmanager": am.got(), "collector": collector.got(), "metrics": page,
		"readyz": ready, "log": p.stderr()} {
		if found := private.FindString(text); found != "" {
			t.Errorf("%q is in what %s has:\n%s", found, where, text)
		}
	}
}
