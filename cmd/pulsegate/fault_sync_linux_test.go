package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A sync fails under load. The server acknowledges nothing of that group, does not sync again,
// because the kernel may have dropped what it could not write, logs the cause and the remedy, and
// exits. Then the power fails, so that the kernel's buffers are lost as after a real failure.
//
// Seen to fail with the mutants ignore-sync-error, retry-sync and answer-before-sync.
func TestSyncError(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		d := newDisk(t, 256<<20)
		b := newHarnessIn(t, filepath.Join(d.dir, "data"), lane)
		b.start()
		b.load("--users=4", "--posts=20").wait()
		b.term()

		trace := filepath.Join(b.scratch, "trace")
		b.startUnder(strace(t, trace, "fdatasync:error=EIO:when=6"))
		l := b.load("--users=16", "--for=1h")
		after := failedSync(t, trace)
		if code := b.ended(); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		if !strings.Contains(b.server.stderr(), `msg="not ready" check=store`) {
			t.Errorf("readyz did not report that the store failed:\n%s", b.server.stderr())
		}
		l.settle()
		lines := strings.Split(strings.TrimSpace(b.server.stderr()), "\n")
		last := lines[len(lines)-1]
		for _, want := range []string{"pulsegate: ", b.dir, "can no longer be written", "input/output error",
			"acknowledged readings are on stable storage", "then restart", "pulsegate check"} {
			if !strings.Contains(last, want) {
				t.Errorf("the last line is %q, without %q", last, want)
			}
		}
		for line := range strings.Lines(after()) {
			if strings.Contains(line, "fdatasync(") && strings.Contains(line, ".log>") && strings.Contains(line, " = 0") {
				t.Errorf("after a failed sync the log was synced again: %s", line)
			}
		}

		d.cutPower()
		d.revive()
		b.start()
		b.finish()
	})
}

// failedSync waits until the trace shows a sync that was made to fail. after returns the part of
// the trace after it.
func failedSync(t *testing.T, trace string) (after func() string) {
	t.Helper()
	rest := func() (string, bool) {
		text, err := os.ReadFile(trace)
		try(t, err)
		_, rest, found := strings.Cut(string(text), "(INJECTED)")
		return rest, found
	}
	polltest.Until(t, "a sync is made to fail", func() bool {
		_, found := rest()
		return found
	})
	return func() string { text, _ := rest(); return text }
}
