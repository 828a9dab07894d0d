package main_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The commands of pages work as they are. They use the default addresses, so one page is followed after another.
func TestPages(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, page := range []struct {
		name   string
		follow func(*testing.T)
	}{
		{"README", followReadme},
		{"assigning", followAssigningPage},
		{"backup", followBackupPage},
		{"fhir", followFHIRPage},
		{"on-call", followOnCallPage},
		{"operations", followOperations},
		{"retention", followRetentionPage},
		{"scaling", followScalingPage},
		{"tls", followTLSPage},
		{"tokens", followTokensPage},
	} {
		t.Run(page.name, page.follow)
	}
}

// The README's commands work as they are, in their order.
func followReadme(t *testing.T) {
	requireFreeAddr(t, "127.0.0.1:1883")
	blocks := pageBlocks(t, "../README.md", 7)
	r := newReader(t)
	for _, block := range blocks {
		r.follow(block)
	}
	// The sample reading is of this moment, so that no device is stale.
	if !regexp.MustCompile(`(?m)^ppg-000123 +\S+ +(\d+m)?\d+s `).MatchString(r.shown.String()) {
		t.Errorf("the sample reading is not new:\n%s", r.shown.String())
	}
	r.want(
		`{"status":"stored"}`,
		`"spo2_pct":{"value":97.5,"time":"2`,
		"\nppg-000123,2",
		"sent=1893 stored=1892 duplicate=0 rejected=1 failed=0 ",
		"\nDEVICE ",
		"\nSIGN ",
		"\nbed-7,",
		" missing=0 ",
	)
	r.stop()
}

// requireFreeAddr checks that the addresses of the README's commands are free.
func requireFreeAddr(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		unable(t, "the README's commands use the default addresses, and one of them is taken: %v", err)
	}
}

// A reader is a user who types the README's commands with pulsegate installed, in a directory with
// the repository's recording.
type reader struct {
	t      *testing.T
	dir    string
	env    []string
	server *process // nil: not started yet
	shown  strings.Builder
}

func newReader(t *testing.T) *reader {
	t.Helper()
	requireFreeAddr(t, "127.0.0.1:8080")
	requireFreeAddr(t, "127.0.0.1:6060")
	r := &reader{t: t, dir: t.TempDir()}
	internal, err := filepath.Abs("../../internal")
	try(t, err)
	try(t, os.Symlink(internal, filepath.Join(r.dir, "internal")))
	bin := t.TempDir()
	try(t, os.Symlink(program(t), filepath.Join(bin, "pulsegate")))
	// The program has the README's settings, and curl fails if the answer is an error.
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "PULSEGATE_") && !strings.HasPrefix(setting, "PATH=") {
			r.env = append(r.env, setting)
		}
	}
	r.env = append(r.env, "CURL_HOME="+r.dir, "PATH="+bin+":"+os.Getenv("PATH"))
	try(t, os.WriteFile(filepath.Join(r.dir, ".curlrc"), []byte("fail\nsilent\nshow-error\n"), 0o600))
	return r
}

// follow runs a block. A server is left running, as in another terminal.
//
// Commands that install the program and run containers are skipped: the tests build the program
// themselves, TestDemo runs the demo, and deploy/test runs the image.
func (r *reader) follow(block string) {
	r.t.Helper()
	var script strings.Builder
	for line := range strings.Lines(block) {
		switch {
		case strings.HasPrefix(line, "git clone "), strings.HasPrefix(line, "CGO_ENABLED=0 go install "),
			strings.HasPrefix(line, "export PATH="), strings.HasPrefix(line, "docker "),
			strings.HasPrefix(line, "pulsegate demo"):
		case strings.HasPrefix(line, "pulsegate serve"):
			r.run(script.String())
			script.Reset()
			if r.server != nil {
				r.t.Fatalf("the README starts a second server: %s", line)
			}
			r.server = launch(r.t, 2, r.shell(context.Background(), "exec "+line))
		default:
			script.WriteString(line)
		}
	}
	r.run(script.String())
}

// run runs commands up to the first that fails.
func (r *reader) run(script string) {
	r.t.Helper()
	if script == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := r.shell(ctx, "set -e\n"+script).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v:\n%s\n%s", err, script, out)
	}
	fmt.Fprintf(&r.shown, "\n%s", out)
}

// stop stops the server that a command has started.
func (r *reader) stop() {
	r.t.Helper()
	if r.server == nil {
		r.t.Fatal("no command has started a server")
	}
	r.server.stopCleanly()
}

func (r *reader) shell(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}
