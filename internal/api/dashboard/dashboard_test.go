package dashboard_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/signin"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/dashboard"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/mux"
)

// newHandler returns a Handler with collectors.
func newHandler(t *testing.T, g *gate.Gate, all ...metrics.Collector) *dashboard.Handler {
	t.Helper()
	h, err := dashboard.New(dashboard.Options{
		Service: query.Service{Problems: problem.New(), Gate: g, Param: mux.Var, OnError: func(err error) { t.Error(err) }},
		Metrics: metrics.NewValues(dashboard.SystemMetrics, all...),
	})
	try(t, err)
	return h
}

// handler returns the routes of a Handler.
func handler(t *testing.T, g *gate.Gate) http.Handler {
	t.Helper()
	devices := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pulsegate_store_devices"})
	devices.Set(3)
	h := newHandler(t, g, devices, prometheus.NewGauge(prometheus.GaugeOpts{Name: "pulsegate_tokens"}))
	r := mux.NewRouter().SkipClean(true)
	h.Mount(func(template string, h http.Handler) { r.Handle(template, h).Methods("GET", "HEAD") },
		func(template string, h http.Handler, method string) { r.Handle(template, h).Methods(method) })
	return r
}

// do sends a request with header fields and returns the answer.
func do(h http.Handler, method, path, body string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	try(t, err)
	return string(b)
}

var address = regexp.MustCompile(`(?:href|src)="(assets/[^"]+)"`)

// Every file that the page names is served, compressed if the client can, for ever, and with
// the page's policy; the page itself is verified each time.
func TestFiles(t *testing.T) {
	h := handler(t, &gate.Gate{})
	index := do(h, "GET", "/", "")
	page := text(t, index.Body)
	names := address.FindAllStringSubmatch(page, -1)
	if len(names) < 5 || strings.Contains(page, "{{") || index.Header.Get("Cache-Control") != "private, no-cache" {
		t.Fatalf("the page is cached as %q and names %q:\n%s", index.Header.Get("Cache-Control"), names, page)
	}
	if regexp.MustCompile(`<script>|<style|style="|="/|https?:`).MatchString(page) {
		t.Errorf("the page has inline scripts or styles, or addresses that are not relative:\n%s", page)
	}
	for _, m := range append(names, []string{"", ""},
		[]string{"", strings.Replace(names[0][1], "icon.svg", "uPlot.iife.min.js", 1)}) {
		path := "/" + m[1]
		plain, small := do(h, "GET", path, ""), do(h, "GET", path, "", "Accept-Encoding", "br;q=1, gzip;q=0.5")
		for _, answer := range []*http.Response{plain, small} {
			policy := answer.Header.Get("Content-Security-Policy")
			if answer.StatusCode != 200 || !strings.HasPrefix(policy, "default-src 'none'; ") ||
				strings.Contains(policy, "unsafe") || strings.Join(answer.Header["Vary"], ", ") != "Accept-Encoding, Cookie" {
				t.Errorf("%s: status %d, policy %q", path, answer.StatusCode, policy)
			}
			if m[1] != "" && !strings.Contains(answer.Header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s is not cached for ever", path)
			}
		}
		if plain.Header.Get("Content-Encoding") != "" ||
			do(h, "GET", path, "", "Accept-Encoding", "gzip;q=0").Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is compressed for a client that did not ask for it", path)
		}
		if small.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(small.Body)
			try(t, err)
			if text(t, unzipped) != text(t, plain.Body) {
				t.Errorf("%s differs when it is compressed", path)
			}
			if small.Header.Get("ETag") == plain.Header.Get("ETag") {
				t.Errorf("%s has one ETag for both encodings", path)
			}
		} else if strings.HasSuffix(path, ".js") {
			t.Errorf("%s is not compressed", path)
		}
		again := do(h, "GET", path, "", "If-None-Match", `"x", W/`+plain.Header.Get("ETag"))
		if body := text(t, again.Body); again.StatusCode != 304 || body != "" {
			t.Errorf("%s again: status %d, %d bytes", path, again.StatusCode, len(body))
		}
		head := do(h, "HEAD", path, "")
		if body := text(t, head.Body); body != "" || head.Header.Get("Content-Length") != plain.Header.Get("Content-Length") {
			t.Errorf("HEAD of %s: length %s, %d bytes", path, head.Header.Get("Content-Length"), len(body))
		}
	}
	for _, path := range []string{"/assets/0000000000000000/app.js", strings.Replace("/"+names[0][1], "icon.svg",
		"no-such.js", 1), strings.Replace("/"+names[0][1], "icon.svg", "..%2Findex.html", 1)} {
		if answer := do(h, "GET", path, ""); answer.StatusCode != 404 ||
			strings.Contains(answer.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: status %d, %q", path, answer.StatusCode, answer.Header.Get("Cache-Control"))
		}
	}
}

var module = regexp.MustCompile(`"\./([a-z]+(?:\.[a-z]+)?\.js)"`)

// loads returns the files that the page may load, by name.
func loads(t *testing.T, h http.Handler) map[string]string {
	t.Helper()
	files := map[string]string{"": text(t, do(h, "GET", "/", "").Body)}
	folder := regexp.MustCompile(`assets/[0-9a-f]+/`).FindString(files[""])
	var names []string
	for _, m := range address.FindAllStringSubmatch(files[""], -1) {
		names = append(names, strings.TrimPrefix(m[1], folder))
	}
	for i := 0; i < len(names); i++ {
		if _, known := files[names[i]]; known {
			continue
		}
		answer := do(h, "GET", "/"+folder+names[i], "")
		files[names[i]] = text(t, answer.Body)
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", names[i], answer.StatusCode)
		}
		for _, m := range module.FindAllStringSubmatch(files[names[i]], -1) {
			names = append(names, m[1])
		}
	}
	return files
}

// Without a provider, no byte of the page is of the sign-in there; with one, only the sign-in differs.
func TestFilesOfProvider(t *testing.T) {
	logins := signin.New(signin.Options{Page: "http://127.0.0.1:8080/"})
	t.Cleanup(logins.Close)
	without, with := loads(t, handler(t, &gate.Gate{})), loads(t, handler(t, &gate.Gate{SignIns: logins}))
	if len(without) < 9 || !strings.Contains(without["signin.js"], "token") || with["token.js"] != without["signin.js"] {
		t.Fatalf("the page loads %d files", len(without))
	}
	of := regexp.MustCompile(`(?i)provider|oidc|organisation|session/begin|\.continue`)
	for name, text := range without {
		if found := of.FindString(text); found != "" {
			t.Errorf("without a provider, %q has %q", name, found)
		}
		if name != "" && name != "signin.js" && with[name] != text {
			t.Errorf("with a provider, %q differs", name)
		}
	}
	if !strings.Contains(with["signin.js"], "v1/session/begin") || len(with) != len(without)+1 {
		t.Errorf("with a provider, the page loads %d files instead of %d", len(with), len(without))
	}
}

// withTokens returns a gate with tokens, and the texts of one that reads all devices, of one
// that reads some, and of one that writes.
func withTokens(t *testing.T) (g *gate.Gate, all, some, writer string) {
	t.Helper()
	f := gatetest.New(t)
	text := func(gateway, devices string, rights token.Rights) string {
		return strings.TrimPrefix(f.Token(t, gateway, devices, token.Token{Rights: rights}), "Bearer ")
	}
	all, some, writer = text("a", "", token.Read), text("b", "ppg-", token.Read), text("c", "", token.Write)
	return f.Open(t), all, some, writer
}

// The session's state needs no credentials to be read; sign-in and sign-out change it. System
// needs a token for all devices.
func TestSession(t *testing.T) {
	g, all, some, writer := withTokens(t)
	h := handler(t, g)
	state := func(cookie string) (s struct {
		Tokens     bool
		SignedIn   bool `json:"signed_in"`
		AllDevices bool `json:"all_devices"`
		Expires    *time.Time
	}) {
		answer := do(h, "GET", "/v1/session", "", "Cookie", cookie)
		if err := json.Unmarshal([]byte(text(t, answer.Body)), &s); err != nil || answer.StatusCode != 200 {
			t.Fatalf("status %d, %v", answer.StatusCode, err)
		}
		return s
	}
	if s := state(""); !s.Tokens || s.SignedIn || s.AllDevices || s.Expires != nil {
		t.Errorf("without a session: %+v", s)
	}
	for _, tt := range []struct {
		token      string
		all        bool
		wantSystem int
	}{{all, true, 200}, {some, false, 403}} {
		answer := do(h, "POST", "/v1/session", `{"token":"`+tt.token+`"}`)
		if answer.StatusCode != 204 || len(answer.Cookies()) != 2 || answer.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("sign-in: status %d, %d cookies", answer.StatusCode, len(answer.Cookies()))
		}
		c := answer.Cookies()[0] // the other one removes what has the name of the other scheme
		cookie := c.Name + "=" + c.Value
		if s := state(cookie); !s.SignedIn || s.AllDevices != tt.all || s.Expires == nil ||
			time.Until(*s.Expires) > 12*time.Hour {
			t.Errorf("signed in: %+v", s)
		}
		want := map[bool]string{true: "all", false: "some"}[tt.all]
		if in, out := do(h, "GET", "/", "", "Cookie", cookie), do(h, "GET", "/", ""); !strings.Contains(text(t, in.Body),
			`data-session="`+want+`"`) ||
			!strings.Contains(text(t, out.Body), `data-session="out"`) || in.Header.Get("ETag") == out.Header.Get("ETag") {
			t.Errorf("the page does not say %s, or out, or has one ETag for both", want)
		}
		system := do(h, "GET", "/v1/system", "", "Cookie", cookie)
		body := text(t, system.Body)
		if system.StatusCode != tt.wantSystem {
			t.Errorf("system: status %d, want %d", system.StatusCode, tt.wantSystem)
		}
		if tt.all && (!strings.Contains(body, `"pulsegate_store_devices":[{"value":3}]`) ||
			strings.Contains(body, "pulsegate_tokens")) {
			t.Errorf("the system is %s", body)
		}
		answer = do(h, "DELETE", "/v1/session", "", "Cookie", cookie)
		if out := answer.Cookies(); answer.StatusCode != 204 || len(out) != 2 || out[0].MaxAge >= 0 ||
			out[1].MaxAge >= 0 ||
			state(cookie).SignedIn {
			t.Errorf("sign-out: status %d, cookies %v", answer.StatusCode, out)
		}
	}
	for _, tt := range []struct {
		body string
		want int
	}{
		{`{"token":"` + writer + `"}`, 403}, {`{"token":"pgt_x"}`, 401}, {`{"token":""}`, 401}, {`{}`, 401},
		{`{"token":"` + all + `","x":1}`, 400}, {`{"token":"` + all + `"}{}`, 400}, {`token=` + all, 400},
		{`{"token":"` + strings.Repeat("x", 2000) + `"}`, 400},
	} {
		answer := do(h, "POST", "/v1/session", tt.body)
		if body := text(t, answer.Body); answer.StatusCode != tt.want || len(answer.Cookies()) != 0 ||
			strings.Contains(body, "pgt_") {
			t.Errorf("sign-in with %.20q: status %d, want %d; %s", tt.body, answer.StatusCode, tt.want, body)
		}
	}
	if answer := do(h, "GET", "/v1/system", ""); answer.StatusCode != 401 {
		t.Errorf("system without credentials: status %d", answer.StatusCode)
	}
	if answer := do(handler(t, &gate.Gate{}), "POST", "/v1/session", `{"token":"`+all+`"}`); answer.StatusCode != 404 {
		t.Errorf("sign-in without tokens: status %d", answer.StatusCode)
	}
}

var try = polltest.Try
