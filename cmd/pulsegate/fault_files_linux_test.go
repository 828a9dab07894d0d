package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// The process ends between writing a group to the log and syncing it. Each reading of the group is
// stored completely or not at all, every acknowledged reading is stored, and the store opens
// without help.
//
// Seen to fail with the mutant answer-before-commit.
func TestTornLog(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane)
		b.start()
		const acknowledged = 5
		for i := range acknowledged {
			b.mustPost(fmt.Sprintf(`{"device":"d","time":%d,"spo2_pct":97}`, i), `200 {"status":"stored"}`)
		}
		log, synced := b.log()
		heal := b.tamper("fdatasync:delay_enter=60s")
		go func() { _, _, _ = b.post(`{"device":"d","time":1000,"spo2_pct":97}`, false) }() // there is no answer
		b.awaitLog(synced)
		b.server.signal(syscall.SIGKILL)
		heal() // strace would keep the dead process
		b.server.kill()
		_, written := b.log()
		text, err := os.ReadFile(log)
		try(t, err)

		whole := b.dir
		found := map[int]bool{}
		for _, keep := range []int64{synced, synced + 1, synced + (written-synced)/2, written - 1, written} {
			for _, garbage := range []int{0, 700} {
				b.dir = filepath.Join(b.scratch, fmt.Sprintf("cut%d-%d", keep, garbage))
				try(t, os.CopyFS(b.dir, os.DirFS(whole)))
				cut := filepath.Join(b.dir, filepath.Base(log))
				try(t, os.Truncate(cut, keep))
				rest := randomBytes(garbage)
				if garbage > 0 && keep < written {
					// A byte with one flipped bit is reported as damage, and one random
					// byte in 32 is such a byte.
					rest[0] = ^text[keep]
				}
				appendTo(t, cut, rest)
				b.check()
				b.start()
				got := b.readings("d")
				found[len(got)] = true
				if len(got) != acknowledged && (len(got) != acknowledged+1 || keep != written) {
					t.Errorf("of a log of %d bytes, %d of them synced, %d are left: %d readings are there, want the %d that were acknowledged",
						written, synced, keep, len(got), acknowledged)
				}
				b.server.kill()
			}
		}
		if !found[acknowledged] || !found[acknowledged+1] {
			t.Errorf("the cuts left %v readings, want %d and %d", found, acknowledged, acknowledged+1)
		}
	})
}

// Bytes of the log and of tables change while the server is down. The next start names and rejects
// a damaged log; pulsegate check finds damage that a start does not read. Once the bytes are
// restored, everything is there.
//
// Seen to fail with the mutants skip-log-check and skip-table-check.
func TestDamagedFiles(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane)
		b.start()
		b.load("--users=8", "--posts=40", "--batch=20").wait()
		b.server.kill()
		b.start() // flushes the log to tables
		b.load("--users=8", "--posts=40").wait()
		b.server.kill()

		log, _ := b.log()
		tables, err := filepath.Glob(filepath.Join(b.dir, "*.sst"))
		if err != nil || len(tables) == 0 {
			t.Fatalf("there are no tables: %v", err)
		}
		for _, name := range append(tables, log) {
			text, err := os.ReadFile(name)
			try(t, err)
			damaged := slices.Clone(text)
			offset := len(text)/4 + rand.IntN(len(text)/2)
			damaged[offset] ^= 1 << rand.IntN(8)
			writeTo(t, name, damaged)
			out, errs, code := output(t, b.bin, "check", b.dir)
			if code != 1 || !strings.Contains(out+errs, filepath.Base(name)) {
				t.Errorf("byte %d of %s changed: pulsegate check exits with %d:\n%s%s", offset, name, code, out, errs)
			}
			if name == log {
				line := b.serveCommand()
				_, err := tryLaunch(t, 1, exec.Command(line[0], line[1:]...))
				if err == nil || !strings.Contains(err.Error(), filepath.Base(name)) || strings.Contains(err.Error(), "goroutine ") {
					t.Errorf("byte %d of %s changed: the server starts, or does not name the file: %v", offset, name, err)
				}
			}
			writeTo(t, name, text)
		}
		b.start()
		if b.verify() == 0 {
			t.Error("nothing was acknowledged")
		}
		b.term()
		b.check()
	})
}

// One bit of a table is flipped while the server is down, where a start does not read it. Late
// readings that must be compared with an unreadable one are rejected individually with the
// reason. All other readings are stored, and readyz reports the damage. Once the table is
// restored, everything is there.
//
// Seen to fail with the mutants fail-on-damaged-lookup and unreadable-is-new.
func TestDamagedLookup(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane)
		b.start()
		// Windows with 16,384 rows of a device are sealed. The third one is frozen when two
		// have been.
		const readings = 50_000
		var body strings.Builder
		for i := range readings {
			fmt.Fprintf(&body, `{"device":"d","time":%d,"spo2_pct":%d.%02d}`+"\n", 1_763_000_000_000+i*1000, 80+rand.IntN(20), rand.IntN(100))
		}
		b.mustPost(body.String(), fmt.Sprintf(`200 {"stored":%d,"duplicate":0}`, readings))
		b.server.kill()
		b.start() // flushes the log to a table
		b.term()
		tables, err := filepath.Glob(filepath.Join(b.dir, "*.sst"))
		if err != nil || len(tables) != 1 {
			t.Fatalf("there are tables %q, %v; want one", tables, err)
		}
		table, err := os.ReadFile(tables[0])
		try(t, err)
		damaged := slices.Clone(table)
		damaged[len(table)/4] ^= 1 << rand.IntN(8) // in a segment, between records and groups
		writeTo(t, tables[0], damaged)

		b.start()
		b.mustPost(`{"device":"e","time":1763000000000,"spo2_pct":97}`, `200 {"status":"stored"}`)
		// Each is compared with what is stored, where the damage is met, so some are enough.
		var some []string
		for line := range strings.Lines(body.String()) {
			if rand.IntN(20) == 0 {
				some = append(some, line)
			}
		}
		status, text, err := b.post(strings.Join(some, ""), false)
		var answer struct {
			Stored, Duplicate int
			Rejected          []struct{ Index int }
		}
		if err == nil {
			err = json.Unmarshal([]byte(text), &answer)
		}
		if n := len(answer.Rejected); err != nil || status != 207 || n == 0 || n == len(some) || answer.Duplicate+n != len(some) {
			t.Fatalf("sent again: %d, %d stored, %d duplicates, %d rejected, %v; want 207, duplicates and some rejected",
				status, answer.Stored, answer.Duplicate, n, err)
		}
		one := strings.TrimSuffix(some[answer.Rejected[0].Index], "\n")
		if status, text, err := b.post(one, false); err != nil || status != 503 || !strings.Contains(text, "#store-damaged") {
			t.Errorf("one of them alone: %d %s, %v; want 503 store-damaged", status, text, err)
		}
		polltest.Until(t, "readyz names the damage", func() bool {
			resp, text := fetch(t, http.MethodGet, "http://"+b.addr+"/readyz", "")
			return resp.StatusCode == 200 && text == `{"status":"ready","degraded":["damage"]}`+"\n"
		})
		b.mustPost(`{"device":"d","time":1764000000000,"spo2_pct":97}`, `200 {"status":"stored"}`)
		b.server.kill()

		writeTo(t, tables[0], table)
		b.start()
		if got := len(b.readings("d")); got != readings+1 {
			t.Errorf("%d readings are there, want %d", got, readings+1)
		}
		b.mustPost(body.String(), fmt.Sprintf(`200 {"stored":0,"duplicate":%d}`, readings))
		b.term()
		b.check()
	})
}

func randomBytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rand.Uint32())
	}
	return p
}

func writeTo(t testing.TB, name string, text []byte) {
	t.Helper()
	try(t, os.WriteFile(name, text, 0o600))
}

func appendTo(t testing.TB, name string, text []byte) {
	t.Helper()
	whole, err := os.ReadFile(name)
	try(t, err)
	writeTo(t, name, append(whole, text...))
}
