package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// TestPostgres runs one small round and writes the results.
func TestPostgres(t *testing.T) {
	t.Parallel()
	if _, err := pgtest.Programs(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	needWrk(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // PostgreSQL's user needs search permission
		t.Fatal(err)
	}
	_, text := runResults(t, []string{"postgres"}, "postgres", "--rounds=1", "--seconds=1", "--connections=1",
		"--warm-up=0s", "--rows=12000,15000", "--readings=2000", "--programs="+built(t), "--dir="+dir)
	for _, want := range []string{
		postgresInsert, postgresOwnDir, postgresSingle, postgresBatches, postgresStandbys, postgresNodes,
		intoTable(12_000), intoTable(15_000),
	} {
		if !strings.Contains(text, "\n| "+want+" | ") {
			t.Errorf("no figures of %s:\n%s", want, text)
		}
	}
}
