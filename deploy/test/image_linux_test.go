package deploy_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

const reading = `{"device":"d","time":1763700000000,"spo2_pct":97}`

// post sends a reading, with a token unless it is empty, and returns the status and the
// body of the answer.
func post(t *testing.T, client *http.Client, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/readings", strings.NewReader(reading))
	try(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	try(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	try(t, err)
	return resp.StatusCode, string(answer)
}

// TestImage runs the image like a hardened cluster: it stores readings, reports its
// health, survives kill -9, and drains at SIGTERM.
//
// It was seen to fail when the Dockerfile lacked CGO_ENABLED=0, when the mode of the
// volume was 0700, and when the container's root was writable.
func TestImage(t *testing.T) {
	c := newContainer(t)
	// Clusters make storage writable for group 0.
	c.mount(t, c.img.Volumes[0], 0o770, false)
	const public = "http://127.0.0.1:8080"
	inside := c.client("127.0.0.1")

	// Without tokens the server does not start.
	if out, code := c.run(t, []string{"/pulsegate", "serve"}); code != 64 || !strings.Contains(out, "token") {
		t.Errorf("without tokens the exit code is %d, want 64 and a message about tokens:\n%s", code, out)
	}

	// Create a token as docs/operations.md does. Relative paths are in the volume.
	made, code := c.run(t, []string{"/pulsegate", "token", "create", "--file", "tokens", "--audit", "audit.log",
		"--gateway", "bed-7", "--rights", "write,read"})
	token := regexp.MustCompile(`pgt_[A-Za-z0-9_-]{48}`).FindString(made)
	if code != 0 || token == "" {
		t.Fatalf("token create: exit code %d:\n%s", code, made)
	}
	access := []string{"PULSEGATE_TOKENS=/var/lib/pulsegate/tokens", "PULSEGATE_AUDIT=/var/lib/pulsegate/audit.log"}
	s := c.start(t, access...)
	if s.public != "http://0.0.0.0:8080" && s.public != "http://[::]:8080" {
		t.Errorf("the server listens on %s, want all addresses", s.public)
	}
	fields := status(t, s)
	uid := fmt.Sprint(c.plan.UID)
	for name, want := range map[string]string{
		"Uid": strings.Join([]string{uid, uid, uid, uid}, " "), "Gid": "0 0 0 0", "Groups": "",
		"NSpid":  fmt.Sprintf("%d 1", s.cmd.Process.Pid),
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1",
	} {
		if fields[name] != want {
			t.Errorf("the process has %s %q, want %q", name, fields[name], want)
		}
	}
	if code, answer := post(t, inside, public, token); code != 200 || answer != `{"status":"stored"}`+"\n" {
		t.Errorf("a reading is answered %d %s", code, answer)
	}
	if out, code := c.run(t, c.img.Health.Test[1:]); code != 0 {
		t.Errorf("the health check's exit code is %d:\n%s", code, out)
	}
	if out, code := c.run(t, []string{"/pulsegate", "health"}); code != 0 {
		t.Errorf("without an address, health exits with %d:\n%s", code, out)
	}
	s.kill()
	if out, code := c.run(t, c.img.Health.Test[1:]); code != 1 {
		t.Errorf("for a killed server, the health check's exit code is %d, want 1:\n%s", code, out)
	}

	s = c.start(t, access...)
	if code, answer := post(t, inside, public, token); code != 200 || answer != `{"status":"duplicate"}`+"\n" {
		t.Errorf("after kill -9, the reading is answered %d %s, want duplicate", code, answer)
	}
	if code := s.term(t); code != 0 {
		t.Errorf("at SIGTERM, the exit code is %d:\n%s", code, s.log())
	}

	// Only the volume is writable.
	if out, code := c.run(t, []string{"/pulsegate", "serve", "--tokens=tokens", "--audit=audit.log",
		"--data=/data"}); code != 1 || !strings.Contains(out, "read-only file system") {
		t.Errorf("with data outside the volume, the exit code is %d, want 1:\n%s", code, out)
	}
}
