package pgstore_test

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/big"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
)

// TestRotation replaces the password, the database's certificate and its CA while a store is open: the store goes on
// when its files have the new ones, and logs why it cannot until then, also when the reason changes.
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
		"ALTER SYSTEM SET ssl_cert_file = '" + dir + "/server.pem'", "ALTER SYSTEM SET ssl_key_file = '" + dir +
			"/server.key'", "ALTER SYSTEM SET ssl = on",
	} {
		server.Execute(t, sql)
	}
	server.SetRules(t, "hostssl all rotating all scram-sha-256\nhost all "+pgtest.User+" all trust\n")

	o := options(server)
	o.DSN = fmt.Sprintf("postgres://rotating@%s/postgres?sslmode=verify-ca&sslrootcert=%s&passfile=%s", server.Addr(),
		caFile, passFile)
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
	polltest.Until(t, "the database refuses the password",
		func() bool { return log.contains("password authentication failed") })
	password("second")
	mustStore(t, s, reading("d", 2, 2))
	mustHave(t, s, "d", 1, 2)
	polltest.Until(t, "the store is ready", func() bool { return s.Ready() == nil })
}

// TestCertificates opens stores whose addresses name certificates in each form: their expiry is reported before a
// connection is made.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	ca := certtest.New("ca")
	clientEnds := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	ca.Issue(&x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: clientEnds}).Write(t, dir, "client")
	root := filepath.Join(dir, "it's a root.pem")
	certtest.Write(t, root, ca.PEM)
	both := pgstore.Certificates{CA: ca.Cert.NotAfter, Client: clientEnds}
	cert, key := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	for _, tt := range []struct {
		name, dsn, env string
		want           pgstore.Certificates
	}{
		{"none", "postgres://u@127.0.0.1:1/d", "", pgstore.Certificates{}},
		{"URL", "postgres://u@127.0.0.1:1/d?sslmode=verify-full&" + "sslrootcert=" + url.PathEscape(root) + "&sslcert=" +
			cert + "&sslkey=" + key, "", both},
		{"keywords", fmt.Sprintf("host=127.0.0.1 port=1 user=u sslrootcert='%s' sslcert=%s sslkey=%s sslmode=verify-ca",
			strings.ReplaceAll(root, "'", `\'`), cert, key), "", both},
		{"environment", "postgres://u@127.0.0.1:1/d?sslmode=require", root, pgstore.Certificates{CA: both.CA}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PGSSLROOTCERT", tt.env)
			var got []pgstore.Certificates
			_, err := pgstore.Open(t.Context(), pgstore.Options{DSN: tt.dsn, Single: true, Timeout: time.Millisecond,
				OnCertificates: func(c pgstore.Certificates) { got = append(got, c) }})
			if err == nil || len(got) != 1 || got[0] != tt.want {
				t.Errorf("got %v and %v, want %v once, and an error", got, err, tt.want)
			}
		})
	}
}
