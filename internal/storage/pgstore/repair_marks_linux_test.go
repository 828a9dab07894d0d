package pgstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
)

// TestRepairMarksLast stops a repair before it can put readings back. The database has no marks that vouch for them
// then, for the server may be killed, and the primary replaced, at that moment.
//
// Seen to fail with the mutant raise-marks-first.
func TestRepairMarksLast(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	s := open(t, r.opt)
	mustStore(t, s, reading("d", 1, 1))
	earlier := r.backup(t)
	mustStore(t, s, reading("new", 1, 1))
	marks := func() string {
		return queryValue[string](t, earlier,
			"SELECT string_agg(concat(server, ' ', slot, ' ', number), ', ' ORDER BY server, slot) FROM "+r.opt.Schema+".marks")
	}
	r.stop()
	earlier.Restart(t)
	want := marks()
	conn := connect(t, earlier)
	defer conn.Close(context.Background())
	mustExecute(t, conn, "BEGIN; SELECT FROM "+r.opt.Schema+".state FOR UPDATE")
	r.use(earlier)
	polltest.Until(t, "the repair waits to count the new device", func() bool { return lockedOut(t, earlier) > 0 })
	if got := marks(); got != want {
		t.Errorf("before a reading is put back, the marks are %s, want %s", got, want)
	}
	mustExecute(t, conn, "ROLLBACK")
	awaitRepairs(t, s, 1)
}

// TestOwedRolledBack rolls a transaction of a repair back that reports what it has left out: nothing is owed then.
func TestOwedRolledBack(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.Remember = time.Minute
	s := open(t, o)
	execute(t, server, strings.ReplaceAll("ALTER TABLE S.marks ADD CONSTRAINT none CHECK (server <> 1)", "S.",
		o.Schema+"."))
	if n, err := pgstore.Owe(s, 1); err == nil || n != 0 {
		t.Errorf("after a transaction that was rolled back, %d partitions are owed, %v", n, err)
	}
	execute(t, server, strings.ReplaceAll("ALTER TABLE S.marks DROP CONSTRAINT none", "S.", o.Schema+"."))
	if n, err := pgstore.Owe(s, 1); err != nil || n != 1 {
		t.Errorf("%d partitions are owed, %v, want one", n, err)
	}
}
