package main_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// An input of lines touches its package and six lines outside of it, as CONTRIBUTING.md says, and then has what all
// inputs have: an address, the rules of access, durable answers and metrics.
func TestAddInput(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(root + "/CONTRIBUTING.md")
	try(t, err)
	source, err := os.ReadFile(root + "/internal/api/fronttest/lines/lines.go")
	try(t, err)
	counted := fmt.Sprintf("\n%d lines in its package, and these six outside of it:", strings.Count(string(source), "\n"))
	_, listed, found := strings.Cut(string(page), counted)
	listed, _, _ = strings.Cut(listed, "\n## ")
	if !found {
		t.Errorf("CONTRIBUTING.md does not say %q", counted)
	}
	outside := 0
	for _, added := range linesInput {
		outside += strings.Count(added.text, "\n")
		if !strings.Contains(listed, "\n"+added.text) {
			t.Errorf("CONTRIBUTING.md does not show %s", added.text)
		}
	}
	if outside != 6 {
		t.Errorf("the input adds %d lines outside of its package, want 6", outside)
	}

	bin, err := altered()
	try(t, err)
	dir := t.TempDir() + "/data"
	_, refused, code := output(t, bin, "serve", "--data="+dir, "--lines-addr=0.0.0.0:0", "--addr=127.0.0.1:0",
		"--admin-addr=")
	if code != 64 || !strings.Contains(refused, "--lines-addr 0.0.0.0:0 can be reached from other machines") {
		t.Errorf("exit code %d: %s", code, refused)
	}
	p := start(t, bin, dir, "--admin-addr=127.0.0.1:0", "--lines-addr=127.0.0.1:0")
	conn, err := net.Dial("tcp", p.lines)
	try(t, err)
	defer conn.Close()
	try(t, conn.SetDeadline(time.Now().Add(polltest.Patience)))
	in := bufio.NewReader(conn)
	for _, tt := range []struct{ line, want string }{
		{"d1 1000 spo2_pct=97", "stored"},
		{"d1 1000 spo2_pct=97", "stored"},
		{"d1 1000 spo2_pct=96", "rejected: spo2_pct contradicts the stored value"},
		{"d1 1000 spo3_pct=96", "rejected:  unknown field"},
		{"d1 soon spo2_pct=97", "rejected: time not a number"},
		{"d1 1000", "rejected: The body is not valid"},
	} {
		_, err := fmt.Fprintln(conn, tt.line)
		try(t, err)
		got, err := in.ReadString('\n')
		if got != tt.want+"\n" {
			t.Errorf("%s: %q, %v, want %q", tt.line, got, err, tt.want)
		}
	}
	if n := metric(t, p, "pulsegate_lines_connections"); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	p.kill()
	p = start(t, bin, dir)
	if _, body := fetch(t, http.MethodGet, p.url("/v1/devices/d1"), ""); !strings.Contains(body,
		`"spo2_pct":{"value":97,`) {
		t.Errorf("after a crash, the device has %s", body)
	}
	p.stopCleanly()
}
