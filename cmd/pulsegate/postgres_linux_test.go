package main_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// TestMetricsPagePostgres scrapes a server whose store is PostgreSQL.
func TestMetricsPagePostgres(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t, "fsync=off")
	checkMetricsPage(t, func(name string) bool { return strings.HasPrefix(name, "pulsegate_postgres_") },
		"--admin-addr=127.0.0.1:0", "--store="+db.DSN(), "--postgres-single")
}
