package pgstore_test

import (
	_ "embed"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// scalingSQL is the SQL of docs/scaling.md. TestPages compares them. It is a copy, so that Go does not repeat
// the tests of this package in each new clone.
//
//go:embed testdata/scaling.sql
var scalingSQL string

// builtInColumns returns definitions of the columns of the built-in signs.
func builtInColumns(kind string) string {
	var all []string
	for sg := range vitals.Sign(vitals.NumBuiltIn) {
		all = append(all, sg.String()+kind)
	}
	return strings.Join(all, ", ")
}

// TestDownstream runs the SQL of docs/scaling.md. Another PostgreSQL that subscribes to the
// publication gets new readings, also in new partitions, completed ones and erasures.
func TestDownstream(t *testing.T) {
	t.Parallel()
	statement := func(pattern string) string {
		t.Helper()
		found := regexp.MustCompile(`(?s)` + pattern + `.*?;`).FindString(scalingSQL)
		if found == "" {
			t.Fatalf("docs/scaling.md has no statement %s", pattern)
		}
		return found
	}
	source := pgtest.Start(t, append(fast, "wal_level=logical")...)
	target := pgtest.Start(t, append(fast, "wal_level=logical")...)
	o := options(source)
	o.Schema = pgstore.DefaultSchema
	s := open(t, o)
	store := func(e *storage.Entry) {
		t.Helper()
		try(t, s.Append([]*storage.Entry{e}))
	}
	store(reading("bed-7", 1763719200000, 7200))
	query := strings.TrimSuffix(statement("SELECT device, to_timestamp"), ";")
	if got := queryValue[float64](t, source, "SELECT heart_rate_bpm::float FROM ("+query+") AS r"); got != 72 {
		t.Errorf("the query of the page returns %v, want 72", got)
	}

	execute(t, source, statement("CREATE PUBLICATION"))
	execute(t, target,
		"CREATE SCHEMA pulsegate; CREATE TABLE pulsegate.readings (device text, time_ms bigint, received_ms bigint, "+
			"changed bigint, completed_ms bigint, utc_offset smallint, shared boolean, gateway text,"+
			builtInColumns(" integer")+", PRIMARY KEY (device, time_ms))")
	host, port, err := net.SplitHostPort(source.Addr())
	try(t, err)
	// Outside a transaction: it creates a slot on the other server.
	execute(t, target,
		fmt.Sprintf(
			"CREATE SUBSCRIPTION downstream CONNECTION 'host=%s port=%s user=%s dbname=postgres' PUBLICATION downstream", host,
			port, pgtest.User))
	t.Cleanup(func() { execute(t, target, "DROP SUBSCRIPTION downstream") })

	completed := reading("bed-7", 1763719200000, 7200)
	completed.Reading.Values.Set(vitals.SpO2, 9700)
	store(completed)
	store(reading("bed-7", 1, 7300)) // a partition that did not exist
	store(reading("bed-8", 2, 7400))
	await := func(what, where string, want int) {
		t.Helper()
		polltest.Until(t, what, func() bool {
			return queryValue[int](t, target, "SELECT count(*) FROM pulsegate.readings WHERE "+where) == want
		})
	}
	await("all readings are downstream", "true", 3)
	await("the added sign is downstream", "spo2_pct = 9700 AND heart_rate_bpm = 7200", 1)
	_, err = s.Erase(completed.Reading.Device)
	try(t, err)
	await("the erasure is downstream", "device = 'bed-7'", 0)
	if n := queryValue[int](t, target, "SELECT count(*) FROM pulsegate.readings"); n != 1 {
		t.Errorf("%d readings are left downstream, want 1", n)
	}
}
