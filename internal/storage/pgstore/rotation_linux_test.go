package pgstore_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

// TestRotation replaces the password, the database's certificate and its CA while a store is open: the store goes on when its files have the new
// ones, and logs why it cannot until then, also when the reason changes.
func TestRotation(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, fast...)
	dir := strings.TrimSpace(server.Shell(t, "pwd", ""))
	files := t.TempDir()
	caFile, passFile := filepath.Join(files, "ca.pem"), filepath.Join(files, "pgpass")
	password := func(word string) { certtest.Write(t, passFile, []byte("*:*:*:rotating:"+word+"\n")) }
	certify := func(name string) (ca []byte) {
		authority := certtest.New(name)
		pair := authority.Server(1)
		server.Put(t, "server.pem", pair.Cert)
		server.Put(t, "server.key", pair.Key)
		return authority.PEM
	}
	certtest.Write(t, caFile, certify("first"))
	password("first")
	for _, sql := range []string{
		"CREATE ROLE rotating LOGIN PASSWORD 'first'", "GRANT CREATE ON DATABASE postgres TO rotating",
		"ALTER SYSTEM SET ssl_cert_file = '" + dir + "/server.pem'", "ALTER SYSTEM SET ssl_key_file = '" + dir + "/server.key'", "ALTER SYSTEM SET ssl = on",
	} {
		server.Execute(t, sql)
	}
	server.SetRules(t, "hostssl all rotating all scram-sha-256\nhost all "+pgtest.User+" all trust\n")

	o := options(server)
	o.DSN = fmt.Sprintf("postgres://rotating@%s/postgres?sslmode=verify-ca&sslrootcert=%s&passfile=%s", server.Addr(), caFile, passFile)
	o.Timeout = 2 * time.Second
	var log logBuffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, o)
	mustStore(t, s, reading("d", 1, 1))

	ca := certify("second")
	server.Execute(t, "ALTER ROLE rotating PASSWORD 'second'")
	server.Execute(t, "SELECT pg_reload_conf()")
	polltest.Until(t, "the store refuses the certificate", func() bool {
		server.Execute(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotating'")
		err := s.Ready()
		return err != nil && strings.Contains(err.Error(), "unknown authority")
	})
	certtest.Write(t, caFile, ca)
	polltest.Until(t, "the database refuses the password", func() bool { return log.contains("password authentication failed") })
	password("second")
	mustStore(t, s, reading("d", 2, 2))
	mustHave(t, s, "d", 1, 2)
	polltest.Until(t, "the store is ready", func() bool { return s.Ready() == nil })
}
