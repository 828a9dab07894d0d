package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// zeroSector zeroes 512 bytes in the middle of a file, or all of a short one.
func zeroSector(text string) string {
	from := len(text) / 2 / 512 * 512
	to := min(from+512, len(text))
	return text[:from] + strings.Repeat("\x00", to-from) + text[to:]
}

// LOCK is removed, or the whole directory is moved away, while a server stores readings. The
// server exits by itself with the reason, no other process can open the directory before, and the
// readings that it acknowledged are in its directory.
//
// Seen to fail with the mutants skip-directory-check and skip-directory-lock.
func TestTakenDirectory(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		for name, take := range map[string]func(dir string) (string, error){
			"LOCK removed": func(dir string) (string, error) { return dir, os.Remove(filepath.Join(dir, "LOCK")) },
			"moved":        func(dir string) (string, error) { return dir + ".old", os.Rename(dir, dir+".old") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newHarness(t, lane)
				b.start()
				l := b.load("--users=8", "--for=1h")
				l.awaitAcknowledged(50)
				b.server.signal(syscall.SIGSTOP)
				now, err := take(b.dir)
				try(t, err)
				// The server has not noticed yet, and still holds its directory.
				second := exec.Command(b.bin, "serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data="+now, "--min-free-bytes=-1")
				if p, err := tryLaunch(t, 1, second); err == nil {
					p.kill()
					t.Error("a second server starts on the same directory")
				} else if !strings.Contains(err.Error(), "in use by another process") {
					t.Errorf("the second server: %v", err)
				}
				b.server.signal(syscall.SIGCONT)
				if code := b.ended(); code != 1 || !strings.Contains(b.server.stderr(), "was changed while the store was open") {
					t.Errorf("the server exits with %d: %s", code, b.server.stderr())
				}
				l.settle()
				b.dir = now
				b.start()
				b.finish()
			})
		}
	})
}
