package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// An interrupted move says how it is continued, and leaves no target that a server would accept.
func TestMigrateInterrupted(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	db, err := pebblestore.Open(from, pebblestore.Options{})
	try(t, err)
	try(t, db.Close())
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	std := stdio{in: strings.NewReader(""), out: &out, err: &errs}
	if code := run(interrupted, []string{"migrate", "--from", from, "--to", to}, std); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if text := errs.String(); !strings.Contains(text, "context canceled\nRepeat the command to continue") {
		t.Errorf("it printed %q", text)
	}
	if matches, _ := filepath.Glob(to); matches != nil {
		t.Errorf("it made %s", matches)
	}
}
