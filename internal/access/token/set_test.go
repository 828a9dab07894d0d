package token_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

// open opens a Set that does not check its file periodically, unless opt.Every is set.
func open(tb testing.TB, path string, opt token.Options) *token.Set {
	tb.Helper()
	if opt.Every == 0 {
		opt.Every = -1
	}
	s, err := token.Open(path, opt)
	try(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// find looks up the token in the value of an Authorization header.
func find(s *token.Set, value string, unixMs int64) (*token.Principal, error) {
	digest, err := token.DigestOfHeader(value)
	if err != nil {
		return nil, err
	}
	return s.Lookup(&digest, unixMs)
}

func lookup(tb testing.TB, s *token.Set, text string) *token.Principal {
	tb.Helper()
	g, err := find(s, "Bearer "+text, epoch.UnixMilli())
	try(tb, err)
	return g
}

func TestLookup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	expiring := writer(t, "bed-7")
	expiring.Expires = epoch.Add(time.Hour)
	text, made := create(t, path, expiring)
	other, otherMade := create(t, path, token.Token{Gateway: name(t, "ward"), Rights: token.Read})
	s := open(t, path, token.Options{})
	for _, tt := range []struct {
		name   string
		value  string
		at     time.Time
		err    error
		id     token.ID
		holder string
		rights token.Rights
	}{
		{"a writer", "Bearer " + text, epoch, nil, made.ID(), "bed-7", token.Write},
		{"a reader", "Bearer " + other, epoch, nil, otherMade.ID(), "ward", token.Read},
		{"a moment before the end", "Bearer " + text, expiring.Expires.Add(-time.Millisecond), nil, made.ID(), "bed-7",
			token.Write},
		{"at the end", "Bearer " + text, expiring.Expires, token.ErrExpired, token.ID{}, "", 0},
		{"without an end", "Bearer " + other, epoch.AddDate(500, 0, 0), nil, otherMade.ID(), "ward", token.Read},
		{"unknown", "Bearer " + sample, epoch, token.ErrUnknown, token.ID{}, "", 0},
		{"none", "", epoch, token.ErrMissing, token.ID{}, "", 0},
		{"not a token", "Bearer " + text[1:], epoch, token.ErrMalformed, token.ID{}, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := find(s, tt.value, tt.at.UnixMilli())
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if g.ID() != tt.id || g.Gateway() != name(t, tt.holder) {
				t.Errorf("got %v of %q, want %v of %q", g.ID(), g.Gateway(), tt.id, tt.holder)
			}
			device := name(t, "ppg-1")
			for r := token.Rights(1); r < token.Relay<<1; r++ {
				if got, want := g.Has(r), r == tt.rights; got != want {
					t.Errorf("has %v: %v, want %v", r, got, want)
				}
			}
			allowed := tt.err == nil
			if ok, _ := g.Allow(1, tt.at); ok != allowed || g.Covers(&device) != allowed || g.CoversAll() != allowed {
				t.Errorf("Allow %v, Covers %v, CoversAll %v; want %v", ok, g.Covers(&device), g.CoversAll(), allowed)
			}
		})
	}
}

// A token is unknown if only its ID matches, and not its whole digest.
func TestLookupComparesAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	digest, err := token.DigestOf(sample)
	try(t, err)
	for i := len(token.ID{}); i < len(digest); i++ {
		near := digest
		near[i] ^= 1
		file := token.AppendFile(nil,
			[]token.Token{{Digest: near, Gateway: name(t, "g"), Rights: token.Write, Created: epoch}})
		try(t, os.WriteFile(path, file, 0o600))
		if g, err := find(open(t, path, token.Options{}), "Bearer "+sample, 0); !errors.Is(err, token.ErrUnknown) ||
			g.Has(token.Write) {
			t.Errorf("a digest that differs in byte %d only: %v", i, err)
		}
	}
}

// changes collects what a Set passes to OnChange.
type changes struct {
	mu  sync.Mutex
	all []string
}

func (c *changes) add(ch token.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := "ok"
	switch {
	case errors.Is(ch.Err, token.ErrFile):
		why = "file"
	case errors.Is(ch.Err, token.ErrWritable):
		why = "writable"
	case errors.Is(ch.Err, os.ErrNotExist):
		why = "missing"
	case ch.Err != nil:
		why = ch.Err.Error()
	}
	c.all = append(c.all, fmt.Sprintf("%s %d +%d -%d", why, ch.Tokens, len(ch.Added), len(ch.Removed)))
}

func (c *changes) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return fmt.Sprint(all)
}

// A change of the file takes effect within a second, without a restart. A file that
// cannot be used changes nothing and is reported once.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens")
		first, firstMade := create(t, path, writer(t, "bed-7"))
		var reported changes
		s, err := token.Open(path, token.Options{OnChange: reported.add})
		try(t, err)
		defer s.Close()
		next := func(want string) {
			t.Helper()
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			if got := reported.take(); got != want {
				t.Errorf("reported %s, want %s", got, want)
			}
		}
		next("[]")
		second, _ := create(t, path, writer(t, "bed-8"))
		next("[ok 2 +1 -0]")
		lookup(t, s, first)
		lookup(t, s, second)
		keeper := token.Keeper{Path: path}
		if _, err := keeper.Revoke(t.Context(), func(t *token.Token) bool { return t.ID() == firstMade.ID() }); err != nil {
			t.Fatal(err)
		}
		next("[ok 1 +0 -1]")
		if _, err := find(s, "Bearer "+first, 0); !errors.Is(err, token.ErrUnknown) {
			t.Errorf("a revoked token: %v, want ErrUnknown", err)
		}
		lookup(t, s, second)

		good, err := os.ReadFile(path)
		try(t, err)
		for _, step := range []struct {
			name string
			act  func() error
			want string
		}{
			{"cut off", func() error { return os.WriteFile(path, good[:len(good)-1], 0o600) }, "[file 1 +0 -0]"},
			{"the same again", func() error { return os.Chtimes(path, epoch, epoch) }, "[]"},
			{"good again", func() error { return os.WriteFile(path, good, 0o600) }, "[ok 1 +0 -0]"},
			{"writable by all", func() error { return os.Chmod(path, 0o666) }, "[writable 1 +0 -0]"},
			{"removed", func() error { return os.Remove(path) }, "[missing 1 +0 -0]"},
			{"back", func() error { return os.WriteFile(path, good, 0o600) }, "[ok 1 +0 -0]"},
			{"touched", func() error { return os.Chtimes(path, epoch, epoch) }, "[]"},
		} {
			try(t, step.act())
			next(step.want)
			if _, err := find(s, "Bearer "+second, 0); err != nil || s.Len() != 1 {
				t.Errorf("%s: %v, %d tokens; want the token to be in force", step.name, err, s.Len())
			}
		}
	})
}

// A reload refills no bucket, and each token has a bucket of its own.
func TestLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	own := writer(t, "bed-7")
	own.Limit = token.Limit{PerSecond: 1, Burst: 1}
	first, _ := create(t, path, own)
	second, _ := create(t, path, writer(t, "bed-8"))
	s := open(t, path, token.Options{DefaultLimit: token.Limit{PerSecond: 1, Burst: 2}})
	want := func(text string, n int, want bool) {
		t.Helper()
		if ok, wait := lookup(t, s, text).Allow(n, epoch); ok != want || (wait > 0) == want {
			t.Errorf("Allow(%d) = %v, %v; want %v", n, ok, wait, want)
		}
	}
	want(first, 1, true)
	want(first, 1, false)
	want(second, 1, true)
	third, _ := create(t, path, writer(t, "bed-9"))
	try(t, s.Reload())
	want(first, 1, false)
	want(second, 1, true)
	want(second, 0, false)
	want(third, 2, true)
	want(third, 1, false)

	// A token that is altered but keeps its limit keeps its bucket too.
	all, err := token.ReadFile(path)
	try(t, err)
	all[0].Gateway = name(t, "bed-1")
	all[1].Limit = token.Limit{PerSecond: 1, Burst: 3}
	try(t, os.WriteFile(path, token.AppendFile(nil, all), 0o600))
	try(t, s.Reload())
	if got := lookup(t, s, first).Gateway(); got != name(t, "bed-1") {
		t.Errorf("the altered token is of %q, want bed-1", got)
	}
	want(first, 1, false)
	want(second, 3, true)
	want(second, 1, false)

	unlimited := open(t, path, token.Options{})
	if ok, _ := lookup(t, unlimited, second).Allow(1<<40, epoch); !ok {
		t.Error("a token without a limit was limited")
	}
	if _, err := token.Open(path, token.Options{DefaultLimit: token.Limit{PerSecond: 1}}); err == nil {
		t.Error("half a default limit was accepted")
	}
}

var try = polltest.Try
