package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// followScalingPage follows docs/scaling.md: its commands, in their order, set up a primary and two
// standbys with TLS and quorum commit, move a directory's readings there, and start a server that
// connects with a password and verifies the certificate. The databases' addresses and the paths are
// replaced, and nothing else.
//
// Seen to fail with these left out of the page: --pwprompt, sslrootcert, passfile, ssl = on,
// synchronous_standby_names. Seen to fail with certificates for other names.
func followScalingPage(t *testing.T) {
	blocks := pageBlocks(t, "scaling.md", 8)
	page, err := os.ReadFile("../../docs/scaling.md")
	try(t, err)
	var inPage strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		inPage.WriteString(block[1])
	}
	const sql = "../../internal/storage/pgstore/testdata/scaling.sql"
	if tested, err := os.ReadFile(sql); err != nil || inPage.String() != string(tested) {
		t.Errorf("%s, which tests run, is not the SQL of the page, one block after the other: %v", sql, err)
	}
	certificates, settings, role, files, serve, look, move, accept := blocks[0], blocks[1], blocks[2], blocks[3],
		blocks[4], blocks[5], blocks[6], blocks[7]
	primary := pgtest.Start(t, "fsync=off")
	primary.SetRules(t, "local all all trust\nhost replication all 127.0.0.1/32 trust\n")
	databases := []*pgtest.Server{primary, primary.Standby(t, "db2", "fsync=off"), primary.Standby(t, "db3", "fsync=off")}
	var addrs []string
	for _, db := range databases {
		addrs = append(addrs, db.Addr())
	}
	r := newReader(t)
	home := filepath.Join(r.dir, "home")
	here := strings.NewReplacer("/var/lib/pulsegate", home, "@db1,db2,db3/", "@"+strings.Join(addrs, ",")+"/", "DNS:%s",
		"IP:127.0.0.1")
	r.run("mkdir home")
	r.follow("pulsegate serve --data home/pulsegate-data\n")
	const reading = `{"device":"bed-7","time":"2026-11-21T10:00:00Z","spo2_pct":97.5}`
	r.run("curl -d '" + reading + "' http://127.0.0.1:8080/v1/readings")

	r.follow(here.Replace(certificates))
	for i, name := range []string{"db1", "db2", "db3"} {
		for _, file := range []string{name + ".pem", name + ".key"} {
			content, err := os.ReadFile(filepath.Join(r.dir, file))
			try(t, err)
			databases[i].Put(t, file, content)
		}
		databases[i].Shell(t, strings.Replace(settings, "db=db1 ", "db="+name+" ", 1), "")
	}
	r.shown.Reset()
	r.shown.WriteString(primary.Shell(t, role, "the-password\nthe-password\n"))
	r.want(" db2              | quorum\n", " db3              | quorum\n")
	r.follow(here.Replace(files))
	r.restart(func() {
		r.follow(here.Replace(move))
		r.want("ok devices=1 readings=1 copied=1 ")
	}, strings.TrimSpace(here.Replace(serve)))
	r.follow(look)
	r.want(`"status":"ready"`, "\npulsegate_postgres_standbys_in_quorum 2\n", " missing=0 ")
	r.run("curl -d '" + reading + "' http://127.0.0.1:8080/v1/readings")
	r.want("duplicate")
	r.run(strings.TrimSpace(here.Replace(accept)) + " --yes")
	r.want("\naccepted\n")
	connections := primary.Shell(t,
		`psql -Atc "SELECT DISTINCT usename, ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name `+
			`= 'pulsegate'"`, "")
	if connections != "pulsegate|t\n" {
		t.Errorf("the server's connections are of %q, want the role's, with TLS", connections)
	}
	r.stop()
	// The server trusts this CA, and no other.
	r.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj '/CN=Other CA' -keyout " +
		"other.key -out home/db-ca.pem")
	out, err := r.shell(t.Context(), here.Replace(serve)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "certificate signed by unknown authority") {
		t.Errorf("with another CA: %v\n%s", err, out)
	}
}
