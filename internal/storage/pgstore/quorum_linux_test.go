package pgstore_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// TestQuorum cuts off one of two standbys of which any one must confirm a commit, and then both.
// With one, readings are acknowledged. With none, nothing is, neither new readings nor duplicates,
// until one is back, whichever it is.
//
// Seen to fail with the mutant plain-postgres.
func TestQuorum(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, append(fast, "synchronous_standby_names=ANY 1 (a, b)", "wal_sender_timeout=5s")...)
	standbys := []*pgtest.Server{primary.Standby(t, "a", fast...), primary.Standby(t, "b", fast...)}
	polltest.Until(t, "both standbys are in the quorum", func() bool {
		return queryValue[int](t, primary, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'") == 2
	})
	o := options(primary)
	o.Single, o.Timeout = false, polltest.Patience
	s := open(t, o)
	ms := int64(0)
	store := func() {
		t.Helper()
		ms++
		e := reading("d", ms, 1)
		if err := s.Append([]*storage.Entry{e}); err != nil || e.Outcome != storage.Stored {
			t.Fatalf("Append returned %v, %s, want stored", err, outcomeName(e.Outcome))
		}
	}
	store()
	for i, back := range standbys {
		other := standbys[1-i]
		other.Kill()
		store()
		back.Kill()

		ms++
		fresh, again := reading("d", ms, 1), reading("d", 1, 1)
		doneFresh, doneAgain := appendLater(s, fresh), appendLater(s, again)
		polltest.Until(t, "both commits wait", func() bool {
			return len(doneFresh)+len(doneAgain) > 0 ||
				waiting(t, primary) == 2
		})
		mustNotEnd(t, doneFresh)
		mustNotEnd(t, doneAgain)

		back.Restart(t)
		if err := <-doneFresh; err != nil || fresh.Outcome != storage.Stored {
			t.Errorf("with one standby back, Append returned %v, %s, want stored", err, outcomeName(fresh.Outcome))
		}
		if err := <-doneAgain; err != nil || again.Outcome != storage.Duplicate {
			t.Errorf("with one standby back, Append returned %v, %s, want duplicate", err, outcomeName(again.Outcome))
		}
		other.Restart(t)
		polltest.Until(t, "both standbys are in the quorum", func() bool {
			return queryValue[int](t, primary, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'") == 2
		})
	}
}
