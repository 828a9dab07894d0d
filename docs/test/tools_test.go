package docs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var cases = flag.Int("openapi.cases", 22, "about how many cases TestSchemathesis generates")

// tool returns the path of a program or of packages that .ci/tools has installed.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin/tools", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		missing(t, "%v: run make setup", err)
	}
	return path
}

// withToken starts a server with tokens, and returns the file of its description and a token that
// may do everything.
func withToken(t *testing.T) (s *server, document, token string) {
	t.Helper()
	k := tokens{t.TempDir()}
	token = k.create(t, "tools", "--rights=read,write,admin", "--rate=1000000")
	s = serve(t, k.flags()...)
	return s, fetchDescription(t, s.url), token
}

// fetchDescription writes the description of a server into a file.
func fetchDescription(t *testing.T, url string) (file string) {
	t.Helper()
	resp, err := http.Get(url + "/openapi.json")
	try(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		file = filepath.Join(t.TempDir(), "openapi.json")
		err = os.WriteFile(file, text, 0o600)
	}
	try(t, err)
	return file
}

// run runs a program in a directory and returns its output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// copyInto copies files of the folder openapi into a directory.
func copyInto(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("openapi", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600)
		}
		try(t, err)
	}
}

// describedBefore is the digest of the descriptions with which TestGeneratedClients and TestRedocly last passed, and of
// what they run. It takes 9 seconds of CPU time, so the same ones are not tried again; make openapi always does.
const describedBefore = "0a70cfa586ed6750eee971b47117390f"

// describedAnew reports whether the descriptions are others than those of describedBefore, apart from numbers, of which
// some depend on the machine. If so, the test fails at its end, with the digest to set.
func describedAnew(t *testing.T) bool {
	t.Helper()
	if *cases >= 1000 {
		return true
	}
	hash := sha256.New()
	for _, name := range []string{"openapi/client.py", "openapi/client.ts", "openapi/goclient/main.go",
		"openapi/package-lock.json", root + "/.ci/openapi.txt", root + "/tools/go.mod"} {
		text, err := os.ReadFile(name)
		try(t, err)
		hash.Write(text)
	}
	_, with, _ := withToken(t)
	varies := regexp.MustCompile(`"version":"[^"]*"|[0-9.,]+`)
	for _, file := range []string{with, fetchDescription(t, serve(t).url)} {
		text, err := os.ReadFile(file)
		try(t, err)
		hash.Write(varies.ReplaceAll(text, nil))
	}
	digest := hex.EncodeToString(hash.Sum(nil)[:16])
	t.Cleanup(func() {
		if digest != describedBefore && !t.Failed() {
			t.Errorf("it passes with descriptions that are new: if the other one does too, set describedBefore to %q", digest)
		}
	})
	return digest != describedBefore
}

// Clients that are generated from the description compile, send a token, store a reading and read
// it back.
func TestGeneratedClients(t *testing.T) {
	if !describedAnew(t) {
		return
	}
	s, document, token := withToken(t)
	for name, generate := range map[string]func(t *testing.T, dir string) (command, env []string){
		"openapi-python-client": func(t *testing.T, dir string) (command, env []string) {
			env = []string{"PYTHONPATH=" + tool(t, "openapi_python")}
			copyInto(t, dir, "client.py")
			// The formatter that it runs by default is not installed.
			try(t, os.WriteFile(filepath.Join(dir, "config.yml"), []byte("post_hooks: []\n"), 0o600))
			out := run(t, dir, env, "python3", "-m", "openapi_python_client", "generate", "--path", document, "--config",
				"config.yml", "--meta", "none", "--output-path", "generated")
			// It has no bodies of lines, of JSON or of InfluxDB's protocol; those of JSON remain.
			lines := strings.Count(out, "Unsupported content type application/x-ndjson") + strings.Count(out,
				"Unsupported content type text/plain")
			if n := strings.Count(out, "\nWARNING"); n != lines {
				t.Errorf("it warns: %s", out)
			}
			run(t, dir, env, "python3", "-m", "compileall", "-q", "generated")
			return []string{"python3", filepath.Join(dir, "client.py")}, env
		},
		"oapi-codegen": func(t *testing.T, dir string) (command, env []string) {
			generator, file := tool(t, "oapi_codegen"), filepath.Join(dir, "generated.go")
			run(t, "", nil, generator, "-generate", "types,client", "-package", "main", "-o", file, document)
			// The generated file is added to the folder only for the compiler.
			overlay, err := filepath.Abs("openapi/goclient/generated.go")
			try(t, err)
			text, err := json.Marshal(map[string]any{"Replace": map[string]string{overlay: file}})
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600)
			}
			try(t, err)
			try(t, build("", filepath.Join(dir, "client"), "./openapi/goclient", "-tags=generated",
				"-overlay="+filepath.Join(dir, "overlay.json")))
			return []string{filepath.Join(dir, "client")}, nil
		},
		"openapi-typescript": func(t *testing.T, dir string) (command, env []string) {
			modules := filepath.Join(tool(t, "openapi_node"), "node_modules")
			try(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
			copyInto(t, dir, "client.ts")
			run(t, dir, nil, "node", filepath.Join(modules, "openapi-typescript/bin/cli.js"), document, "-o", "generated.d.ts")
			run(t, dir, nil, "node", filepath.Join(modules, "typescript/bin/tsc"), "--strict", "--target", "es2022", "--module",
				"es2022", "--moduleResolution", "bundler", "--lib", "es2022,dom", "--skipLibCheck", "client.ts")
			try(t, os.Rename(filepath.Join(dir, "client.js"), filepath.Join(dir, "client.mjs")))
			return []string{"node", filepath.Join(dir, "client.mjs")}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			command, env := generate(t, dir)
			got := run(t, dir, append(env, "PULSEGATE_TOKEN="+token), command[0],
				append(command[1:], s.url, name, "2026-11-21T10:00:00+00:00")...)
			zone := regexp.MustCompile(`(\.000)?(Z|\+00:00)`)
			if want := "stored\n" + name + " 2026-11-21T10:00:00Z 62.5\n"; zone.ReplaceAllString(got, "Z") != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// Redocly's linter accepts the descriptions of servers with and without tokens. Its rule that an operation has a 2xx is
// left out, because the beginning of a sign-in only redirects.
func TestRedocly(t *testing.T) {
	t.Parallel()
	if !describedAnew(t) {
		return
	}
	cli := filepath.Join(tool(t, "openapi_node"), "node_modules/@redocly/cli/bin/cli.js")
	_, document, _ := withToken(t)
	out := run(t, t.TempDir(), []string{"REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true"}, "node", cli,
		"lint", "--skip-rule=operation-2xx-response", document, fetchDescription(t, serve(t).url))
	if strings.Contains(out, " warning.") || strings.Contains(out, " warnings.") {
		t.Errorf("it warns:\n%s", out)
	}
}

// unsaid returns the rules that a schema cannot state, as docs/api.md lists them: statuses and
// fields of problems, and how their reasons begin.
func unsaid(t *testing.T) (rules []string) {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/api.md")
	try(t, err)
	_, list, _ := strings.Cut(string(page), "<!-- begin unsaid -->")
	list, _, _ = strings.Cut(list, "<!-- end unsaid -->")
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `([^|]*)` \\|").FindAllStringSubmatch(list, -1) {
		rules = append(rules, strings.TrimSpace(m[1]+" "+m[2]))
	}
	if len(rules) == 0 {
		t.Fatal("docs/api.md lists no rules")
	}
	return rules
}

// Each of the rules in docs/api.md that a schema cannot state is one of the server.
func TestUnsaid(t *testing.T) {
	s, _, token := withToken(t)
	c := client{description: describe(t, s.url, &seen{statuses: map[string]bool{}, problems: map[string]bool{}}),
		token: token}
	var answers []string
	add := func(method, target, body string, fields ...string) {
		t.Helper()
		status, text := c.sendLax(method, target, body, fields...)
		var p problem
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Error(err)
		}
		answers = append(answers,
			strings.Join(strings.Fields(fmt.Sprint(status, " ", p.Field, " ", p.Reason, p.Detail, p.Message)), " "))
	}
	const aggregates, readings = "/v1/devices/ppg-1/aggregates?step=", "/v1/devices/ppg-1/readings?"
	for _, target := range []string{
		readings + "cursor=x", readings + "tz=Mars", aggregates + "7m", readings + "from=2026-02-30", readings +
			"to=2026-02-30", readings + "from=now&to=2001-01-01", readings + "end=x", "/v1/live?device=a&prefix=a",
	} {
		add("GET", target, "")
	}
	add("POST", "/v1/subjects/alerts?from=1970-01-01", `{"subject":"P-17"}`)
	add("POST", "/v1/subjects/alerts?from=2001-01-01", `{"subject":"P-17"}`)
	add("POST", "/v1/readings", fmt.Sprintf(reading, 60), "Content-Encoding", "gzip")
	for _, members := range []string{
		`"device":"a","time":"1999-01-01T00:00:00Z"`, `"device":"a","time":"2099-01-01T00:00:00Z"`,
		`"device":"a","time":1790000000000.0`, `"device":"..","time":1790000000000`,
		`"device":"a","time":1790000000000,"systolic_mmhg":80,"diastolic_mmhg":90`,
		`"device":"a","time":1790000000000,"heart_rate_bpm":60.001`, `"device":"a","time":1790000000000,"gateway":"other"`,
	} {
		add("POST", "/v1/readings", "{"+members+`,"spo2_pct":90}`)
	}
	add("POST", "/v1/omh", strings.ReplaceAll(point("a", 1, 90), "oxygen-saturation", "blood-pressure"))
	add("POST", "/v1/omh", strings.ReplaceAll(point("a", 1, 90), `"%"`, `"mmHg"`))
	add("POST", "/v1/readings", `[{"device":"a","time":1790000000000,"spo2_pct":0}]`)
	add("POST", "/api/v2/write", "#")
	add("POST", "/api/v2/write", "v")
	for _, rule := range unsaid(t) {
		holds := func(answer string) bool {
			status, reason, _ := strings.Cut(rule, " ")
			return strings.HasPrefix(answer, rule) || strings.HasPrefix(answer, status) && strings.Contains(answer, " "+reason)
		}
		if !slices.ContainsFunc(answers, holds) {
			t.Errorf("no answer has %q:\n%s", rule, strings.Join(answers, "\n"))
		}
	}
}

// schemathesis sends requests that follow the description, and others: the server accepts the
// former, rejects the latter, and answers as described, apart from the rules that a schema cannot
// state.
//
// Seen to fail with a rule less in docs/api.md.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	packages := tool(t, "openapi_python")
	s, _, token := withToken(t)
	target, err := url.Parse(s.url)
	try(t, err)
	// Streams do not end by themselves: the proxy forwards their beginnings.
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(resp *http.Response) error {
		if resp.Header.Get("Content-Type") != "text/event-stream" {
			return nil
		}
		beginning := make([]byte, 64)
		n, err := resp.Body.Read(beginning)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(beginning[:n]))
		return err
	}
	front := httptest.NewServer(proxy)
	defer front.Close()
	dir := t.TempDir()
	copyInto(t, dir, "checks.py")
	rules, err := json.Marshal(unsaid(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "unsaid.json"), rules, 0o600)
	}
	try(t, err)
	const operations = 25
	// Schemathesis takes the schema of a stream for one of each event; TestDescription follows /v1/live and reads
	// /v1/changes.
	args := []string{"-m", "schemathesis.cli", "run", front.URL + "/openapi.json", "--header", "Authorization: Bearer " +
		token, "--seed", "1", "--no-shrink",
		"--continue-on-failure", "--suppress-health-check", "all", "--exclude-checks",
		"positive_data_acceptance,negative_data_rejection", "--exclude-path", "/v1/live", "--exclude-path", "/v1/changes",
		"--request-timeout", "30",
		"--max-examples", strconv.Itoa(max(1, *cases/operations))}
	if *cases < 1000 {
		args = append(args, "--phases", "fuzzing")
	}
	out := run(t, dir, []string{"PYTHONPATH=" + packages + ":" + dir, "SCHEMATHESIS_HOOKS=checks"}, "python3", args...)
	m := regexp.MustCompile(`(\d+) generated`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no cases:\n%s", out)
	}
	if n, _ := strconv.Atoi(m[1]); n < *cases*2/3 {
		t.Errorf("%d cases, want about %d", n, *cases)
	}
	t.Logf("%s cases", m[1])
}
