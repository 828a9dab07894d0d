package main_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// postMany stores this many readings of a device.
func (b *harness) postMany(device string, readings int) {
	b.Helper()
	for from := 0; from < readings; from += 1000 {
		var body strings.Builder
		for i := from; i < min(from+1000, readings); i++ {
			fmt.Fprintf(&body, `{"device":%q,"time":%d,"spo2_pct":97}`+"\n", device, 1_763_000_000_000+i*1000)
		}
		n := strings.Count(body.String(), "\n")
		b.mustPost(body.String(), fmt.Sprintf(`200 {"stored":%d,"duplicate":0}`, n))
	}
}

// refused checks that pulsegate serve and pulsegate check refuse the store, and that both name a
// file.
func (b *harness) refused(what, file string) {
	b.Helper()
	before := b.files()
	line := b.serveCommand()
	p, err := tryLaunch(b, 1, exec.Command(line[0], line[1:]...))
	if err == nil {
		p.kill()
		b.Errorf("%s: the server starts:\n%s", what, p.stderr())
	} else if text := err.Error(); !strings.Contains(text, file) || !strings.Contains(text, "corrupt") && file != "PULSEGATE" || strings.Contains(text, "goroutine ") {
		b.Errorf("%s: got %v, want the name of %s", what, err, file)
	}
	if !maps.Equal(before, b.files()) {
		b.Errorf("%s: the directory was changed", what)
	}
	if out, errs, code := output(b, b.bin, "check", b.dir); code != 1 || !strings.Contains(errs, file) {
		b.Errorf("%s: pulsegate check exits with %d:\n%s%s", what, code, out, errs)
	}
}

// Files of a store are lost or truncated while the server is down, after SIGTERM and after
// kill -9, as an interrupted copy leaves them. The next start names and rejects each and changes
// nothing, and so does pulsegate check. Once the file is restored, everything is there.
//
// Seen to fail with the mutants ignore-list and ignore-lost-logs.
func TestLostFiles(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane)
		b.start()
		b.postMany("first", 5000)
		b.term()
		b.start()
		b.postMany("second", 20_000)
		newest, _ := b.log()
		log := filepath.Base(newest)
		b.server.kill()

		lose := func(stop, file string, harms map[string]func(path string) error) {
			t.Helper()
			path := filepath.Join(b.dir, file)
			text, err := os.ReadFile(path)
			try(t, err)
			for how, harm := range harms {
				try(t, harm(path))
				b.refused(fmt.Sprintf("%s, %s %s", stop, file, how), file)
				writeTo(t, path, text)
			}
		}
		cut := func(n int64) func(string) error {
			return func(path string) error { return os.Truncate(path, n) }
		}
		lose("kill -9", log, map[string]func(string) error{"removed": os.Remove, "emptied": cut(0)})
		lose("kill -9", "LISTED", map[string]func(string) error{"removed": os.Remove})
		lose("kill -9", "CHECKSUMS", map[string]func(string) error{"removed": os.Remove, "emptied": cut(0)})

		b.start()
		b.term()
		newest, size := b.log()
		log = filepath.Base(newest)
		manifests, err := filepath.Glob(filepath.Join(b.dir, "MANIFEST-*"))
		if err != nil || len(manifests) == 0 {
			t.Fatalf("there are manifests %q, %v", manifests, err)
		}
		manifest := slices.Max(manifests)
		info, err := os.Stat(manifest)
		try(t, err)
		tables, err := filepath.Glob(filepath.Join(b.dir, "*.sst"))
		if err != nil || len(tables) == 0 {
			t.Fatalf("there are tables %q, %v", tables, err)
		}
		lose("SIGTERM", log, map[string]func(string) error{"removed": os.Remove, "emptied": cut(0), "cut to half": cut(size / 2)})
		lose("SIGTERM", filepath.Base(manifest), map[string]func(string) error{"removed": os.Remove, "cut by 20 bytes": cut(info.Size() - 20)})
		lose("SIGTERM", filepath.Base(tables[0]), map[string]func(string) error{"removed": os.Remove, "cut": cut(100)})
		lose("SIGTERM", "CHECKSUMS", map[string]func(string) error{"removed": os.Remove, "cut": cut(100)})
		writeTo(t, filepath.Join(b.dir, "000099.log"), nil)
		b.refused("SIGTERM, a log put back", "000099.log")
		try(t, os.Remove(filepath.Join(b.dir, "000099.log")))

		b.check()
		b.start()
		for device, want := range map[string]int{"first": 5000, "second": 20_000} {
			if got := len(b.readings(device)); got != want {
				t.Errorf("device %s has %d readings, want %d", device, got, want)
			}
		}
		b.term()
	})
}

// zeroSector zeroes 512 bytes in the middle of a file, or all of a short one.
func zeroSector(text string) string {
	from := len(text) / 2 / 512 * 512
	to := min(from+512, len(text))
	return text[:from] + strings.Repeat("\x00", to-from) + text[to:]
}

// flipBit flips one bit of a byte.
func flipBit(text string, at int) string {
	if text == "" {
		return text
	}
	return text[:at] + string([]byte{text[at] ^ 4}) + text[at+1:]
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
				if b.verify() == 0 {
					t.Error("nothing was acknowledged")
				}
				b.term()
				b.check()
			})
		}
	})
}
