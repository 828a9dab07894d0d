package pgstore_test

import (
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
	for n := range int64(10) {
		mustStore(t, s, reading("d", 2+n, 1))
	}
	marks := func() string {
		return queryValue[string](t, earlier, "SELECT string_agg(concat(server, ' ', slot, ' ', number), ', ' ORDER BY server, slot) FROM "+r.opt.Schema+".marks")
	}
	r.stop()
	earlier.Restart(t)
	want := marks()
	release := holding(t, earlier, r.opt, "SHARE")
	r.use(earlier)
	polltest.Until(t, "the repair waits for the table of readings", func() bool { return lockedOut(t, earlier) > 0 })
	if got := marks(); got != want {
		t.Errorf("before readings are put back, the marks are %s, want %s", got, want)
	}
	release()
	awaitRepairs(t, s, 1)
}
