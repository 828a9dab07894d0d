package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestMetricsPage scrapes a server that exposes all its metrics, except those of PostgreSQL and of OpenID Connect.
func TestMetricsPage(t *testing.T) {
	rules, err := filepath.Abs("../../examples/alerts.toml")
	try(t, err)
	labels, err := filepath.Abs("../../examples/devices.toml")
	try(t, err)
	checkMetricsPage(t, func(name string) bool {
		return !strings.HasPrefix(name, "pulsegate_postgres_") && !strings.HasPrefix(name, "pulsegate_oidc_")
	},
		"--admin-addr=127.0.0.1:0", "--mqtt-addr=127.0.0.1:0", "--mllp-addr=127.0.0.1:0", "--retain=400d",
		"--otlp-endpoint=http://127.0.0.1:1",
		"--alerts="+rules, "--alertmanager=http://127.0.0.1:1", "--devices="+labels)
}

// TestMetricsPageOIDC scrapes a server with an OpenID Connect provider.
func TestMetricsPageOIDC(t *testing.T) {
	access := filepath.Join(t.TempDir(), "access.toml")
	try(t, os.WriteFile(access, []byte("[[rule]]\nclaim = \"groups\"\nvalue = \"staff\"\nrights = [\"read\"]\n"), 0o600))
	checkMetricsPage(t, func(name string) bool { return strings.HasPrefix(name, "pulsegate_oidc_") },
		"--admin-addr=127.0.0.1:0", "--oidc-issuer=http://127.0.0.1:1", "--oidc-client-id=pulsegate",
		"--access-rules="+access, "--audit=")
}

// checkMetricsPage starts a server with flags, scrapes it, and compares its metrics with those in
// docs/metrics.md that it must have, in both directions, and with the conventions of Prometheus
// for names, units and help texts.
func checkMetricsPage(t *testing.T, must func(name string) bool, flags ...string) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	try(t, err)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`(pulsegate_[a-z_]+)").FindAllSubmatch(doc, -1) {
		documented[string(m[1])] = true
	}
	p := start(t, program(t), filepath.Join(t.TempDir(), "data"), flags...)
	resp, text := fetch(t, http.MethodGet, "http://"+p.admin+"/metrics", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("scrape: %s: %s", resp.Status, text)
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (pulsegate_[a-z_]+) `).FindAllStringSubmatch(text, -1) {
		name := m[1]
		if !documented[name] {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		if !must(name) {
			continue
		}
		t.Errorf("docs/metrics.md names %s, which does not exist", name)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	try(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "pulsegate_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
