package query_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
)

// As TestSubjectsModel, with PostgreSQL.
func TestSubjectsModelPostgres(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	db, err := pgstore.Open(t.Context(), pgstore.Options{DSN: server.DSN(), Single: true})
	try(t, err)
	t.Cleanup(func() { try(t, db.Close()) })
	checkSubjects(t, 3, func(string) wornStore { return db })
}
