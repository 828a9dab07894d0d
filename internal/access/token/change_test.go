package token_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

func TestCreateAndRevoke(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	spec := token.Token{
		Gateway: name(t, "bed-7"),
		Rights:  token.Write | token.Read,
		Devices: name(t, "ppg-"),
		Expires: epoch.Add(time.Hour + 5*time.Millisecond),
		Limit:   token.Limit{PerSecond: 10, Burst: 20},
	}
	text, made := create(t, path, spec)
	digest, err := token.DigestOf(text)
	try(t, err)
	want := token.Token{
		Digest: digest, Gateway: spec.Gateway, Rights: spec.Rights, Devices: spec.Devices,
		Created: epoch, Expires: epoch.Add(time.Hour), Limit: spec.Limit,
	}
	if made != want {
		t.Errorf("Create returned %+v, want %+v", made, want)
	}
	_, second := create(t, path, writer(t, "bed-8"))
	checkFile(t, path, want, second)
	file, err := os.ReadFile(path)
	try(t, err)
	if strings.Contains(string(file), text[len(token.Prefix):]) {
		t.Error("the file contains the token itself")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}

	keeper := token.Keeper{Path: path}
	none := func(*token.Token) bool { return false }
	if got, err := keeper.Revoke(t.Context(), none); !errors.Is(err, token.ErrNoMatch) || got != nil {
		t.Errorf("nothing to revoke: got %v, %v; want ErrNoMatch", got, err)
	}
	first := func(t *token.Token) bool { return t.ID() == want.ID() }
	got, err := keeper.Revoke(t.Context(), first)
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("Revoke = %+v, %v", got, err)
	}
	checkFile(t, path, second)
	all := func(*token.Token) bool { return true }
	if got, err := keeper.Revoke(t.Context(), all); err != nil || len(got) != 1 {
		t.Errorf("Revoke of the last token = %v, %v", got, err)
	}
	checkFile(t, path)
}

func checkFile(t *testing.T, path string, want ...token.Token) {
	t.Helper()
	got, err := token.ReadFile(path)
	try(t, err)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the file has %v, want %v", got, want)
	}
}

func TestCreateRejects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for _, tt := range []struct {
		name string
		edit func(*token.Token)
	}{
		{"no gateway", func(s *token.Token) { s.Gateway = name(t, "") }},
		{"no rights", func(s *token.Token) { s.Rights = 0 }},
		{"unknown rights", func(s *token.Token) { s.Rights = token.Relay << 1 }},
		{"a right that is never named", func(s *token.Token) { s.Rights = token.ReadSubjects }},
		{"relay without write", func(s *token.Token) { s.Rights = token.Relay }},
		{"admin with devices", func(s *token.Token) { s.Rights, s.Devices = token.Admin, name(t, "ppg-") }},
		{"expired", func(s *token.Token) { s.Expires = epoch }},
		{"half a limit", func(s *token.Token) { s.Limit.PerSecond = 1 }},
		{"a limit below 0", func(s *token.Token) { s.Limit = token.Limit{PerSecond: -1, Burst: -1} }},
	} {
		spec := writer(t, "bed-7")
		tt.edit(&spec)
		keeper := token.Keeper{Path: path}
		if _, err := keeper.Create(t.Context(), spec, epoch, nil); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", tt.name, err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a rejected spec created a file: %v", err)
	}
}

// After an error the file is unchanged, and no token is handed out.
func TestChangeFails(t *testing.T) {
	closed, err := audit.Open(t.Context(), filepath.Join(t.TempDir(), "audit"), audit.Options{})
	try(t, err)
	try(t, closed.Close())
	for _, tt := range []struct {
		name  string
		log   *audit.Log
		setUp func(t *testing.T, path string)
		want  error // nil: any
	}{
		{"the change cannot be recorded", closed, func(*testing.T, string) {}, os.ErrClosed},
		{"the new file cannot be created", nil, func(t *testing.T, path string) {
			try(t, os.MkdirAll(path+".tmp/full", 0o700))
		}, nil},
		{"the lock is a link", nil, func(t *testing.T, path string) {
			try(t, os.Remove(path+".lock"), os.Symlink("elsewhere", path+".lock"))
		}, nil},
		{"the file is damaged", nil, func(t *testing.T, path string) {
			try(t, os.WriteFile(path, []byte("pulsegate-tokens 1\n"), 0o600))
		}, token.ErrFile},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			create(t, path, writer(t, "bed-7"))
			tt.setUp(t, path)
			was, err := os.ReadFile(path)
			try(t, err)
			handedOut := false
			keeper := token.Keeper{Path: path, Audit: tt.log}
			made, err := keeper.Create(t.Context(), writer(t, "bed-8"), epoch,
				func(string) error { handedOut = true; return nil })
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || errors.Is(err, token.ErrUncertain) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if handedOut || made != (token.Token{}) {
				t.Error("a token was handed out")
			}
			if is, err := os.ReadFile(path); err != nil || string(is) != string(was) {
				t.Errorf("the file was changed, %v", err)
			}
		})
	}
}

// Concurrent changes are serialized, so none is lost. Without the lock this test fails:
// the later of two writers drops the token of the earlier one.
func TestConcurrentChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	keeper := token.Keeper{Path: path}
	const writers, each = 8, 5
	var mu sync.Mutex
	want := make(map[token.ID]bool)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				made, err := keeper.Create(t.Context(), writer(t, fmt.Sprintf("bed-%d", w)), epoch,
					func(string) error { return nil })
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				want[made.ID()] = true
				mu.Unlock()
				if i%2 == 1 {
					id := made.ID()
					if _, err := keeper.Revoke(t.Context(), func(t *token.Token) bool { return t.ID() == id }); err != nil {
						t.Error(err)
					}
					mu.Lock()
					delete(want, id)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	got, err := token.ReadFile(path)
	try(t, err)
	for i := range got {
		if !want[got[i].ID()] {
			t.Errorf("%v is in the file and should not be", got[i].ID())
		}
		delete(want, got[i].ID())
	}
	if len(want) > 0 {
		t.Errorf("%d tokens were lost", len(want))
	}
}

// A symbolic link stays a link.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "tokens"), filepath.Join(dir, "link")
	create(t, path, writer(t, "bed-7"))
	try(t, os.Symlink(path, link))
	create(t, link, writer(t, "bed-8"))
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if got, err := token.ReadFile(path); err != nil || len(got) != 2 {
		t.Errorf("%d tokens, %v; want 2", len(got), err)
	}
}
