package deploy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite prometheusrule.yaml from alerts.yaml")

const alertsFile = "../prometheus/alerts.yaml"

// alerts reads the alert rules.
func alerts(t *testing.T) monitoringv1.PrometheusRuleSpec {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	try(t, err)
	var spec monitoringv1.PrometheusRuleSpec
	try(t, yaml.UnmarshalStrict(text, &spec))
	return spec
}

// testedBefore is the digest of the rules and of their unit tests, when these last passed. They take 19 seconds of CPU
// time, so with -short the same ones are not tried again.
const testedBefore = "bd7b05237af80be0a8573cde8474b21a"

// TestAlertRules checks the rules with promtool and runs their unit tests.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	if out, code := run(t, exec.Command(promtool, "check", "rules", alertsFile)); code != 0 {
		t.Errorf("promtool check rules:\n%s", out)
	}
	hash := sha256.New()
	for _, name := range []string{alertsFile, "../prometheus/alerts_test.yaml"} {
		hash.Write([]byte(read(t, name)))
	}
	digest := hex.EncodeToString(hash.Sum(nil)[:16])
	if testing.Short() && digest == testedBefore {
		return
	}
	t.Cleanup(func() {
		if digest != testedBefore && !t.Failed() {
			t.Errorf("the rules pass, and they or their tests are new: set testedBefore to %q", digest)
		}
	})
	tests := exec.Command(promtool, "test", "rules", "../prometheus/alerts_test.yaml")
	tests.Env = append(os.Environ(), "GOGC=400") // a third less CPU time
	if out, code := run(t, tests); code != 0 {
		t.Errorf("promtool test rules:\n%s", out)
	}
}

// TestAlerts checks that every alert uses series of a running server, is tested, and is
// explained in docs/operations.md, which explains no other alerts.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tests, err := os.ReadFile("../prometheus/alerts_test.yaml")
	try(t, err)
	var explained []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (Pulsegate[A-Za-z]+)$`).FindAllStringSubmatch(manual(t), -1) {
		explained = append(explained, m[1])
	}
	var names []string
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			name := rule.Alert
			names = append(names, name)
			checkExpression(t, name, rule.Expr.StrVal)
			if s := rule.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("%s has the severity %q", name, s)
			}
			for _, a := range []string{"summary", "description"} {
				if rule.Annotations[a] == "" {
					t.Errorf("%s has no %s", name, a)
				}
			}
			if want := "/docs/operations.md#" +
				strings.ToLower(name); !strings.HasSuffix(rule.Annotations["runbook_url"], want) {
				t.Errorf("%s links to %q, want %s", name, rule.Annotations["runbook_url"], want)
			}
			if !strings.Contains(string(tests), `alertname="`+name+`"`) {
				t.Errorf("no test of alerts_test.yaml makes %s fire", name)
			}
		}
	}
	slices.Sort(names)
	slices.Sort(explained)
	if !slices.Equal(names, explained) {
		t.Errorf("docs/operations.md explains %q, want the alerts %q", explained, names)
	}
}

// TestStaleAlerts checks that an alert tells of each file that cannot be used: the program would otherwise keep what it
// has for ever. docs/metrics.md has all metrics; a test of cmd/pulsegate compares it with the program.
//
// Seen to fail for the access rules.
func TestStaleAlerts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/metrics.md")
	try(t, err)
	expressions := ""
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			expressions += rule.Expr.StrVal + "\n"
		}
	}
	stale := regexp.MustCompile("`(pulsegate_[a-z_]+_stale)`").FindAllStringSubmatch(string(page), -1)
	if len(stale) < 4 {
		t.Errorf("docs/metrics.md has %d metrics of stale files, want at least 4", len(stale))
	}
	for _, m := range stale {
		if !regexp.MustCompile(`\b` + m[1] + ` == 1`).MatchString(expressions) {
			t.Errorf("no alert fires for %s", m[1])
		}
	}
}

// TestPrometheusRule checks that the Prometheus operator gets the same rules.
func TestPrometheusRule(t *testing.T) {
	const file = "../kubernetes/components/monitoring/prometheusrule.yaml"
	if *update {
		text, err := os.ReadFile(alertsFile)
		try(t, err)
		_, groups, found := strings.Cut(string(text), "\ngroups:\n")
		if !found {
			t.Fatal("alerts.yaml has no groups")
		}
		head := "# The rules of deploy/prometheus/alerts.yaml. Do not edit: go test -run\n# TestPrometheusRule -update, in " +
			"deploy/test, writes it.\n" +
			"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: pulsegate\n  labels:\n    " +
			"app.kubernetes.io/name: pulsegate\nspec:\n  groups:\n"
		for line := range strings.Lines(groups) {
			head += "  " + line
		}
		try(t, os.WriteFile(file, []byte(head), 0o644))
	}
	if got, want := buildManifests(t, "overlays/monitoring", false).rules.Spec, alerts(t); !reflect.DeepEqual(got, want) {
		t.Error("prometheusrule.yaml differs from alerts.yaml: go test -run TestPrometheusRule -update")
	}
}
