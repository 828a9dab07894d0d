package server_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

func TestPostgres(t *testing.T) {
	db := pgtest.Start(t, "fsync=off")
	t.Run("two servers", func(t *testing.T) { testTwoServersOnPostgres(t, db) })
	t.Run("refused", func(t *testing.T) { testPostgresRefused(t, db) })
}

// Two servers share a database: each serves, settles and erases what the other has stored.
func testTwoServersOnPostgres(t *testing.T, db *pgtest.Server) {
	opt := options(t)
	opt.Store, opt.PostgresSingle = db.DSN(), true
	opt.AdminAddr = "127.0.0.1:0"
	second := *opt
	request := func(method, url, body, want string) {
		t.Helper()
		resp, text, err := fetch(method, url, body)
		try(t, err)
		if got := fmt.Sprintf("%d %s", resp.StatusCode, text); !strings.Contains(got, want) {
			t.Errorf("%s %s: answered %s, want %s", method, url, got, want)
		}
	}
	reading := func(ms int64, spo2 string) string {
		return fmt.Sprintf(`{"device":"d","time":%d,"spo2_pct":%s}`, ms, spo2)
	}
	const ms = 1763700000000
	log, err := run(t, opt, func(first string) error {
		_, err := run(t, &second, func(other string) error {
			defer http.DefaultClient.CloseIdleConnections()
			request("GET", first+"/readyz", "", `200`)
			request("POST", first+"/v1/readings", reading(ms, "97"), `200 {"status":"stored"}`)
			request("POST", other+"/v1/readings", reading(ms, "97"), `200 {"status":"duplicate"}`)
			request("POST", other+"/v1/readings", reading(ms, "96"), `409 `)
			request("POST", other+"/v1/readings", "["+reading(ms, "97")+","+reading(ms+1, "98")+"]",
				`200 {"stored":1,"duplicate":1}`)
			request("GET", first+"/v1/devices/d", "", `98`)
			request("GET", first+"/v1/devices", "", `"d"`)
			request("GET", first+"/v1/devices/d/readings?format=ndjson", "", `97`)
			return nil
		})
		return err
	})
	try(t, err)
	admin := regexp.MustCompile(`listening addr=(\S+) listener=admin`)
	if !admin.MatchString(log) || !strings.Contains(log, "synchronous commit") {
		t.Errorf("the log does not describe the store:\n%s", log)
	}
}

// A server whose database has no standbys does not start, unless the options allow it.
func testPostgresRefused(t *testing.T, db *pgtest.Server) {
	opt := options(t)
	opt.Store = db.DSN()
	never := func(string) error { t.Error("the server started"); return nil }
	if _, err := run(t, opt, never); err == nil || !strings.Contains(err.Error(), "synchronous_standby_names") {
		t.Errorf("without standbys: %v", err)
	}
	for flag, edit := range map[string]func(){
		"--min-free-bytes": func() { opt.MinFreeBytes = 1 << 30 },
		"--store":          func() { opt.Store = "postgres://u:word@h/d" },
	} {
		kept := *opt
		edit()
		if _, err := run(t, opt, never); err == nil || !strings.Contains(err.Error(), flag) ||
			strings.Contains(err.Error(), "word@") {
			t.Errorf("%s: %v", flag, err)
		}
		*opt = kept
	}
}
