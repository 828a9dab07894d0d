package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestClosedPartition sends late readings of a partition that an administrator has detached or locked, beside readings,
// duplicates, conflicts and units of another one: only the late ones are rejected, and their units. They are stored
// when the partition is back.
func TestClosedPartition(t *testing.T) {
	server := sharedServer(t)
	const nowMs = 30 * 24 * 60 * minuteMs // begins partition 1; 0 is the one of the past
	for _, tt := range []struct{ name, begin, end, reason string }{
		{"detached", "ALTER TABLE S.readings DETACH PARTITION S.readings_p0",
			"ALTER TABLE S.readings ATTACH PARTITION S.readings_p0 FOR VALUES FROM (0) TO (2592000000)", "not attached"},
		{"locked", "BEGIN; LOCK TABLE S.readings_p0 IN ACCESS EXCLUSIVE MODE", "COMMIT", "another session has locked"},
		{"locked for writing", "BEGIN; LOCK TABLE S.readings_p0 IN SHARE MODE", "COMMIT", "another session has locked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(server)
			o.Timeout = polltest.Patience
			var log logBuffer
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			s := open(t, o)
			mustStore(t, s, reading("d", 0, 1), reading("d", nowMs, 1), reading("e", nowMs, 1))
			admin := connect(t, server)
			defer admin.Close(context.Background())
			mustExecute(t, admin, strings.ReplaceAll(tt.begin, "S.", o.Schema+"."))

			check := func(what string, group []*storage.Entry, want ...storage.Outcome) {
				t.Helper()
				if err := s.Append(group); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				for i, e := range group {
					if e.Outcome != want[i] {
						t.Errorf("%s: reading %d got outcome %d, want %d", what, i, e.Outcome, want[i])
					}
				}
			}
			unit := func(group ...*storage.Entry) []*storage.Entry {
				group[0].Unit = 2
				return group
			}
			const late = storage.Unavailable
			for i := range int64(2) { // when the partition is found closed, and while that is remembered
				ms := nowMs + 10*i
				check("single readings", []*storage.Entry{reading("d", 1+i, 1), reading("d", ms+1, 1), reading("e", nowMs, 1),
					reading("d", nowMs, 2), reading("d", 1+i, 2), reading("e", ms+1, 1)},
					late, storage.Stored, storage.Duplicate, storage.Conflict, late, storage.Stored)
				pgstore.TryClosed(s, i == 0) // a unit finds it closed, too
				check("units", unit(reading("d", ms+2, 1), reading("d", 3+i, 1), reading("d", ms+3, 1), reading("e", ms+3, 1)), 0,
					late, storage.Stored, storage.Stored)
			}
			if strings.Contains(tt.begin, "ACCESS EXCLUSIVE") {
				_, err := s.Latest(t.Context(), modelNames("d")[0])
				mustBeUnavailable(t, "Latest", err)
				_, err = s.Scan(t.Context(), storage.Range{Device: modelNames("d")[0], ToUnixMs: 10}, make([]storage.Record, 1))
				mustBeUnavailable(t, "Scan", err)
				_, err = s.Devices(t.Context(), vitals.Name{}, make([]storage.Device, 1))
				mustBeUnavailable(t, "Devices", err)
			}
			for _, want := range []string{"not be stored", "1970-01-01", "1970-01-31", o.Schema + ".readings_p0", tt.reason} {
				if !log.contains(want) {
					t.Errorf("the log does not name %q", want)
				}
			}
			mustExecute(t, admin, strings.ReplaceAll(tt.end, "S.", o.Schema+"."))
			pgstore.TryClosed(s, true)
			check("late readings", unit(reading("d", 1, 1), reading("d", 2, 1), reading("d", 3, 1)), storage.Stored,
				storage.Stored, storage.Stored)
		})
	}
}

// TestRepairClosed repairs a database in which a partition is locked or detached: that holds up nothing else. What the
// repair has left out is reported as lost, and the report ends when the partition is back, also if the database has
// forgotten again that it was put back. What was erased in between stays erased.
func TestRepairClosed(t *testing.T) {
	t.Parallel()
	const nowMs = 30 * 24 * 60 * minuteMs // begins partition 1; 0 is the one of the past
	for _, tt := range []struct{ name, begin, end string }{
		{"detached", "ALTER TABLE S.readings DETACH PARTITION S.readings_p0",
			"ALTER TABLE S.readings ATTACH PARTITION S.readings_p0 FOR VALUES FROM (0) TO (2592000000)"},
		{"locked", "BEGIN; LOCK TABLE S.readings_p0 IN ACCESS EXCLUSIVE MODE", "COMMIT"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startReturning(t)
			s := open(t, r.opt)
			mustStore(t, s, reading("d", 1, 1), reading("d", nowMs, 1))
			earlier := r.backup(t)
			mustStore(t, s, reading("d", 2, 2), reading("erased", 1, 1), reading("d", nowMs+1, 2))
			mustStore(t, s, reading("d", 3, 3), reading("d", nowMs+2, 3))

			r.stop()
			earlier.Restart(t)
			admin := connect(t, earlier)
			defer admin.Close(context.Background())
			mustExecute(t, admin, strings.ReplaceAll(tt.begin, "S.", r.opt.Schema+"."))
			r.use(earlier)
			awaitRepairs(t, s, 1)
			group := []*storage.Entry{reading("d", nowMs+1, 2), reading("d", nowMs+2, 3), reading("d", nowMs+3, 4)}
			mustStore(t, s, group...)
			if group[0].Outcome != storage.Duplicate || group[1].Outcome != storage.Duplicate {
				t.Errorf("readings of the other partition got outcomes %d and %d after the repair, want duplicate",
					group[0].Outcome, group[1].Outcome)
			}
			polltest.Until(t, "the loss is reported", func() bool { return s.Degraded() != nil })
			owing := r.backup(t)
			erased := tt.name == "detached" // an erasure waits for a lock
			if erased {
				if _, err := s.Erase(modelNames("erased")[0]); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("Erase returned %v, want ErrNotFound", err)
				}
			}

			mustExecute(t, admin, strings.ReplaceAll(tt.end, "S.", r.opt.Schema+"."))
			check := func(server *pgtest.Server) {
				t.Helper()
				polltest.Until(t, "what was left out is stored", func() bool {
					pgstore.TryClosed(s, true)
					return s.Ready() == nil && s.Degraded() == nil &&
						queryValue[int](t, server,
							"SELECT count(*) FROM "+r.opt.Schema+".readings WHERE device = 'd' AND time_ms < 2592000000") == 3
				})
				if n := queryValue[int](t, server,
					"SELECT count(*) FROM "+r.opt.Schema+".readings WHERE device = 'erased'"); erased && n != 0 {
					t.Error("an erased device has come back")
				}
			}
			check(earlier)
			r.restore(t, owing)
			awaitRepairs(t, s, 2)
			if tt.name == "detached" {
				execute(t, owing, strings.ReplaceAll(tt.end, "S.", r.opt.Schema+"."))
			}
			check(owing)
		})
	}
}

// mustBeUnavailable checks the error of a read while a partition is locked.
func mustBeUnavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "readings_p0") {
		t.Errorf("%s returned %v, want ErrUnavailable with the name of the partition", what, err)
	}
}

// TestReadBesideDrop reads while another server drops a partition, which takes longer than a read waits for a lock: the
// read waits.
func TestReadBesideDrop(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.Timeout = polltest.Patience
	s := open(t, o)
	mustStore(t, s, reading("d", 0, 1))
	other := connect(t, server)
	defer other.Close(context.Background())
	mustExecute(t, other, "SET application_name = 'pulsegate'")
	mustExecute(t, other, "BEGIN; LOCK TABLE "+o.Schema+".readings_p0 IN ACCESS EXCLUSIVE MODE")
	done := make(chan error, 1)
	go func() {
		_, err := s.Latest(context.Background(), modelNames("d")[0])
		done <- err
	}()
	begun := map[string]bool{}
	polltest.Until(t, "the read waits again", func() bool {
		begun[queryValue[string](t, server,
			"SELECT coalesce(max(query_start)::text, '') FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "+
				"query LIKE '%"+o.Schema+"%'")] = true
		delete(begun, "")
		return len(done) > 0 || len(begun) >= 2
	})
	mustExecute(t, other, "COMMIT")
	try(t, <-done)
}

// TestLockedBeforeLookUp locks a partition immediately before a server looks duplicates up: the group ends soon, and
// readings of other partitions are settled.
func TestLockedBeforeLookUp(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.Timeout = polltest.Patience
	admin := connect(t, server)
	defer admin.Close(context.Background())
	c := &beforeLookUp{do: func() {
		mustExecute(t, admin, "BEGIN; LOCK TABLE "+o.Schema+".readings_p0 IN ACCESS EXCLUSIVE MODE")
	}}
	o.Dial = c.dial
	s := open(t, o)
	const nowMs = 30 * 24 * 60 * minuteMs // begins partition 1
	mustStore(t, s, reading("d", 1, 1), reading("d", nowMs, 1))
	c.armed.Store(true)
	group := []*storage.Entry{reading("d", 1, 1), reading("d", 2, 1), reading("d", nowMs, 1), reading("d", nowMs+1, 1)}
	try(t, s.Append(group))
	for i, want := range []storage.Outcome{storage.Unavailable, 0, storage.Duplicate, storage.Stored} {
		if got := group[i].Outcome; got != want && want != 0 {
			t.Errorf("reading %d got outcome %s, want %s", i, outcomeName(got), outcomeName(want))
		}
	}
	if c.armed.Load() {
		t.Error("nothing was looked up")
	}
	mustExecute(t, admin, "COMMIT")
}

// A beforeLookUp makes connections that call do before the first statement that looks readings up.
type beforeLookUp struct {
	do    func()
	armed atomic.Bool
}

func (b *beforeLookUp) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return lookingUp{conn, b}, err
}

type lookingUp struct {
	net.Conn
	b *beforeLookUp
}

func (c lookingUp) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("\x00find of ")) && c.b.armed.Swap(false) {
		c.b.do()
	}
	return c.Conn.Write(p)
}

// A countingGuard has a number of permissions left.
type countingGuard struct{ left atomic.Int64 }

func (g *countingGuard) Take() bool {
	if g.left.Add(-1) < 0 {
		g.left.Add(1)
		return false
	}
	return true
}

func (g *countingGuard) Return() { g.left.Add(1) }

// One conflict takes one permission of a Guard, also if a partition is found closed after the readings were settled.
func TestGuardOfClosedPartition(t *testing.T) {
	server := sharedServer(t)
	const nowMs = 30 * 24 * 60 * minuteMs
	o := options(server)
	o.Timeout = polltest.Patience
	s := open(t, o)
	mine := func(e *storage.Entry, gw string, g storage.Guard) *storage.Entry {
		e.Reading.Gateway = modelNames(gw)[0]
		e.Guard = g
		return e
	}
	mustStore(t, s, mine(reading("d", nowMs, 1), "g1", nil), reading("d", 1, 1))
	admin := connect(t, server)
	defer admin.Close(context.Background())
	mustExecute(t, admin, strings.ReplaceAll("BEGIN; LOCK TABLE S.readings_p0 IN SHARE MODE", "S.", o.Schema+"."))
	g := &countingGuard{}
	g.left.Store(10)
	group := []*storage.Entry{mine(reading("d", 2, 1), "g2", g), mine(reading("d", nowMs, 2), "g2", g)}
	try(t, s.Append(group))
	if group[0].Outcome != storage.Unavailable || group[1].Outcome != storage.Conflict {
		t.Errorf("outcomes %d, %d", group[0].Outcome, group[1].Outcome)
	}
	if left := g.left.Load(); left != 9 {
		t.Errorf("%d permissions are left of 10 after one conflict, want 9", left)
	}
	mustExecute(t, admin, "COMMIT")
}
