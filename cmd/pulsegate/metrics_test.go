package main_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestMetricsPage scrapes a server that exposes all its metrics, and compares them with
// docs/metrics.md, in both directions, and with the conventions of Prometheus for names, units and
// help texts.
func TestMetricsPage(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`(pulsegate_[a-z_]+)").FindAllSubmatch(doc, -1) {
		documented[string(m[1])] = true
	}
	p := start(t, program(t), filepath.Join(t.TempDir(), "data"),
		"--admin-addr=127.0.0.1:0", "--retain=400d", "--otlp-endpoint=http://127.0.0.1:1")
	resp, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("scrape: %d, %v: %s", resp.StatusCode, err, text)
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (pulsegate_[a-z_]+) `).FindAllSubmatch(text, -1) {
		name := string(m[1])
		if !documented[name] {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/metrics.md names %s, which does not exist", name)
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Metric == "pulsegate_certificate_expiry_days" {
			continue // for display; rules use the timestamp
		}
		if strings.HasPrefix(p.Metric, "pulsegate_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
