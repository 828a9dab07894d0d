package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// resources returns the limits that a server logs at debug level.
func resources(t *testing.T, p *process) map[string]string {
	t.Helper()
	for line := range strings.Lines(p.stderr()) {
		if !strings.Contains(line, "msg=resources ") {
			continue
		}
		fields := map[string]string{}
		for _, field := range strings.Fields(line) {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		return fields
	}
	t.Fatalf("the server does not log its limits:\n%s", p.stderr())
	return nil
}

// The user's settings override Go's limit and each bound.
//
// Seen to fail when Fit overwrites settings.
func TestResourcesOverridden(t *testing.T) {
	for _, tt := range []struct {
		name, limit string // of GOMEMLIMIT
		args        []string
		want        map[string]string
	}{
		{"limit", "256MiB", nil, map[string]string{
			"limit_from": "GOMEMLIMIT", "limit_bytes": "268435456", "go_limit_bytes": "268435456", "cache_bytes": "44739242", "max_queued": "32768"}},
		{"bounds", "256MiB", []string{"--max-queued=5000", "--max-body-bytes=1000000", "--cache-bytes=1048576", "--max-conns=10"}, map[string]string{
			"max_queued": "5000", "max_body_bytes": "1000000", "max_batch_bytes": "250000", "cache_bytes": "1048576", "max_conns": "10"}},
		// max_conns depends on the limit of open files.
		{"off", "off", nil, map[string]string{
			"limit_from": "GOMEMLIMIT", "limit_bytes": "", "go_limit_bytes": "", "cache_bytes": "67108864", "max_body_bytes": "268435456",
			"max_batch_bytes": "33554432", "max_queued": "262144", "max_devices": "1000000"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(program(t), append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=", "--min-free-bytes=-1", "--log-level=debug", "--data=" + filepath.Join(t.TempDir(), "data")}, tt.args...)...)
			cmd.Env = append(os.Environ(), "GOMEMLIMIT="+tt.limit)
			p := launch(t, 1, cmd)
			got := resources(t, p)
			for name, want := range tt.want {
				if got[name] != want {
					t.Errorf("%s: got %q, want %q", name, got[name], want)
				}
			}
			if code := p.stop(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, p.stderr())
			}
		})
	}
}
