package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const clientSecret = "a-secret-of-the-client"

// A house is the provider of zitadel/oidc, with its form for names and passwords.
type house struct {
	*storage.Storage
	page     string
	rules    string      // path of the file of rules
	disabled atomic.Bool // refreshes fail
}

// A houseClient is the client of the page.
type houseClient struct {
	op.Client
	page string
}

func (c *houseClient) PostLogoutRedirectURIs() []string { return []string{c.page} }

func (h *house) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := h.Storage.GetClientByClientID(ctx, id)
	return &houseClient{c, h.page}, err
}

func (h *house) TokenRequestByRefreshToken(ctx context.Context, refreshToken string) (op.RefreshTokenRequest, error) {
	if h.disabled.Load() {
		return nil, op.ErrInvalidRefreshToken
	}
	return h.Storage.TokenRequestByRefreshToken(ctx, refreshToken)
}

// A shortAnswer says of an answer to a request for tokens that they expire at once.
type shortAnswer struct {
	http.ResponseWriter
	body strings.Builder
	code int
}

func (a *shortAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }
func (a *shortAnswer) WriteHeader(code int)        { a.code = code }

// serveHouse starts a provider, and a server whose page uses it. The rules are those of the first of two people.
func serveHouse(t *testing.T, args ...string) (*server, *house) {
	t.Helper()
	provider := httptest.NewUnstartedServer(nil)
	issuer := "http://localhost:" + fmt.Sprint(provider.Listener.Addr().(*net.TCPAddr).Port)
	addr := freeAddr(t)
	h := &house{page: "http://" + addr + "/"}
	h.Storage = storage.NewStorageWithClients(storage.NewUserStore(issuer), map[string]*storage.Client{
		"pulsegate": storage.WebClient("pulsegate", clientSecret, h.page+"v1/session/callback"),
	})
	router := exampleop.SetupServer(issuer, h, slog.New(slog.DiscardHandler), false, op.WithAllowInsecure())
	provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/oauth/token" {
			router.ServeHTTP(w, r)
			return
		}
		a := &shortAnswer{ResponseWriter: w, code: http.StatusOK}
		router.ServeHTTP(a, r)
		var body map[string]any
		if json.Unmarshal([]byte(a.body.String()), &body) == nil && body["expires_in"] != nil {
			body["expires_in"] = 1
		}
		w.WriteHeader(a.code)
		_ = json.NewEncoder(w).Encode(body) // an error means that the client has disconnected
	})
	provider.Start()
	t.Cleanup(provider.Close)
	dir := t.TempDir()
	h.rules = filepath.Join(dir, "access.toml")
	h.admit(t, "id1")
	try(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(clientSecret+"\n"), 0o600))
	return serve(t, append([]string{
		"--addr=" + addr, "--oidc-issuer=" + issuer, "--oidc-client-id=pulsegate", "--oidc-client-secret-file=" +
			filepath.Join(dir, "secret"),
		"--public-url=" + h.page, "--access-rules=" + h.rules, "--audit=" + filepath.Join(dir, "audit"),
		"--oidc-scopes=offline_access",
	}, args...)...), h
}

// admit writes rules that let one person in.
func (h *house) admit(t *testing.T, sub string) {
	t.Helper()
	rule := fmt.Sprintf("[[rule]]\nclaim = \"sub\"\nvalue = %q\nrights = [\"read\"]\ndevices = \"ward3-\"\n", sub)
	try(t, os.WriteFile(h.rules, []byte(rule), 0o600))
}

// freeAddr returns an address on which nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	defer l.Close()
	return l.Addr().String()
}

// elsewhere forgets the problems of a tab that has been at the provider, which are the provider's.
func (p *tab) elsewhere() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = nil
}

// signIn signs in at the provider of a house.
func signIn(p *tab, user string) {
	p.t.Helper()
	p.shows("Sign in with your account")
	p.press("Sign in with your account")
	p.enter("#username", user)
	p.enter("#password", "verysecure")
	p.click("button[type=submit]")
}

// People sign in at the provider and out again, here and there, and the session ends when the account is disabled.
func TestSignInAtProvider(t *testing.T) {
	s, h := serveHouse(t)
	p := open(t, s.url+"/#system")
	p.shows("Sign in with your account")
	if got := eval[int](p, `document.querySelectorAll("input").length`); got != 0 {
		t.Errorf("without tokens there are %d fields", got)
	}
	signIn(p, "test-user@localhost")
	p.shows("Sign out")
	p.shows("No device has sent readings yet.")
	if at := eval[string](p, "location.href"); at != h.page {
		t.Errorf("the browser is at %s, want %s", at, h.page)
	}
	if got := eval[string](p, `fetch("v1/session").then((r) => r.text())`); !strings.Contains(got,
		`"signed_in":true,"all_devices":false,"provider":true`) {
		t.Errorf("the session is %s", got)
	}
	if got := eval[string](p, "document.cookie"); got != "" {
		t.Errorf("scripts see the cookies %q", got)
	}
	p.elsewhere()
	p.press("Sign out")
	p.shows("Sign in with your account")
	if at := eval[string](p, "location.href"); !strings.HasPrefix(at, h.page) {
		t.Errorf("the browser is at %s, want %s", at, h.page)
	}
	p.elsewhere()

	signIn(p, "test-user@localhost")
	p.shows("Sign out")
	p.elsewhere()
	h.disabled.Store(true)
	p.shows("Your session has ended.")
	p.elsewhere()

	other := open(t, s.url+"/")
	signIn(other, "test-user2")
	other.shows("Your account may not read here.")
	other.click("main a")
	other.shows("Sign in with your account")
	other.elsewhere()

	// A session without rights is none.
	h.disabled.Store(false)
	signIn(p, "test-user@localhost")
	p.shows("Sign out")
	p.elsewhere()
	h.admit(t, "id2")
	p.shows("Your session has ended.")
	p.elsewhere()
}
