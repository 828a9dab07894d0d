package pgstore_test

import (
	"context"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// TestRepairMarksLast stops a repair before it can put readings back. The database has no marks that vouch for them then, for the server
// may be killed, and the primary replaced, at that moment.
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
		return queryValue[string](t, earlier, "SELECT string_agg(concat(server, ' ', slot, ' ', number), ', ' ORDER BY server, slot) FROM "+r.opt.Schema+".marks")
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
