package docs_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A hookCopy is what a receiver of webhooks has.
type hookCopy struct {
	mu       sync.Mutex
	readings map[string]string // signs by device and time
	ids      map[string]bool   // of messages
	kinds    []string          // of changes, but readings
}

// apply applies a line of webhook/receiver.mjs.
func (c *hookCopy) apply(line string) error {
	id, body, _ := strings.Cut(line, " ")
	var m struct {
		Type string `json:"type"`
		Data struct {
			Changes []struct {
				Kind, Device, Time string
				Signs              map[string]float64
			} `json:"changes"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || m.Type != "changes" {
		return fmt.Errorf("%s: %w", line, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[id] { // it came again
		return nil
	}
	c.ids[id] = true
	for _, x := range m.Data.Changes {
		switch x.Kind {
		case "reading":
			c.readings[x.Device+" "+x.Time] = fmt.Sprint(x.Signs)
		case "erased":
			for key := range c.readings {
				if strings.HasPrefix(key, x.Device+" ") {
					delete(c.readings, key)
				}
			}
			fallthrough
		default:
			c.kinds = append(c.kinds, x.Kind)
		}
	}
	return nil
}

// text returns the readings.
func (c *hookCopy) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for key, signs := range c.readings {
		all = append(all, key+" "+signs)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// receive starts webhook/receiver.mjs, and returns its URL.
func receive(t *testing.T, secret string, c *hookCopy) (url string) {
	t.Helper()
	tools, err := filepath.Abs(filepath.Join(root, "bin/tools"))
	try(t, err)
	if _, err := os.Stat(filepath.Join(tools, "fhir_node/node_modules/standardwebhooks")); err != nil {
		missing(t, "%v: run make setup", err)
	}
	dir := t.TempDir() // Node.js looks for packages beside the file
	text, err := os.ReadFile("webhook/receiver.mjs")
	try(t, err, os.WriteFile(filepath.Join(dir, "receiver.mjs"), text, 0o600),
		os.Symlink(filepath.Join(tools, "fhir_node/node_modules"), filepath.Join(dir, "node_modules")))
	cmd := exec.Command("node", filepath.Join(dir, "receiver.mjs"))
	cmd.Env, cmd.Stderr = append(os.Environ(), "SECRET="+secret), t.Output()
	out, err := cmd.StdoutPipe()
	try(t, err, cmd.Start())
	port, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if p, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
				port <- p
			} else if err := c.apply(lines.Text()); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	select {
	case p := <-port:
		return "http://127.0.0.1:" + p + "/hook"
	case <-ended:
		t.Fatal("the receiver has ended")
	case <-time.After(patience):
		t.Fatal("the receiver does not listen")
	}
	return ""
}

// TestWebhook forwards changes to a receiver that fails in many ways, and verifies signatures with the package of
// Standard Webhooks. The command is killed several times, and the secret is replaced. In the end the receiver has what
// the server has, without the device that was erased.
func TestWebhook(t *testing.T) {
	const secret, another = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", "whsec_OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2"
	c := &hookCopy{readings: map[string]string{}, ids: map[string]bool{}}
	to := receive(t, secret, c)
	s := serve(t)
	dir := t.TempDir()
	secrets := filepath.Join(dir, "secrets")
	try(t, os.WriteFile(secrets, []byte(another+"\n"), 0o600)) // the receiver answers 401
	start := func() *exec.Cmd {
		cmd := exec.Command(program, "forward", "--target", s.url, "--to", to, "--secrets", secrets, "--state",
			filepath.Join(dir, "state"), "--batch", "3")
		cmd.Stderr = t.Output()
		try(t, cmd.Start())
		return cmd
	}
	want := map[string]bool{}
	post := func(device string, second int) {
		t.Helper()
		at := time.Date(2026, 11, 21, 10, 0, second, 0, time.UTC).Format("2006-01-02T15:04:05.000Z07:00")
		resp, err := http.Post(s.url+"/v1/readings", "application/json",
			strings.NewReader(fmt.Sprintf(`{"device":%q,"time":%q,"spo2_pct":97}`, device, at)))
		try(t, err, resp.Body.Close())
		want[fmt.Sprintf("%s %s map[spo2_pct:97]", device, at)] = true
	}
	for i := range 10 {
		post("a", 30-i)
	}
	post("gone", 1)
	for i := range 4 {
		cmd := start()
		if i == 0 {
			try(t, os.WriteFile(secrets, []byte(another+"\n"+secret+"\n"), 0o600))
		}
		for j := range 5 {
			post("b", 10*i+j)
		}
		time.Sleep(time.Duration(i) * 200 * time.Millisecond) // somewhere within a message or a pause
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if out, err := exec.Command(program, "erase", "--target", s.admin, "--device", "gone", "--yes").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for key := range want {
		if strings.HasPrefix(key, "gone ") {
			delete(want, key)
		}
	}
	cmd := start()
	defer func() {
		try(t, cmd.Process.Signal(os.Interrupt))
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGINT: %v", err)
		}
	}()
	var all []string
	for key := range want {
		all = append(all, key)
	}
	slices.Sort(all)
	for deadline := time.Now().Add(patience); c.text() != strings.Join(all, "\n"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the receiver has\n%s\nwant\n%s", c.text(), strings.Join(all, "\n"))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.kinds, "begin") {
		t.Errorf("the kinds of other changes are %v, want begin among them", c.kinds)
	}
}
