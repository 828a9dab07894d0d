package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// TestStoreDecisions reports a loss on a server until an operator confirms it, and accepts a restore. Both are
// recorded.
func TestStoreDecisions(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t, "fsync=off")
	bin, dir := program(t), t.TempDir()
	log := filepath.Join(dir, "audit.log")
	run := func(wantCode int, want string, args ...string) {
		t.Helper()
		out, errs, code := output(t, bin, append([]string{"store"}, args...)...)
		if code != wantCode || !strings.Contains(out+errs, want) {
			t.Errorf("pulsegate store %s: exit code %d, %s%s; want %d and %q", strings.Join(args, " "), code, out, errs,
				wantCode, want)
		}
	}
	recorded := func(want string, times int) {
		t.Helper()
		if text, err := os.ReadFile(log); err != nil || strings.Count(string(text), want) != times {
			t.Errorf("the audit log has not %d records with %s: %v\n%s", times, want, err, text)
		}
	}
	store, audit := "--store="+db.DSN(), "--audit="+log
	run(1, "the database has no schema pulsegate", "confirm-loss", "--yes", store, audit)

	p := start(t, bin, filepath.Join(dir, "none"), "--admin-addr=127.0.0.1:0", "--postgres-single", store, audit)
	run(0, "no loss is reported", "confirm-loss", "--yes", store, audit)
	db.Execute(t, "INSERT INTO pulsegate.losses VALUES (1, 1763719200000, 1763719260000, 1763719260000, NULL)")
	readyz := func(want string) {
		t.Helper()
		p.await("readyz is "+want, func() bool { _, text := fetch(t, "GET", p.url("/readyz"), ""); return text == want+"\n" })
	}
	readyz(`{"status":"ready","degraded":["loss"],"details":{"loss":"acknowledged from 2025-11-21T10:00:00Z to ` +
		`2025-11-21T10:01:00Z"}}`)
	run(64, "add --yes", "confirm-loss", store, audit)
	recorded("loss.confirmed", 0)
	run(0, "confirmed from=2025-11-21T10:00:00.000Z to=2025-11-21T10:01:00.000Z", "confirm-loss", "--yes", store, audit)
	recorded(`"event":"loss.confirmed","from":"2025-11-21T10:00:00.000Z","to":"2025-11-21T10:01:00.000Z"`, 1)
	readyz(`{"status":"ready"}`)
	run(0, "no loss is reported", "confirm-loss", "--yes", store, audit)

	run(64, "add --yes", "accept-restore", store, audit)
	recorded("restore.accepted", 0)
	run(0, "No server has stored anything", "accept-restore", "--yes", store, audit)
	if resp, text := fetch(t, "POST", p.url("/v1/readings"),
		`{"device":"d-1","time":1,"heart_rate_bpm":60}`); resp.StatusCode != 200 {
		t.Errorf("a reading is answered %s %s", resp.Status, text)
	}
	for range 2 {
		run(0, "The last transaction in this database is of 20", "accept-restore", "--yes", store, audit)
	}
	recorded(`"event":"restore.accepted","from":"20`, 2)
	run(64, "contains a password", "accept-restore", "--yes", "--store=postgres://a:b@127.0.0.1/c")
	readyz(`{"status":"ready"}`)
}
