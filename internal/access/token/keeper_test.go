package token_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// The audit log has a record of each change, and of each failure of a recorded change.
func TestKeeper(t *testing.T) {
	dir := t.TempDir()
	log, err := audit.Open(t.Context(), filepath.Join(dir, "audit"), audit.Options{})
	try(t, err)
	defer log.Close()
	keeper := &token.Keeper{Path: filepath.Join(dir, "tokens"), Audit: log, Actor: "uid 7"}
	recorded := func(want ...string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "audit"))
		try(t, err)
		var got []string
		for line := range strings.Lines(string(text)) {
			_, rest, _ := strings.Cut(line, `"event":"`)
			event, rest, _ := strings.Cut(rest, `"`)
			if strings.HasPrefix(event, "token.") {
				if !strings.Contains(rest, `"gateway":"bed-7"`) || !strings.Contains(rest, `"actor":"uid 7"`) {
					t.Errorf("the record lacks the gateway or the actor: %s", line)
				}
				got = append(got, event)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("the log has %v, want %v", got, want)
		}
	}
	keep := func(string) error { return nil }
	first, err := keeper.Create(t.Context(), writer(t, "bed-7"), epoch, keep)
	try(t, err)
	recorded("token.created")

	// A token that was not handed out is revoked.
	errGone := errors.New("no reader")
	lost, err := keeper.Create(t.Context(), writer(t, "bed-7"), epoch, func(string) error { return errGone })
	if !errors.Is(err, errGone) {
		t.Errorf("got %v, want %v", err, errGone)
	}
	checkFile(t, keeper.Path, first)
	recorded("token.created", "token.created", "token.revoked")

	// If one ID does not exist, no token is revoked.
	all := func(*token.Token) bool { return true }
	if _, err := keeper.Revoke(t.Context(), all, first.ID(), lost.ID()); !errors.Is(err, token.ErrNoMatch) {
		t.Errorf("got %v, want ErrNoMatch", err)
	}
	checkFile(t, keeper.Path, first)
	recorded("token.created", "token.created", "token.revoked")

	// The file cannot be replaced.
	try(t, os.MkdirAll(keeper.Path+".tmp/full", 0o700))
	if _, err := keeper.Revoke(t.Context(), all, first.ID()); err == nil {
		t.Error("no error from a file that cannot be replaced")
	}
	checkFile(t, keeper.Path, first)
	recorded("token.created", "token.created", "token.revoked", "token.revoked", "token.change-failed")
}
