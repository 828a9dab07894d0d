package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A second server on the directory of a server under load refuses to start and names the lock, and
// so do the commands that open a directory. The first server is not affected.
//
// Seen to fail with the mutant skip-lock.
func TestTwoServers(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane)
		b.start()
		l := b.load("--users=16", "--posts=200")
		l.awaitAcknowledged(50)
		lock := filepath.Join(b.dir, "LOCK")
		for range 3 {
			// Its address is free, so that only the directory can stop it.
			second := exec.Command(b.bin, "serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data="+b.dir, "--min-free-bytes=-1",
				"--fast-lane="+string(lane))
			p, err := tryLaunch(t, 1, second)
			if err == nil {
				p.kill()
				t.Fatal("a second server starts on the same directory")
			}
			if code := second.ProcessState.ExitCode(); code != 1 || !strings.Contains(err.Error(), lock) {
				t.Errorf("the second server exits with %d: %v; want 1 and the name of %s", code, err, lock)
			}
		}
		for _, args := range [][]string{{"check", b.dir}, {"export", "--data", b.dir, "--device", "d"}} {
			if out, errs, code := output(t, b.bin, args...); code != 1 || !strings.Contains(errs, lock) {
				t.Errorf("while a server runs, pulsegate %s exits with %d:\n%s%s", args[0], code, out, errs)
			}
		}
		if report := l.wait(); report.Stored == 0 {
			t.Error("the first server has stored nothing")
		}
		b.finish()
	})
}
