package main_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// TestRepairCampaign is TestForgetCampaign for servers that remember what they have acknowledged. They repair the
// primary and go on. During the repair, one of them may be killed, and the primary may be replaced again.
//
// In every second round, servers seal all the time. In some rounds, servers have a directory for their memory. In some
// of those, all are killed after the last acknowledgement and before the earlier state is back. In the other rounds, a
// server that is killed acknowledges nothing from before the earlier state until then, and nothing that will be erased.
//
// Seen to fail with the mutants repair-erased-readings, repair-nothing, repair-without-erasures and
// repeat-erasure-in-rows.
func TestRepairCampaign(t *testing.T) {
	playForgetting(t, "repair", func(r *forgetRun) { r.remember = true })
}

// age makes the readings of some devices look as if they had been received two minutes ago, so that no erasure from now
// on is in doubt about them.
func (r *forgetRun) age(devices ...string) {
	those := " WHERE device IN ('" + strings.Join(devices, "', '") + "')"
	r.members[r.primary].Execute(r.t, "BEGIN; LOCK TABLE pulsegate.readings; "+ // no server seals meanwhile
		"UPDATE pulsegate.readings SET received_ms = received_ms - 120000"+those+"; UPDATE pulsegate.segments SET delay_ms "+
		"= delay_ms - 120000"+those+"; COMMIT")
}

// silence ends the load of a server, and waits until both standbys have what it has acknowledged.
func (r *forgetRun) silence(b *harness) {
	b.loads[len(b.loads)-1].settle()
	r.replicate()
}

// replicate waits until both standbys have what the primary has: the earlier state may be that of either.
func (r *forgetRun) replicate() {
	var at string
	r.query("SELECT pg_current_wal_lsn()::text", &at)
	polltest.Until(r.t, "both standbys have everything", func() bool {
		var n int
		r.query("SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= '"+at+"'", &n)
		return n == slots-1
	})
}

// mustRepair checks that the servers put back what the primary lacks, whatever happens in between. Nothing may be
// reported as lost if sure is set.
func (r *forgetRun) mustRepair(right int, sure bool) {
	r.t.Helper()
	other := 3 - right - r.earlier // the standby of the right one
	spare := r.members[other]
	faults := []func(){}
	replaced := r.rnd.IntN(5)
	if replaced == 4 {
		backup := r.members[r.primary].Backup(r.t, r.settings()...)
		faults = append(faults, func() { // the earlier state comes back once more
			r.members[r.earlier].Remove()
			r.members[other].Remove()
			r.members[r.earlier] = backup
			r.start(r.earlier)
			r.members[other] = backup.Standby(r.t, inQuorum(other), r.settings()...)
		})
	}
	r.members[other] = r.members[r.primary].Standby(r.t, inQuorum(other), r.settings()...)
	r.route()
	switch replaced {
	case 1:
		faults = append(faults, func() { // it crashes
			r.members[r.earlier].Kill()
			r.start(r.earlier)
		})
	case 2:
		faults = append(faults, func() { // its standby is promoted
			r.members[r.earlier].Kill()
			r.members[other].Promote(r.t)
			r.primary = other
			r.join(right, inQuorum(right))
		})
	case 3:
		faults = append(faults, func() { // the right one comes back
			r.members[r.earlier].Kill()
			r.members[other].Remove()
			r.members[other] = spare
			r.start(right)
			spare.Restart(r.t)
		})
	}
	if b := r.killed; b != nil {
		faults = append(faults, func() {
			r.noteRepairs(b)
			b.server.kill()
			b.start()
			r.noticed[b] = 0
			if !r.lasting {
				r.load(b)
			}
			r.kills++
		})
	}
	r.t.Logf(
		"servers seal: %t, have directories: %t, all were killed: %t, one is killed: %t, the primary is replaced: %d, "+
			"erasures are in doubt: %t",
		r.sealing, r.lasting, r.all, r.killed != nil, replaced, !sure)
	r.rnd.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, fault := range faults {
		time.Sleep(time.Duration(r.rnd.Int64N(int64(5 * time.Second)))) // the moment of the fault
		fault()
		r.route()
	}
	if replaced > 0 {
		r.changes++
	}
	if r.all {
		for _, b := range r.servers {
			b.start()
			r.noticed[b] = 0
		}
		r.restarts++
	}
	if r.members[other] != spare {
		spare.Remove()
	}
	r.awaitMore()
	for _, b := range r.servers {
		r.noteRepairs(b)
		_, text := fetch(r.t, "GET", "http://"+b.server.admin+"/metrics", "")
		if !strings.Contains(text, "\npulsegate_postgres_contradicted_total 0\n") {
			r.t.Error("a server found contradictions")
		}
	}
	var losses int
	if r.query("SELECT count(*) FROM pulsegate.losses WHERE confirmed_ms IS NULL", &losses); losses > 0 && sure {
		r.t.Errorf("%d losses are reported, want none", losses)
		for _, b := range r.servers {
			r.t.Logf("the log of a server:\n%s", b.server.stderr())
		}
	}
	if losses > 0 {
		r.t.Logf("%d losses are reported", losses)
		_, errs, code := output(r.t, r.servers[0].bin, "store", "confirm-loss", "--yes", r.servers[0].args[0], "--audit=")
		if code != 0 {
			r.t.Errorf("confirm-loss: exit code %d\n%s", code, errs)
		}
	}
}

// noteRepairs counts what a server has repaired since it was last called.
func (r *forgetRun) noteRepairs(b *harness) {
	n := strings.Count(b.server.stderr(), "the database is repaired")
	r.repairs += n - r.noticed[b]
	r.noticed[b] = n
}
