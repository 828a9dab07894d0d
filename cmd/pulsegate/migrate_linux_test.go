package main_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// TestPostgresScripts runs the scripts that need PostgreSQL. $POSTGRES is the address of its
// database, and $MOVER that for a role whose password is in the file pgpass.
func TestPostgresScripts(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	server.Execute(t, "CREATE ROLE mover LOGIN PASSWORD 'hard-to-guess'")
	server.Execute(t, "CREATE DATABASE moved OWNER mover")
	server.SetRules(t, "host all mover all scram-sha-256\nhost all all all trust\n")
	mover := strings.NewReplacer(pgtest.User+"@", "mover@", "/postgres?", "/moved?").Replace(server.DSN())
	runScripts(t, "testdata/postgres", map[string]string{"POSTGRES": server.DSN(), "MOVER": mover})
}
