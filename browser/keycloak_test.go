package browser_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var withKeycloak = flag.Bool("keycloak", false, "test the sign-in at Keycloak, which takes minutes")

// Addresses in the commands of docs/signin.md.
const (
	pageURL     = "http://127.0.0.1:8080/"
	keycloakURL = "http://localhost:8180"
	issuer      = keycloakURL + "/realms/house"
)

// A guide follows the commands of docs/signin.md about Keycloak.
type guide struct {
	t   *testing.T
	dir string // in which the commands run
	env []string
}

// wardFour are rules beside those of the page.
const wardFour = `
[[rule]]
claim = "groups"
value = "ward-4-nurses"
rights = ["read"]
devices = "ward4-"

[[rule]]
claim = ["realm_access", "roles"]
value = "writer"
rights = ["write"]
gateway = "ward-4"
devices = "ward4-"

`

// The commands of docs/signin.md lead to a page on which people sign in at Keycloak, and to tokens for the API. A
// session follows the account: what Keycloak knows about it applies after the next refresh.
//
// The server refreshes after half the life of an access token, and after four minutes at most. Keycloak then refuses a
// disabled account, which ends the session; only while Keycloak does not answer, the session lasts for nine minutes.
// TestSignInRefreshed in internal/access/gate checks these times. Here tokens live for ten seconds, so that nobody has
// to wait.
func TestKeycloak(t *testing.T) {
	if !*withKeycloak {
		t.Skip("make oidc runs it")
	}
	for _, need := range []string{"java", "mvn", "unzip", "curl"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Fatalf("make oidc needs java 17, mvn, unzip and curl: %v", err)
		}
	}
	for _, addr := range []string{"127.0.0.1:8080", "127.0.0.1:6060", "127.0.0.1:8180"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("the commands of docs/signin.md use this address: %v", err)
		}
		l.Close()
	}
	rules, commands := signInPage(t)
	g := newGuide(t)
	g.start(commands[0], keycloakURL+"/realms/master")
	g.run(commands[1])
	k := &keycloak{t: t}
	k.do("PUT", "", map[string]any{"accessTokenLifespan": 10, "eventsEnabled": true,
		"enabledEventTypes": []string{"REFRESH_TOKEN"}}, nil)
	try(t, os.WriteFile(filepath.Join(g.dir, "access.toml"), []byte(wardFour+rules), 0o600))
	g.start(commands[2], pageURL)
	if answer := g.run(commands[3]); !strings.Contains(answer, `{"status":"stored"}`) {
		t.Fatalf("the answer to a reading with a JWT is %s", answer)
	}
	t.Run("bearer", func(t *testing.T) { bearerOfKeycloak(t, k) })
	t.Run("page", func(t *testing.T) { pageWithKeycloak(t, k, g) })
	t.Run("no secret", func(t *testing.T) { pageWithoutSecret(t, k, g) })
}

// signInPage returns the rules of docs/signin.md, and the commands of its part about Keycloak.
func signInPage(t *testing.T) (rules string, commands []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/signin.md")
	try(t, err)
	fenced := func(language, text string) (found []string) {
		for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			found = append(found, block[1])
		}
		return found
	}
	_, part, _ := strings.Cut(string(page), "\n### Keycloak\n")
	part, _, _ = strings.Cut(part, "\n#")
	tables, commands := fenced("toml", string(page)), fenced("sh", part)
	if len(tables) != 1 || len(commands) != 4 {
		t.Fatalf("the page has %d blocks of rules and %d of commands, want 1 and 4", len(tables), len(commands))
	}
	return tables[0], commands
}

func newGuide(t *testing.T) *guide {
	g := &guide{t: t, dir: t.TempDir()}
	bin := t.TempDir()
	try(t, os.Symlink(built.program, filepath.Join(bin, "pulsegate")))
	// kcadm.sh keeps a token in the home directory.
	g.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KC_OPTS=-Duser.home="+g.dir)
	return g
}

func (g *guide) shell(script string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", "set -e\n"+script)
	cmd.Dir, cmd.Env = g.dir, g.env
	endWithTest(cmd)
	return cmd
}

// run runs commands up to the first that fails, and returns what they print.
func (g *guide) run(commands string) string {
	g.t.Helper()
	out, err := g.shell(commands).CombinedOutput()
	if err != nil {
		g.t.Fatalf("%v:\n%s\n%s", err, commands, out)
	}
	return string(out)
}

// start runs commands of which the last is a server, and waits until this answers at an address. It ends with the test.
func (g *guide) start(commands, address string) {
	g.t.Helper()
	// The server takes the place of the shell, and so gets its signal.
	cmd := g.shell(regexp.MustCompile(`(?m)^(pulsegate serve|\S+/kc\.sh) `).ReplaceAllString(commands, "exec $0"))
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	try(g.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	g.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
		<-ended
		if g.t.Failed() {
			g.t.Logf("%s\n%s", commands, out.text())
		}
	})
	for deadline := time.Now().Add(5 * patience); ; time.Sleep(100 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			g.t.Fatalf("the server has ended: %v", err)
		default:
		}
		answer, err := http.Get(address)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%s does not answer: %v", address, err)
		}
	}
}

// An output is what a server prints. It is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer // guarded by mu
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// A keycloak is a Keycloak as its administrator sees it.
type keycloak struct{ t *testing.T }

// do sends a request of the administrator about the realm, and decodes the answer into one that is not nil.
func (k *keycloak) do(method, path string, body, answer any) {
	k.t.Helper()
	admin := jwt(k.t, "master", url.Values{"client_id": {"admin-cli"}, "grant_type": {"password"}, "username": {"admin"},
		"password": {"change-me"}})
	text, err := json.Marshal(body)
	try(k.t, err)
	r, err := http.NewRequest(method, keycloakURL+"/admin/realms/house"+path, bytes.NewReader(text))
	try(k.t, err)
	r.Header.Set("Authorization", "Bearer "+admin)
	r.Header.Set("Content-Type", "application/json")
	status, text := send(k.t, r)
	if status >= 300 {
		k.t.Fatalf("%s %s: status %d\n%s", method, path, status, text)
	}
	if answer != nil {
		try(k.t, json.Unmarshal(text, answer))
	}
}

// id returns the ID of the only thing that Keycloak has at a path.
func (k *keycloak) id(path string) string {
	k.t.Helper()
	var found []struct{ ID string }
	k.do("GET", path, nil, &found)
	if len(found) != 1 {
		k.t.Fatalf("%s has %d things", path, len(found))
	}
	return found[0].ID
}

// refreshes returns how many refreshes Keycloak has answered.
func (k *keycloak) refreshes() int {
	k.t.Helper()
	var events []json.RawMessage
	k.do("GET", "/events?type=REFRESH_TOKEN&max=10000", nil, &events)
	return len(events)
}

// refreshed waits for some refreshes.
func (k *keycloak) refreshed(more int) {
	k.t.Helper()
	want := k.refreshes() + more
	for deadline := time.Now().Add(patience); k.refreshes() < want; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			k.t.Fatalf("there are %d refreshes, want %d", k.refreshes(), want)
		}
	}
}

// grant returns the answer of a realm to a request for tokens.
func grant(t *testing.T, realm string, form url.Values) (access, id string) {
	t.Helper()
	r, err := http.NewRequest("POST", keycloakURL+"/realms/"+realm+"/protocol/openid-connect/token",
		strings.NewReader(form.Encode()))
	try(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	status, text := send(t, r)
	var answer struct {
		Access string `json:"access_token"`
		ID     string `json:"id_token"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || status != http.StatusOK || answer.Access == "" {
		t.Fatalf("no token: status %d, %v\n%s", status, err, text)
	}
	return answer.Access, answer.ID
}

// jwt returns an access token.
func jwt(t *testing.T, realm string, form url.Values) string {
	t.Helper()
	access, _ := grant(t, realm, form)
	return access
}

func send(t *testing.T, r *http.Request) (status int, body []byte) {
	t.Helper()
	answer, err := http.DefaultClient.Do(r)
	try(t, err)
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	try(t, err)
	return answer.StatusCode, body
}

// fastRequests returns how many requests the fast lane has answered.
func fastRequests(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequest("GET", "http://127.0.0.1:6060/metrics", nil)
	try(t, err)
	_, text := send(t, r)
	found := regexp.MustCompile(`(?m)^pulsegate_http_lane_requests_total\{lane="fast",tls="none"\} (\d+)$`).
		FindSubmatch(text)
	if found == nil {
		t.Fatal("no metric of the fast lane")
	}
	return string(found[1])
}

// Both lanes accept Keycloak's access tokens for this server, and no others.
func bearerOfKeycloak(t *testing.T, k *keycloak) {
	request := func(token, method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, pageURL+path, strings.NewReader(body))
		try(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		status, text := send(t, r)
		return status, string(text)
	}
	store := func(token, device string) (int, string) {
		t.Helper()
		return request(token, "POST", "v1/readings", reading(device, time.Second, `"spo2_pct":97`))
	}
	refused := func(what, token string) {
		t.Helper()
		for range 2 { // the first is answered in the full lane
			if status, text := store(token, "ward3-bed-7"); status != http.StatusUnauthorized ||
				!strings.Contains(text, "invalid-credentials") {
				t.Errorf("%s: a reading: status %d, %s", what, status, text)
			}
		}
		if status, text := request(token, "GET", "v1/devices", ""); status != http.StatusUnauthorized ||
			!strings.Contains(text, "invalid-credentials") {
			t.Errorf("%s: devices: status %d, %s", what, status, text)
		}
	}

	service := url.Values{"client_id": {"bed-7"}, "client_secret": {"a-third-password"},
		"grant_type": {"client_credentials"}}
	k.do("POST", "/roles", map[string]any{"name": "writer"}, nil)
	bed := jwt(t, "house", service)
	if status, text := store(bed, "ward4-bed-1"); status != http.StatusForbidden {
		t.Errorf("a reading of another ward: status %d, %s", status, text)
	}
	before := fastRequests(t)
	if status, text := store(bed, "ward3-bed-1"); status != http.StatusOK {
		t.Errorf("a reading: status %d, %s", status, text)
	}
	if after := fastRequests(t); after == before {
		t.Errorf("the fast lane has answered %s requests, as before a reading with a known JWT", after)
	}
	if status, text := request(bed, "GET", "v1/devices", ""); status != http.StatusForbidden {
		t.Errorf("without the right to read: status %d, %s", status, text)
	}

	// A role is an inner claim.
	var role json.RawMessage
	k.do("GET", "/roles/writer", nil, &role)
	k.do("POST", "/users/"+k.id("/users?username=service-account-bed-7&exact=true")+"/role-mappings/realm",
		[]any{role}, nil)
	if status, text := store(jwt(t, "house", service), "ward4-bed-1"); status != http.StatusOK {
		t.Errorf("a reading with a role: status %d, %s", status, text)
	}

	// Without its mapper, a client gets tokens for others.
	client := "/clients/" + k.id("/clients?clientId=pulsegate")
	k.do("PUT", client, map[string]any{"clientId": "pulsegate", "directAccessGrantsEnabled": true}, nil)
	nina := url.Values{
		"client_id": {"pulsegate"}, "client_secret": {"another-password"}, "grant_type": {"password"}, "scope": {"openid"},
		"username": {"nina"}, "password": {"a-password"},
	}
	access, idToken := grant(t, "house", nina)
	refused("another audience", access)
	refused("an ID token", idToken)
	refused("another realm",
		jwt(t, "master", url.Values{"client_id": {"admin-cli"}, "grant_type": {"password"}, "username": {"admin"},
			"password": {"change-me"}}))
	k.do("POST", "/clients", map[string]any{"clientId": "other", "secret": "s", "serviceAccountsEnabled": true,
		"protocolMappers": []any{audience}}, nil)
	refused("another client",
		jwt(t, "house", url.Values{"client_id": {"other"}, "client_secret": {"s"}, "grant_type": {"client_credentials"}}))
	k.do("POST", client+"/protocol-mappers/models", audience, nil)
	access, _ = grant(t, "house", nina)
	if status, text := request(access, "GET", "v1/devices", ""); status != http.StatusOK ||
		!strings.Contains(text, `"ward3-bed-1"`) || strings.Contains(text, "ward4-") {
		t.Errorf("devices: status %d, %s", status, text)
	}
}

// audience is the mapper of docs/signin.md that makes tokens for the API.
var audience = map[string]any{
	"name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
	"config": map[string]string{"included.client.audience": "pulsegate", "access.token.claim": "true"},
}

// atKeycloak signs in with Keycloak's form.
func atKeycloak(p *tab) {
	p.t.Helper()
	p.enter("#username", "nina")
	p.enter("#password", "a-password")
	p.click("#kc-login")
}

// People sign in on the page at Keycloak, and their sessions follow the account.
func pageWithKeycloak(t *testing.T, k *keycloak, g *guide) {
	sub := k.id("/users?username=nina&exact=true")
	nina := "/users/" + sub
	sessions := func() int {
		t.Helper()
		var all []json.RawMessage
		k.do("GET", nina+"/sessions", nil, &all)
		return len(all)
	}
	before := sessions() // of those who have got a token with the password
	p := open(t, pageURL)
	signIn := func() {
		t.Helper()
		p.shows("Sign in with your account")
		p.press("Sign in with your account")
		atKeycloak(p)
		p.shows("Sign out")
		if at := eval[string](p, "location.href"); at != pageURL {
			t.Errorf("the browser is at %s, want %s", at, pageURL)
		}
		p.elsewhere()
	}
	signIn()
	p.shows("ward3-bed-1")

	// The session outlives the access token.
	k.refreshed(4)
	if got := eval[string](p, `fetch("v1/session").then((r) => r.text())`); !strings.Contains(got,
		`"signed_in":true,"all_devices":false,"provider":true`) {
		t.Errorf("the session is %s", got)
	}

	// Another group has other devices; without a group there is no session.
	k.do("POST", "/groups", map[string]any{"name": "ward-4-nurses"}, nil)
	wards := [2]string{k.id("/groups?search=ward-3-nurses&exact=true"), k.id("/groups?search=ward-4-nurses&exact=true")}
	k.do("PUT", nina+"/groups/"+wards[1], nil, nil)
	k.do("DELETE", nina+"/groups/"+wards[0], nil, nil)
	p.shows("ward4-bed-1")
	p.until(`!document.body.innerText.includes("ward3-")`)
	k.do("DELETE", nina+"/groups/"+wards[1], nil, nil)
	p.shows("Your session has ended.")
	p.elsewhere()
	p.press("Sign in with your account") // Keycloak's session is still there
	p.shows("Your account may not read here.")
	p.elsewhere()
	if log := g.run("cat pulsegate-audit.log"); !strings.Contains(log, `"oidc:`+sub+" "+issuer+`"`) ||
		strings.Contains(log, "nina") {
		t.Errorf("the audit log is\n%s", log)
	}
	k.do("PUT", nina+"/groups/"+wards[0], nil, nil)
	p.click("main a")
	p.shows("Sign in with your account")
	p.press("Sign in with your account")
	p.shows("ward3-bed-1")
	p.elsewhere()

	// Sign out here ends Keycloak's session too, so that it asks for the password again.
	p.press("Sign out")
	p.shows("Sign in with your account")
	p.elsewhere()
	if n := sessions(); n != before {
		t.Errorf("after the sign-out, Keycloak has %d sessions, want %d", n, before)
	}
	signIn()

	// Sign out there.
	p.run(chromedp.Navigate(issuer + "/protocol/openid-connect/logout"))
	p.click("#kc-logout")
	p.shows("You are logged out")
	p.run(chromedp.Navigate(pageURL))
	p.shows("Your session has ended.")
	p.elsewhere()
	signIn()

	// A disabled account.
	k.do("PUT", nina, map[string]any{"enabled": false}, nil)
	p.shows("Your session has ended.")
	p.elsewhere()
	p.press("Sign in with your account")
	atKeycloak(p)
	p.shows("Account is disabled")
	p.run(chromedp.Navigate(pageURL)) // what Keycloak's page still requests is no problem of this page
	p.shows("Sign in with your account")
	p.elsewhere()
	k.do("PUT", nina, map[string]any{"enabled": true}, nil)
}

// A client needs no secret.
func pageWithoutSecret(t *testing.T, k *keycloak, g *guide) {
	addr := freeAddr(t)
	page := "http://" + addr + "/"
	k.do("PUT", "/clients/"+k.id("/clients?clientId=pulsegate"),
		map[string]any{"clientId": "pulsegate", "publicClient": true, "redirectUris": []string{page + "v1/session/callback"}},
		nil)
	serve(t, "--addr="+addr, "--oidc-issuer="+issuer, "--oidc-client-id=pulsegate", "--public-url="+page,
		"--access-rules="+filepath.Join(g.dir, "access.toml"), "--audit=")
	p := open(t, page)
	p.press("Sign in with your account")
	atKeycloak(p)
	p.shows("No device has sent readings yet.")
	p.elsewhere()
	k.refreshed(1)
	p.run(chromedp.Reload())
	p.shows("Sign out")
}
