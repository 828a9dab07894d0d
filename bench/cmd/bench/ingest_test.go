package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fakeMode makes the test program itself a server for the tests.
const fakeMode = "BENCH_TEST_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeMode); mode != "" {
		fakeServer(mode)
		return
	}
	code := m.Run()
	if programs.dir != "" {
		os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}

// fakeServer answers "stored" and logs at its end the number of stored readings given by
// mode.
func fakeServer(mode string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "level=INFO msg=listening addr=%s listener=public\n", l.Addr())
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"stored"}`)
	}))
	<-ctx.Done()
	fmt.Fprintf(os.Stderr, "level=INFO msg=stopped stored=%s\n", mode)
}

// startFake starts this program as a fake server.
func startFake(t *testing.T, mode string) (*process, error) {
	t.Helper()
	t.Setenv(fakeMode, mode)
	self, err := os.Executable()
	try(t, err)
	return start(t.Context(), exec.Command(self), "public")
}

// A server that has stored less than it acknowledged, or more than it was sent, must
// not get figures.
func TestEnd(t *testing.T) {
	for mode, want := range map[string]bool{"99": false, "100": true, "164": true, "165": false, "unknown": false} {
		p, err := startFake(t, mode)
		try(t, err)
		own := pulsegate()
		err = (&cluster{contestant: &own, nodes: []*process{p}}).end(t.Context(), 100, 64)
		if (err == nil) != want {
			t.Errorf("100 answered, 64 in flight, stored %s: %v", mode, err)
		}
	}
}

// Each server starts, answers a reading, stops on request, and has stored the reading if it
// stores.
func TestServers(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	try(t, os.Chmod(filepath.Dir(work), 0o711)) // PostgreSQL's user needs search permission
	l := &loads{common: common{Root: "../../..", work: work}, Programs: built(t)}
	all, left := available(append(contestants(), tlsContestants()...), nil)
	for _, reason := range left {
		t.Log("omitted: " + reason)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			s, err := l.start(t.Context(), &c)
			try(t, err)
			if _, err := s.meter(); err != nil {
				t.Error(err)
			}
			if err := s.end(t.Context(), 0, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMeasure runs a complete measurement with wrk. It checks that a strict decoder
// accepts the script's readings and that all are different.
func TestMeasure(t *testing.T) {
	t.Parallel()
	needWrk(t)
	dir, text := runResults(t, []string{"ingest", "bulk", "idle", "tls"}, "ingest", "--rounds=1", "--lead=0s",
		"--warm-up=0s", "--seconds=1", "--connections=1",
		"--servers=floor,pulsegate", "--forms=array,ndjson+gzip,ndjson+zstd", "--idle=50", "--idle-wait=1s",
		"--programs="+built(t), "--dir="+t.TempDir())
	// Two servers with single readings, two over TLS, and one with idle connections, without
	// TLS and with it.
	if n := strings.Count(text, "| **"); n != 6 || strings.Contains(text, "Left out") {
		t.Errorf("%d servers in the tables, want 6:\n%s", n, text)
	}
	if !strings.Contains(text, handshakeRatio) || strings.Contains(text, handshakeRatio+" |  |") {
		t.Errorf("no figures of handshakes:\n%s", text)
	}
	for _, form := range []string{"array", "ndjson+gzip", "ndjson+zstd"} {
		if !strings.Contains(text, "\n| "+form+" | ") {
			t.Errorf("no figures of the form %s:\n%s", form, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ingest.svg")); err != nil {
		t.Error(err)
	}
}
