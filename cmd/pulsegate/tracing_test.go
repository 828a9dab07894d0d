package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A server exports its traces to the collector that the environment names: of both lanes, as parts
// of the caller's trace, and without a device, a value or a token.
func TestTracing(t *testing.T) {
	const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	var mu sync.Mutex // guards spans
	var spans strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Tenant") != "ward 7" {
			t.Errorf("%s %s with the header %v: %v", r.Method, r.URL, r.Header, err)
		}
		mu.Lock()
		defer mu.Unlock()
		spans.Write(text)
	}))
	defer collector.Close()
	cmd := exec.Command(program(t), "serve", "--addr=127.0.0.1:0", "--admin-addr=", "--min-free-bytes=-1", anyTime,
		"--trace-sample=1",
		"--data="+filepath.Join(t.TempDir(), "data"))
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL,
		"OTEL_EXPORTER_OTLP_HEADERS=X-Tenant=ward%207")
	p := launch(t, 1, cmd)
	const reading = `{"device":"ppg-000123","time":1,"spo2_pct":97.25}`
	unwanted := strings.Repeat("1", 32)
	fetch(t, http.MethodPost, p.url("/v1/readings"), reading)
	fetch(t, http.MethodPost, p.url("/v1/readings"), reading, "Traceparent", "00-"+traceID+"-"+spanID+"-01")
	fetch(t, http.MethodPost, p.url("/v1/readings"), reading, "Traceparent", "00-"+unwanted+"-"+spanID+"-00")
	fetch(t, http.MethodGet, p.url("/v1/devices/ppg-000123"), "", "Authorization", "Bearer hush")
	p.stopCleanly() // which exports the rest
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{`"POST /v1/readings"`, `"GET /v1/devices/{device}"`, `"commit"`, `"fast"`, `"full"`,
		traceID, spanID} {
		if !strings.Contains(spans.String(), want) {
			t.Errorf("the spans do not show %s:\n%s", want, spans.String())
		}
	}
	for _, hidden := range []string{"ppg", "97.25", "hush", unwanted} {
		if strings.Contains(spans.String(), hidden) {
			t.Errorf("the spans show %s:\n%s", hidden, spans.String())
		}
	}
}
