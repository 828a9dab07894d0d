package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
)

// A fixture is a directory with a log whose file in use is nearly full, and with its
// key.
type fixture struct{ dir, path, key string }

func newFixture(t *testing.T) fixture {
	t.Helper()
	dir := t.TempDir()
	b := fixture{dir, filepath.Join(dir, "log", "audit"), filepath.Join(dir, "key")}
	mkdir(t, filepath.Join(dir, "log"))
	key, err := audit.CreateKey(b.key)
	try(t, err)
	l := open(t, b.path, volatile(audit.Options{MaxBytes: 1, Key: key}))
	fillUntil(t, l, b.path+".2")
	for {
		info, err := os.Stat(b.path)
		try(t, err)
		if info.Size() > 64<<10-1500 {
			break
		}
		appendAll(t, l, long(t))
	}
	try(t, l.Close())
	put(t, b.path, read(t, b.path)+"{torn")
	return b
}

// copy returns a copy of b.
func (b fixture) copy(t *testing.T) fixture {
	t.Helper()
	dir := t.TempDir()
	try(t, os.CopyFS(dir, os.DirFS(b.dir)))
	return fixture{dir, filepath.Join(dir, "log", "audit"), filepath.Join(dir, "key")}
}

// A script is what a process does with a log, with the appends that succeeded.
type script struct {
	t     *testing.T
	next  int64
	acked []int64 // counts of the records whose append returned nil
}

func (s *script) append(l *audit.Log) error {
	s.next++
	n := s.next
	r := long(s.t)
	r.Count = n
	err := l.Append(s.t.Context(), r)
	if err == nil {
		s.acked = append(s.acked, n)
	}
	return err
}

// run opens the log and exercises everything: records, refusals, exports, rotation,
// another process, signatures.
func (s *script) run(b fixture, f *audit.Fault) {
	t := s.t
	key, err := audit.LoadKey(b.key)
	try(t, err)
	l, err := audit.Open(t.Context(), b.path, f.With(audit.Options{
		MaxBytes: 1, Keep: 3, Key: key, CheckEvery: time.Hour, Now: func() time.Time { return epoch },
	}))
	if err != nil {
		return
	}
	for range 4 {
		_ = s.append(l)
	}
	for i := range 3 {
		_ = l.Export(t.Context(), audit.Record{Token: "t", Device: name(t, fmt.Sprintf("d-%d", i/2)), Count: 1_000_000})
	}
	other := open(t, b.path, volatile(audit.Options{MaxBytes: 1, Keep: 3}))
	if err := s.append(other); err != nil {
		t.Errorf("the other process: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Errorf("the other process: %v", err)
	}
	_ = s.append(l)
	l.Refused(audit.Refusal{Reason: audit.Unknown})
	_ = l.Close() // signs the log
}

// counts returns the counts of all erasures in the log of b.
func (b fixture) counts(t *testing.T) (counts []int64) {
	t.Helper()
	for _, path := range []string{".3", ".2", ".1", ""} {
		text, err := os.ReadFile(b.path + path)
		if os.IsNotExist(err) {
			continue
		}
		try(t, err)
		for line := range bytes.Lines(text) {
			_, rest, ok := bytes.Cut(line, []byte(`"count":`))
			if !ok || !bytes.Contains(line, []byte(`"event":"erased"`)) {
				continue
			}
			var n int64
			if _, err := fmt.Sscan(string(rest[:bytes.IndexByte(rest, ',')]), &n); err != nil {
				t.Fatal(err)
			}
			counts = append(counts, n)
		}
	}
	return counts
}

// TestFaults injects a failure into each call that a Log makes of its disk, once or from
// then on; failing writes write nothing or half. Afterwards each record whose append
// returned nil is in the log exactly once, the log verifies, and the next process
// continues it.
//
// Seen to fail with the mutant ignore-audit-sync-error.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("fails many calls of one goroutine")
	}
	whole := newFixture(t)
	none := audit.Fault{Volatile: true}
	(&script{t: t}).run(whole.copy(t), &none)
	if len(none.Calls) < 50 {
		t.Fatalf("%d calls, want more", len(none.Calls))
	}
	failed := map[string]int{}
	for _, fault := range []audit.Fault{{}, {Half: true}, {Lasting: true}, {Lasting: true, Half: true}} {
		fault.Volatile = true
		for fault.At = 1; fault.At <= len(none.Calls); fault.At++ {
			if call := none.Calls[fault.At-1]; fault.Half && call != "write" && call != "replace" {
				continue
			}
			f, b, s := fault, whole.copy(t), &script{t: t}
			s.run(b, &f)
			if len(f.Failed) == 0 {
				continue // after an earlier failure fewer calls are made
			}
			failed[f.Failed[0]]++
			what := fmt.Sprintf("call %d, %s, fails (lasting %t, half %t)", f.At, f.Failed[0], f.Lasting, f.Half)
			key, err := audit.LoadKey(b.key)
			try(t, err)
			l, err := audit.Open(t.Context(), b.path, volatile(audit.Options{MaxBytes: 1, Keep: 3, Key: key}))
			if err != nil {
				t.Fatalf("%s: the next process: %v", what, err)
			}
			if err := s.append(l); err != nil {
				t.Errorf("%s: the next process: %v", what, err)
			}
			if err := l.Close(); err != nil {
				t.Errorf("%s: the next process: %v", what, err)
			}
			if report, err := audit.VerifyLog(b.path, key); err != nil || !report.Head || report.Files[0].FirstSeq != 1 {
				t.Errorf("%s: %+v, %v", what, report, err)
			}
			counts := b.counts(t)
			for _, n := range s.acked {
				if i := slices.Index(counts, n); i < 0 || slices.Index(counts[i+1:], n) >= 0 {
					t.Errorf("%s: the log does not have record %d exactly once, but %v", what, n, counts)
				}
			}
			for _, n := range counts {
				if n > s.next {
					t.Errorf("%s: nobody wrote record %d", what, n)
				}
			}
		}
	}
	for _, call := range []string{"lock", "open for reading", "open for appending", "stat", "stat of the file", "rename",
		"replace", "sync of the directory", "read", "write", "sync", "truncate", "close"} {
		if failed[call] == 0 {
			t.Errorf("no %s has failed", call)
		}
	}
	t.Logf("%d calls, %v", len(none.Calls), failed)
}

// A failed sync is not retried: the kernel may have dropped the data that it could not
// write. The log accepts nothing until the process is restarted.
func TestFailedSync(t *testing.T) {
	b := newFixture(t)
	f := audit.Fault{}
	l, err := audit.Open(t.Context(), b.path, f.With(audit.Options{MaxBytes: 1, CheckEvery: time.Hour}))
	try(t, err)
	s := &script{t: t}
	f.After(0, "sync")
	for range 3 {
		if err := s.append(l); !errors.Is(err, audit.ErrFailed) {
			t.Errorf("after a failed sync: %v, want ErrFailed", err)
		}
	}
	if !l.Failing() {
		t.Error("Failing() = false after a failed sync")
	}
	try(t, l.Close())
}
