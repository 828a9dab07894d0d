package deploy_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// A selector is a PromQL vector selector: the name of a metric and its label matchers.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct{ label, op, value string }

// matches reports whether s selects x.
func (s selector) matches(x series) bool {
	if x.metric != s.metric {
		return false
	}
	for _, m := range s.matchers {
		got := x.labels[m.label]
		var is bool
		switch m.op {
		case "=":
			is = got == m.value
		case "!=":
			is = got != m.value
		case "=~":
			is = regexp.MustCompile("^(?:" + m.value + ")$").MatchString(got)
		case "!~":
			is = !regexp.MustCompile("^(?:" + m.value + ")$").MatchString(got)
		}
		if !is {
			return false
		}
	}
	return true
}

var (
	// ours matches the metrics of Pulsegate, and up, which Prometheus adds. PromQL has
	// no functions or keywords with these prefixes.
	ours = regexp.MustCompile(`\b((?:pulsegate|process|go)_[a-z_]+|up)\b(?:\{([^}]*)\})?`)

	matcherText = regexp.MustCompile(`\s*([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*(?:,|$)`)
)

// selectors returns the selectors in an expression. It does not check the syntax of the
// expression; promtool does.
func selectors(expr string) ([]selector, error) {
	var found []selector
	for _, m := range ours.FindAllStringSubmatch(expr, -1) {
		s := selector{metric: m[1]}
		rest := m[2]
		for rest != "" {
			at := matcherText.FindStringSubmatchIndex(rest)
			if at == nil || at[0] != 0 {
				return nil, fmt.Errorf("cannot parse the labels {%s} of %s", m[2], m[1])
			}
			s.matchers = append(s.matchers, matcher{rest[at[2]:at[3]], rest[at[4]:at[5]], rest[at[6]:at[7]]})
			rest = rest[at[1]:]
		}
		found = append(found, s)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the expression %q has no metric of a server", expr)
	}
	return found, nil
}

// A series is one line of /metrics, without its value.
type series struct {
	metric string
	labels map[string]string
}

// seriesOf returns the series of a server after some requests and those of docs/metrics.md
// for PostgreSQL and OpenID Connect, with the labels job and instance and the metric up, which Prometheus adds.
func seriesOf(t *testing.T) []series {
	t.Helper()
	s := serve(t, "--retain=400d", "--alerts=../../examples/alerts.toml", "--devices=../../examples/devices.toml",
		"--alertmanager=http://127.0.0.1:1")
	awaitReady(t, http.DefaultClient, s.admin)
	if out, code := run(t, exec.Command(program(t), "sim", "--target", s.public, "--users=2", "--posts=20")); code != 0 {
		t.Fatalf("sim: exit code %d\n%s", code, out)
	}
	_, text := get(t, http.DefaultClient, s.admin+"/metrics")
	all := []series{{"up", map[string]string{}}}
	for line := range strings.Lines(text) {
		m := regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+\n$`).FindStringSubmatch(line)
		if m == nil {
			continue // help and types
		}
		x := series{m[1], map[string]string{}}
		for _, l := range regexp.MustCompile(`([a-z_]+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			x.labels[l[1]] = l[2]
		}
		all = append(all, x)
	}
	all = append(all, documentedSeries(t)...)
	for _, x := range all {
		x.labels["job"], x.labels["instance"] = "pulsegate", "host:6060"
	}
	return all
}

// documentedSeries returns the series that docs/metrics.md lists for a store in PostgreSQL and for an identity
// provider. Tests of cmd/pulsegate compare the page with such servers. As values of labels it returns all words in code
// of the description.
func documentedSeries(t *testing.T) (all []series) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	try(t, err)
	code := regexp.MustCompile("`([a-z_]+)`")
	for _, row := range regexp.MustCompile("(?m)^- `(pulsegate_(?:postgres|oidc)_[a-z_]+)`(?: \\(([^)]*)\\))?: (.*)$").
		FindAllStringSubmatch(string(text), -1) {
		some := []series{{row[1], map[string]string{}}}
		for _, label := range code.FindAllStringSubmatch(row[2], -1) {
			var more []series
			for _, x := range some {
				for _, value := range code.FindAllStringSubmatch(row[3], -1) {
					labels := maps.Clone(x.labels)
					labels[label[1]] = value[1]
					more = append(more, series{x.metric, labels})
				}
			}
			some = more
		}
		all = append(all, some...)
	}
	if len(all) == 0 {
		t.Fatal("docs/metrics.md has no metrics of PostgreSQL")
	}
	return all
}

// scraped holds the series of a server, which is started once for all tests.
var scraped struct {
	once sync.Once
	all  []series
}

// existing returns the series of a running server.
func existing(t *testing.T) []series {
	t.Helper()
	scraped.once.Do(func() { scraped.all = seriesOf(t) })
	if scraped.all == nil {
		t.Fatal("the server could not be scraped")
	}
	return scraped.all
}

// checkExpression checks that a running server has every series selected by an
// expression.
func checkExpression(t *testing.T, where, expr string) {
	t.Helper()
	selected, err := selectors(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	for _, s := range selected {
		if !slices.ContainsFunc(existing(t), s.matches) {
			t.Errorf("%s selects %s%+v, which a running server does not have", where, s.metric, s.matchers)
		}
		// Each of the alternative values of a label must exist. Otherwise a renamed
		// value would go unnoticed.
		for _, m := range s.matchers {
			for value := range strings.SplitSeq(m.value, "|") {
				one := selector{s.metric, []matcher{{m.label, "=~", value}}}
				if strings.HasPrefix(m.op, "=") && !slices.ContainsFunc(existing(t), one.matches) {
					t.Errorf("%s: no series of %s has %s=%q", where, s.metric, m.label, value)
				}
			}
		}
	}
}

// checkSyntax checks the syntax of expressions with promtool.
func checkSyntax(t *testing.T, exprs []string) {
	t.Helper()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for i, e := range exprs {
		rules = append(rules, rule{fmt.Sprintf("r:%d", i), e})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	try(t, err)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	try(t, os.WriteFile(file, text, 0o600))
	if out, code := run(t, exec.Command(tool(t, "promtool"), "check", "rules", file)); code != 0 {
		t.Errorf("promtool check rules:\n%s", out)
	}
}
