package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

var epoch = time.Date(2026, 11, 21, 10, 0, 0, 123_000_000, time.UTC)

func name(tb testing.TB, text string) vitals.Name {
	tb.Helper()
	n, err := vitals.ParseName(text)
	try(tb, err)
	return n
}

func open(tb testing.TB, path string, opt audit.Options) *audit.Log {
	tb.Helper()
	if opt.Now == nil {
		opt.Now = func() time.Time { return epoch }
	}
	l, err := audit.Open(tb.Context(), path, opt)
	try(tb, err)
	tb.Cleanup(func() { _ = l.Close() }) // some tests have closed it already
	return l
}

// reports collects the calls of OnTrouble, which come from a goroutine of the log.
type reports struct {
	mu   sync.Mutex
	errs []error
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// all returns the reports so far.
func (r *reports) all() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

func appendAll(tb testing.TB, l *audit.Log, records ...audit.Record) {
	tb.Helper()
	for _, r := range records {
		try(tb, l.Append(tb.Context(), r))
	}
}

func read(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(path)
	try(tb, err)
	return string(text)
}

// events returns the events of a file, with their counts.
func events(tb testing.TB, path string) string {
	tb.Helper()
	var all []string
	for line := range strings.Lines(read(tb, path)) {
		var r struct {
			Event string
			Count int
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			tb.Fatalf("%v: %s", err, line)
		}
		if r.Count != 0 {
			r.Event += fmt.Sprintf(":%d", r.Count)
		}
		all = append(all, r.Event)
	}
	return strings.Join(all, " ")
}

func verify(tb testing.TB, path string) audit.File {
	tb.Helper()
	r, err := audit.Verify(strings.NewReader(read(tb, path)))
	if err != nil {
		tb.Error(err)
	}
	return r
}

// TestLines checks the format of the lines. The chains were computed by another
// program.
func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	l := open(t, path, audit.Options{})
	appendAll(t, l,
		audit.Record{Event: audit.TokenCreated, Token: "afd37bdffa6b", Gateway: name(t, "bed-7"), Rights: "write,read",
			Device: name(t, "ppg-"), Expires: epoch.Add(time.Hour), Actor: "anna (uid 1000)"},
		audit.Record{Event: audit.Exported, Token: "afd37bdffa6b", Device: name(t, "ppg-1"), From: time.UnixMilli(0),
			To: epoch, Count: 12, Peer: netip.MustParseAddr("::ffff:192.0.2.7")},
		audit.Record{Event: audit.Erased, Device: name(t, "ppg-1"), Count: 1936},
	)
	try(t, l.Close())
	const want = `{"seq":1,"time":"2026-11-21T10:00:00.123Z","event":"log.started","prev":"0000000000000000000000000000000000000000000000000000000000000000","chain":"C1"}
{"seq":2,"time":"2026-11-21T10:00:00.123Z","event":"token.created","token":"afd37bdffa6b","gateway":"bed-7","rights":"write,read","device":"ppg-","expires":"2026-11-21T11:00:00.123Z","actor":"anna (uid 1000)","chain":"C2"}
{"seq":3,"time":"2026-11-21T10:00:00.123Z","event":"exported","token":"afd37bdffa6b","device":"ppg-1","from":"1970-01-01T00:00:00.000Z","to":"2026-11-21T10:00:00.123Z","count":12,"peer":"192.0.2.7","chain":"C3"}
{"seq":4,"time":"2026-11-21T10:00:00.123Z","event":"erased","device":"ppg-1","count":1936,"chain":"C4"}
`
	got := read(t, path)
	for line := range strings.Lines(got) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	full := want
	for i, c := range []string{"C1", "C2", "C3", "C4"} {
		full = strings.Replace(full, c, chains[i], 1)
	}
	if got != full {
		t.Errorf("got\n%s\nwant\n%s", got, full)
	}
	if r := verify(t, path); r.Records != 4 || r.FirstSeq != 1 || r.LastSeq != 4 || r.TornBytes != 0 ||
		r.Chain != chains[3] {
		t.Errorf("Verify: %+v", r)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if err := l.Append(t.Context(), audit.Record{Event: audit.Erased}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

// Records that could break the format, or that callers must not write, are rejected.
func TestBadRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	l := open(t, path, audit.Options{})
	for _, r := range []audit.Record{
		{}, {Event: "a\nb"}, {Event: audit.LogStarted}, {Event: audit.LogRecovered},
		{Event: audit.Erased, Actor: "a\nb"}, {Event: audit.Erased, Actor: `a"b`}, {Event: audit.Erased, Token: `a\b`},
		{Event: audit.Erased, Rights: strings.Repeat("x", 65)}, {Event: audit.AuthRefused, Reason: 200},
	} {
		if err := l.Append(t.Context(), r); err == nil {
			t.Errorf("%+v was written", r)
		}
	}
	if got, want := events(t, path), "log.started"; got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
}

// A log is continued at its end. A file that a crash has cut off at any byte is
// repaired and loses nothing but its last record.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	l := open(t, whole, audit.Options{})
	appendAll(t, l, audit.Record{Event: audit.Erased, Count: 1}, audit.Record{Event: audit.Erased, Count: 2})
	try(t, l.Close())
	text := read(t, whole)
	last := strings.LastIndex(text[:len(text)-1], "\n") + 1
	const kept = "log.started erased:1"
	for cut := last; cut <= len(text); cut++ {
		for _, tail := range []string{"", "\x00\x00\x00", "\n"} {
			path := filepath.Join(dir, "cut")
			try(t, os.WriteFile(path, []byte(text[:cut]+tail), 0o600))
			l := open(t, path, audit.Options{})
			appendAll(t, l, audit.Record{Event: audit.Erased, Count: 3})
			try(t, l.Close())
			torn := cut - last + len(tail)
			want := kept
			if cut == len(text) || cut == len(text)-1 && tail == "\n" {
				want += " erased:2"
				torn = cut + len(tail) - len(text)
			}
			if torn > 0 {
				want += fmt.Sprintf(" log.recovered:%d", torn)
			}
			if got := events(t, path); got != want+" erased:3" {
				t.Errorf("cut at %d, then %q: got %s, want %s erased:3", cut, tail, got, want)
			}
			verify(t, path)
		}
	}
}

// Every flipped bit, removed line and added line is detected, except damage to the very
// last record that looks like a crash.
func TestTampering(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit")
	l := open(t, path, audit.Options{})
	for i := range 5 {
		appendAll(t, l, audit.Record{Event: audit.Erased, Count: int64(i + 1)})
	}
	try(t, l.Close())
	text := []byte(read(t, path))
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines = lines[:len(lines)-1]
	last := len(text) - len(lines[5])
	rejected := func(what string, changed []byte) {
		t.Helper()
		if r, err := audit.Verify(bytes.NewReader(changed)); !errors.Is(err, audit.ErrCorrupt) {
			t.Errorf("%s: Verify = %+v, %v; want ErrCorrupt", what, r, err)
		}
		other := filepath.Join(dir, "changed")
		try(t, os.WriteFile(other, changed, 0o600))
		if l, err := audit.Open(t.Context(), other, audit.Options{}); !errors.Is(err, audit.ErrCorrupt) {
			t.Errorf("%s: Open = %v; want ErrCorrupt", what, err)
			l.Close()
		}
		if got := read(t, other); got != string(changed) {
			t.Errorf("%s: the file was changed", what)
		}
	}
	for i := 0; i < last; i += 3 {
		changed := bytes.Clone(text)
		changed[i] ^= 1 << (i % 8)
		rejected(fmt.Sprintf("byte %d", i), changed)
	}
	for i := range 5 {
		rejected(fmt.Sprintf("without line %d", i+1), bytes.Join(append(lines[:i:i], lines[i+1:]...), nil))
		rejected(fmt.Sprintf("line %d twice", i+1), bytes.Join(append(lines[:i+1:i+1], lines[i:]...), nil))
	}
	rejected("the last count", bytes.Replace(text, []byte(`"count":5`), []byte(`"count":6`), 1))
	rejected("something else", []byte("127.0.0.1 localhost\n"))
	rejected("too many bytes after the end", append(bytes.Clone(text), make([]byte, 70<<10)...))
	changed := bytes.Clone(text)
	changed[last] = 'x'
	if r, err := audit.Verify(bytes.NewReader(changed)); err != nil || r.TornBytes != int64(len(lines[5])) ||
		r.Records != 5 {
		t.Errorf("the last line is invalid: %+v, %v; want it torn", r, err)
	}
}

// The log is bounded. Its files verify one by one and as a sequence.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit")
	l := open(t, path, audit.Options{MaxBytes: 1, Keep: 2}) // 64 KiB is the minimum
	r := audit.Record{Event: audit.Erased, Actor: strings.Repeat("x", 64), Device: name(t, strings.Repeat("d", 64))}
	for range 800 {
		appendAll(t, l, r)
	}
	try(t, l.Close())
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 4 { // including the lock
		t.Errorf("files %v, %v; want the file in use, two older ones and the lock", files, err)
	}
	var before audit.File
	for _, file := range []string{path + ".2", path + ".1", path} {
		info, err := os.Stat(file)
		if err != nil || info.Size() > 64<<10 {
			t.Errorf("%s: %v bytes, %v", file, info.Size(), err)
		}
		report := verify(t, file)
		if before.Records > 0 && (report.Prev != before.Chain || report.FirstSeq != before.LastSeq+1) {
			t.Errorf("%s begins with %d after %s, want %d after %s", file, report.FirstSeq, report.Prev, before.LastSeq+1,
				before.Chain)
		}
		before = report
	}

	// A crash right after the file in use was renamed.
	try(t, os.Rename(path, path+".1"))
	open(t, path, audit.Options{})
	if report := verify(t, path); report.Prev != before.Chain || report.FirstSeq != before.LastSeq+1 {
		t.Errorf("after a crash: begins with %d after %s, want %d after %s", report.FirstSeq, report.Prev, before.LastSeq+1,
			before.Chain)
	}
}

func FuzzVerify(f *testing.F) {
	path := filepath.Join(f.TempDir(), "audit")
	l := open(f, path, audit.Options{})
	appendAll(f, l, audit.Record{Event: audit.Erased, Count: 1}, audit.Record{Event: audit.Erased, Count: 2})
	try(f, l.Close())
	text := []byte(read(f, path))
	f.Add(text)
	f.Add(text[:len(text)-1])
	f.Add(bytes.Repeat([]byte("x"), 3000))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := audit.Verify(bytes.NewReader(text))
		if err != nil {
			if !errors.Is(err, audit.ErrCorrupt) {
				t.Fatalf("%v, want ErrCorrupt", err)
			}
			return
		}
		if r.TornBytes < 0 || r.TornBytes > int64(len(text)) {
			t.Fatalf("%d torn of %d", r.TornBytes, len(text))
		}
		// Without the torn part the file is complete.
		again, err := audit.Verify(bytes.NewReader(text[:len(text)-int(r.TornBytes)]))
		r.TornBytes = 0
		if err != nil || again != r {
			t.Fatalf("without the torn part: %+v, %v; want %+v", again, err, r)
		}
	})
}

var try = polltest.Try
