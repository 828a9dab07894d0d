package server_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/server"
)

// accessRules returns the path of a new file of rules: staff reads, chiefs administer, and a service writes.
func accessRules(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.toml")
	text := ""
	for group, rights := range map[string]string{"staff": `["read"]`, "chiefs": `["read", "admin"]`,
		"beds": "[\"write\"]\ngateway = \"bed-7\""} {
		text += fmt.Sprintf("[[rule]]\nclaim = \"groups\"\nvalue = %q\nrights = %s\n", group, rights)
	}
	try(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// houseOptions returns the options of a server with a provider.
func houseOptions(t *testing.T, issuer string) *server.Options {
	t.Helper()
	opt := options(t)
	log := filepath.Join(t.TempDir(), "audit")
	opt.OIDCIssuer, opt.OIDCClientID, opt.AccessRules, opt.Audit = issuer, []string{oidctest.ClientID},
		accessRules(t), &log
	return opt
}

// Settings that contradict each other, or that would send tokens in clear text, are errors.
func TestSignInSettings(t *testing.T) {
	rules := accessRules(t)
	broken := filepath.Join(t.TempDir(), "broken.toml")
	try(t, os.WriteFile(broken, []byte("[[rule]]\nclam = 1\n"), 0o600))
	for _, tt := range []struct {
		name string
		edit func(*server.Options)
		want string // "" means no error
	}{
		{"loopback", func(*server.Options) {}, ""},
		{"every address", func(o *server.Options) { o.Addr = ":8080" },
			"--oidc-issuer with --addr :8080: anybody on the network could read the tokens"},
		{"other address", func(o *server.Options) { o.Addr = "192.0.2.1:8080" },
			"anybody on the network could read the tokens"},
		{"other address, insecure", func(o *server.Options) { o.Addr, o.Insecure = "192.0.2.1:8080", true },
			"anybody on the network could read the tokens"},
		{"other address, and a proxy", func(o *server.Options) {
			o.Addr, o.TrustedProxies = "192.0.2.1:8080",
				[]string{"192.0.2.7"}
		}, ""},
		{"other address, and TLS", func(o *server.Options) { o.Addr, o.TLSCert, o.TLSKey = "192.0.2.1:8080", "c", "k" }, ""},
		{"issuer in clear text", func(o *server.Options) { o.OIDCIssuer = "http://login.example" },
			"--oidc-issuer: not an https URL"},
		{"issuer without scheme", func(o *server.Options) { o.OIDCIssuer = "login.example" },
			"--oidc-issuer: not a URL such as"},
		{"no client ID", func(o *server.Options) { o.OIDCClientID = nil },
			"--oidc-issuer requires --oidc-client-id and --access-rules"},
		{"no rules", func(o *server.Options) { o.AccessRules = "" },
			"--oidc-issuer requires --oidc-client-id and --access-rules"},
		{"no issuer", func(o *server.Options) { o.OIDCIssuer = "" },
			"--oidc-client-id and --access-rules require --oidc-issuer"},
		{"wrong rules", func(o *server.Options) { o.AccessRules = broken }, "broken.toml:2: clam: unknown key"},
		{"missing rules", func(o *server.Options) { o.AccessRules = "none.toml" }, "no such file"},
		{"rate", func(o *server.Options) { o.TokenRate = 1 }, ""},
		{"page", func(o *server.Options) { o.PublicURL = []string{"https://pulsegate.example/below"} }, ""},
		{"page, secret and scopes", func(o *server.Options) {
			o.PublicURL, o.OIDCSecret, o.OIDCScopes = []string{"https://pulsegate.example/"}, rules, []string{"offline_access"}
		}, ""},
		{"page without issuer", func(o *server.Options) {
			o.PublicURL, o.OIDCIssuer, o.OIDCClientID, o.AccessRules = []string{"http://pulsegate.example/"}, "", nil, ""
		}, ""},
		{"page in clear text", func(o *server.Options) { o.PublicURL = []string{"http://pulsegate.example/"} },
			"--public-url with --oidc-issuer: not an https URL"},
		{"client ID without a name", func(o *server.Options) { o.OIDCClientID = []string{oidctest.ClientID, ""} },
			"--oidc-client-id has an empty name"},
		{"secret without page", func(o *server.Options) { o.OIDCSecret = rules },
			"--oidc-client-secret-file and --oidc-scopes require --oidc-issuer and --public-url"},
		{"scopes without page", func(o *server.Options) { o.OIDCScopes = []string{"offline_access"} },
			"--oidc-client-secret-file and --oidc-scopes require --oidc-issuer and --public-url"},
	} {
		opt := options(t)
		opt.OIDCIssuer, opt.OIDCClientID, opt.AccessRules = "https://login.example", []string{oidctest.ClientID}, rules
		tt.edit(opt)
		opt.Fit(slog.New(slog.DiscardHandler))
		if err := opt.Check(); tt.want == "" && err != nil ||
			tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A JWT is a token at every address and in both lanes, and nowhere but in the header. It is written nowhere, its
// subject only into the audit log, and the rules are followed while the server runs.
func TestJWT(t *testing.T) {
	house := oidctest.New(t)
	opt := houseOptions(t, house.URL)
	auditLog := *opt.Audit
	opt.AccessLog, opt.LogLevel = "all", slog.LevelDebug
	of := func(group string) string {
		return house.Token(oidctest.Object{"groups": group, "sub": "subject-" + group})
	}
	log, err := run(t, opt, func(base string) error {
		defer http.DefaultClient.CloseIdleConnections()
		do := func(method, path, bearer, body string, edit ...func(*http.Request)) (int, string, http.Header) {
			t.Helper()
			if bearer != "" {
				edit = slices.Insert(edit, 0, field("Authorization", "Bearer "+bearer))
			}
			resp, text, err := fetch(method, base+path, body, edit...)
			try(t, err)
			return resp.StatusCode, text, resp.Header
		}
		polltest.Until(t, "the keys are known", func() bool {
			status, text, header := do("GET", "/v1/devices", of("staff"), "")
			if status == http.StatusServiceUnavailable &&
				(header.Get("Retry-After") != "1" || !strings.Contains(text, "keys-unknown")) {
				t.Fatalf("before that: %v %s", header, text)
			}
			return status == http.StatusOK
		})
		const reading = `{"device":"d","time":"2026-11-21T10:00:00Z","spo2_pct":97}`
		staff := of("staff")
		form := func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }
		cookie := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "pulsegate", Value: staff}) }
		twice := func(r *http.Request) { r.Header.Add("Authorization", "Bearer "+staff) }
		for _, tt := range []struct {
			name, method, path, bearer, body string
			edit                             func(*http.Request)
			status                           int
			want                             string
		}{
			{"write", "POST", "/v1/readings", of("beds"), reading, nil, 200, "stored"},
			{"write without the right", "POST", "/v1/readings", staff, reading, nil, 403, "forbidden"},
			{"list", "GET", "/v1/devices", staff, "", nil, 200, `"d"`},
			{"patient", "GET", "/fhir/Observation?device=d", staff, "", nil, 200, "searchset"},
			{"system", "GET", "/v1/system", staff, "", nil, 200, "pulsegate_"},
			{"no rule", "GET", "/v1/devices", of("others"), "", nil, 403, "forbidden"},
			{"InfluxDB's scheme", "POST", "/api/v2/write?precision=ms", "", "v,device=d heart_rate_bpm=72 1795255200000",
				func(r *http.Request) { r.Header.Set("Authorization", "Token "+of("beds")) }, 204, ""},
			{"expired", "GET", "/v1/devices", house.Token(oidctest.Object{"exp": 1}), "", nil, 401, "invalid-credentials"},
			{"two headers", "GET", "/v1/devices", staff, "", twice, 401, "invalid-credentials"},
			{"in the query", "GET", "/v1/devices?access_token=" + staff, "", "", nil, 401, "unauthorized"},
			{"in InfluxDB's query", "POST", "/write?p=" + of("beds"), "", "v,device=d heart_rate_bpm=72", nil, 401, ""},
			{"in a form", "POST", "/v1/readings", "", url.Values{"access_token": {of("beds")}}.Encode(), form, 401,
				"unauthorized"},
			{"in a cookie", "GET", "/v1/devices", "", "", cookie, 401, "unauthorized"},
			{"in the path", "GET", "/v1/devices/" + staff, "", "", nil, 401, "unauthorized"},
			{"huge", "GET", "/v1/devices", "eyJ" + strings.Repeat("x", 10_000), "", nil, 401, "invalid-credentials"},
			{"larger than a header may be", "GET", "/v1/devices", "eyJ" + strings.Repeat("x", 30_000), "", nil, 431, ""},
		} {
			var edits []func(*http.Request)
			if tt.edit != nil {
				edits = append(edits, tt.edit)
			}
			if status, text, _ := do(tt.method, tt.path, tt.bearer, tt.body, edits...); status != tt.status ||
				!strings.Contains(text, tt.want) || strings.Contains(text, staff) {
				t.Errorf("%s: %d %s, want %d", tt.name, status, text, tt.status)
			}
		}
		// A stream of live readings ends when the JWT does.
		ending := ""
		polltest.Until(t, "a stream begins before the JWT ends", func() bool {
			ending = house.Token(oidctest.Object{"groups": "staff",
				"exp": time.Now().Add(2 * time.Second).Add(-oidc.Skew).Unix()})
			status, _, _ := do("GET", "/v1/live?device=d", ending, "")
			return status == http.StatusOK
		})
		if status, _, _ := do("GET", "/v1/devices", ending, ""); status != http.StatusUnauthorized {
			t.Errorf("after the stream has ended: %d", status)
		}
		if err := os.WriteFile(opt.AccessRules,
			[]byte("[[rule]]\nclaim = \"groups\"\nvalue = \"beds\"\nrights = [\"admin\"]\n"), 0o600); err != nil {
			return err
		}
		polltest.Until(t, "the new rules are in force", func() bool {
			status, _, _ := do("GET", "/v1/devices", staff, "")
			return status == http.StatusForbidden
		})
		return nil
	})
	try(t, err)
	if i := strings.Index(log, "eyJ"); i >= 0 {
		t.Errorf("the log has a token: %.200s", log[max(0, i-300):])
	}
	if strings.Contains(log, "subject-") {
		t.Errorf("the log has a subject:\n%s", log)
	}
	text, err := os.ReadFile(auditLog + ".clients")
	if err != nil ||
		!strings.Contains(string(text),
			`"reason":"no-right","peer":"127.0.0.1","actor":"oidc:subject-staff `+house.URL+`"`) ||
		strings.Contains(string(text), "eyJ") {
		t.Errorf("audit log, %v:\n%s", err, text)
	}
	if _, err := audit.VerifyLog(auditLog, nil); err != nil {
		t.Error(err)
	}
}

// The file of the client's secret must have one.
func TestClientSecretFile(t *testing.T) {
	for text, want := range map[string]string{"": "not a line of text", " \n": "not a line of text",
		strings.Repeat("s", 4097): "larger than 4096 bytes"} {
		opt := houseOptions(t, oidctest.New(t).URL)
		opt.PublicURL, opt.OIDCSecret = []string{"http://127.0.0.1/"}, filepath.Join(t.TempDir(), "secret")
		try(t, os.WriteFile(opt.OIDCSecret, []byte(text), 0o600))
		if _, err := run(t, opt, func(string) error { return nil }); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "ssss") {
			t.Errorf("a secret of %d bytes: %v", len(text), err)
		}
	}
}
