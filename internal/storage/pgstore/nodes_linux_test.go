package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
)

// lockedOut returns the number of backends of stores that wait for a lock.
func lockedOut(t *testing.T, server *pgtest.Server) int {
	return queryValue[int](t, server,
		"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event_type = 'Lock'")
}

// holding begins a transaction that holds a lock on the table of readings, and returns a function
// that ends it.
func holding(t *testing.T, server *pgtest.Server, o pgstore.Options, mode string) (release func()) {
	t.Helper()
	conn := connect(t, server)
	mustExecute(t, conn, "BEGIN; LOCK TABLE "+o.Schema+".readings IN "+mode+" MODE")
	release = sync.OnceFunc(func() { _ = conn.Close(context.Background()) })
	t.Cleanup(release)
	return release
}

// An erasure that waits for somebody else's transaction does not make groups wait for it too.
func TestEraseWaits(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.Timeout = polltest.Patience
	s := open(t, o)
	first := reading("d", 1, 1)
	try(t, s.Append([]*storage.Entry{first, reading("e", 1, 1)}))
	release := holding(t, server, o, "ROW EXCLUSIVE")
	erased := make(chan error, 1)
	go func() {
		_, err := s.Erase(first.Reading.Device)
		erased <- err
	}()
	polltest.Until(t, "the erasure waits", func() bool { return lockedOut(t, server) > 0 })
	stored := appendLater(s, reading("e", 2, 1))
	select {
	case err := <-stored:
		if err != nil {
			t.Errorf("Append during the wait: %v", err)
		}
	case <-time.After(polltest.Patience / 4):
		t.Error("Append waits for the erasure that waits")
	}
	release()
	try(t, <-erased)
}

// mustStore stores readings, however often a store with a short timeout gives up before they are.
func mustStore(t *testing.T, s *pgstore.Store, group ...*storage.Entry) {
	t.Helper()
	polltest.Until(t, "readings are stored", func() bool { return s.Append(group) == nil })
}

// A read ends when the store's timeout is over, also if its caller would wait for ever.
func TestReadEnds(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.Timeout = time.Second
	s := open(t, o)
	e := reading("d", 1, 1)
	mustStore(t, s, e)
	release := holding(t, server, o, "ACCESS EXCLUSIVE")
	ctx := context.Background()
	for name, read := range map[string]func() error{
		"Latest":  func() error { _, err := s.Latest(ctx, e.Reading.Device); return err },
		"Devices": func() error { _, err := s.Devices(ctx, e.Reading.Device, make([]storage.Device, 1)); return err },
		"Scan": func() error {
			_, err := s.Scan(ctx, storage.Range{Device: e.Reading.Device, ToUnixMs: 9}, make([]storage.Record, 1))
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- read() }()
		select {
		case err := <-done:
			if err == nil && name != "Devices" { // no device follows, so the readings are not needed
				t.Errorf("%s succeeded although the table is locked", name)
			}
		case <-time.After(polltest.Patience / 4):
			t.Errorf("%s does not end", name)
		}
	}
	release()
	polltest.Until(t, "reads succeed again", func() bool {
		_, err := s.Latest(ctx, e.Reading.Device)
		return err == nil
	})
}

// Somebody removes the standbys from the configuration while a node runs: the node acknowledges
// nothing more, on the connections that it has neither, until they are back.
func TestStandbysRemoved(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, fast...)
	primary.Standby(t, "s1", fast...)
	setStandbys(t, primary, "s1")
	polltest.Until(t, "the standby is synchronous", func() bool {
		return queryValue[int](t, primary, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
	})
	o := options(primary)
	o.Single, o.Timeout = false, 5*time.Second
	s := open(t, o)
	ms := int64(0)
	store := func() error {
		ms++
		return s.Append([]*storage.Entry{reading("d", ms, 1)})
	}
	polltest.Until(t, "a reading is stored", func() bool { return store() == nil })
	setStandbys(t, primary, "")
	polltest.Until(t, "readings are rejected: ErrNotReplicated",
		func() bool { return errors.Is(store(), pgstore.ErrNotReplicated) })
	polltest.Until(t, "then before they are written", func() bool {
		err := store()
		if err == nil {
			t.Fatal("Append succeeded without a standby")
		}
		return errors.Is(err, pgstore.ErrNotReplicated) && errors.Is(err, storage.ErrNotWritten)
	})
	polltest.Until(t, "the store is not ready", func() bool { return errors.Is(s.Ready(), pgstore.ErrNotReplicated) })
	setStandbys(t, primary, "s1")
	polltest.Until(t, "readings are stored again", func() bool { return store() == nil })
	polltest.Until(t, "the store is ready", func() bool { return s.Ready() == nil })
}

// A message of a trigger or of a constraint is not in an error: it may quote values.
func TestErrorsQuoteNothing(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	execute(t, server, strings.ReplaceAll(`CREATE FUNCTION S.refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN RAISE EXCEPTION 'the rate of % is %', NEW.device, NEW.heart_rate_bpm; END$$;
		CREATE TRIGGER refuse BEFORE INSERT ON S.readings FOR EACH ROW EXECUTE FUNCTION S.refuse()`, "S.", o.Schema+"."))
	err := s.Append([]*storage.Entry{reading("bed-7", 1, 7777)})
	if err == nil || strings.Contains(err.Error(), "7777") || strings.Contains(err.Error(), "bed-7") {
		t.Errorf("Append returned %v, want an error that quotes nothing", err)
	}
}

// Options of pgx in the address do not change how the store talks to the server.
func TestAddressOptions(t *testing.T) {
	server := sharedServer(t)
	for _, option := range []string{"default_query_exec_mode=simple_protocol", "pool_health_check_period=0s",
		"statement_cache_capacity=0", "target_session_attrs=standby"} {
		o := options(server)
		o.DSN += "&" + option
		s := open(t, o)
		e := reading("d", 1, 1)
		if err := s.Append([]*storage.Entry{e}); err != nil {
			t.Errorf("%s: %v", option, err)
		}
		if n, err := s.Scan(context.Background(), storage.Range{Device: e.Reading.Device, ToUnixMs: 9},
			make([]storage.Record, 1)); err != nil || n != 1 {
			t.Errorf("%s: Scan returned %d, %v", option, n, err)
		}
	}
}

// TestPartitionOfOther creates a partition in a session that has seen that there is none, while another session creates
// it: what the first one knows of the catalog may be of the time before it waited.
func TestPartitionOfOther(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	ctx := context.Background()
	first, other := connect(t, server), connect(t, server)
	defer first.Close(ctx)
	defer other.Close(ctx)
	const partition = 680
	table := o.Schema + ".readings_p680"
	for _, sql := range []string{
		"BEGIN", fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", pgstore.LockOf(s)),
		fmt.Sprintf("CREATE TABLE %s (LIKE %s.readings INCLUDING ALL)", table, o.Schema),
		fmt.Sprintf("ALTER TABLE %s.readings ATTACH PARTITION %s FOR VALUES FROM (1762560000000) TO (1765152000000)",
			o.Schema, table),
	} {
		mustExecute(t, other, sql)
	}
	mustExecute(t, first, "SET application_name = 'first'; SELECT to_regclass('"+table+"')")
	created := make(chan error, 1)
	go func() { created <- pgstore.CreatePartition(s, first, partition) }()
	polltest.Until(t, "the first session waits", func() bool {
		return queryValue[int](t, server,
			"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'first' AND wait_event = 'advisory'") == 1
	})
	mustExecute(t, other, "COMMIT")
	try(t, <-created)
}

// TestPartitionsAtOnce creates a partition while a group that needs another one waits for that, and a removal waits for
// the group: nobody waits for PostgreSQL to find that these wait for each other.
func TestPartitionsAtOnce(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	ctx := context.Background()
	var conns [4]*pgx.Conn
	for i := range conns {
		conns[i] = connect(t, server)
		defer conns[i].Close(ctx)
	}
	gate, creating, group, removal := conns[0], conns[1], conns[2], conns[3]
	const patient = "SET deadlock_timeout = '1h'; "
	lock := "LOCK TABLE ONLY " + o.Schema + ".readings IN "
	ended := make(chan error, 3)
	waits := func(n int) {
		t.Helper()
		polltest.Until(t, "sessions wait",
			func() bool { return queryValue[int](t, server, "SELECT count(*) FROM pg_locks WHERE NOT granted") == n })
	}
	mustExecute(t, gate, patient+fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d)", pgstore.LockOf(s)))
	mustExecute(t, creating, patient)
	go func() { ended <- pgstore.CreatePartition(s, creating, 680) }()
	waits(1)
	mustExecute(t, group, patient+"BEGIN; "+lock+"ROW EXCLUSIVE MODE")
	mustExecute(t, removal, patient)
	go func() {
		_, err := removal.Exec(ctx, "BEGIN; "+lock+"SHARE ROW EXCLUSIVE MODE; ROLLBACK")
		ended <- err
	}()
	waits(2)
	go func() {
		err := pgstore.CreatePartition(s, group, 681)
		if err == nil {
			_, err = group.Exec(ctx, "COMMIT")
		}
		ended <- err
	}()
	waits(3)
	mustExecute(t, gate, "COMMIT")
	waits(0)
	try(t, <-ended, <-ended, <-ended)
}

// TestPartitionDropped drops a partition that a group needs while the group waits for the sealer, as a server does that
// removes old readings again and again: the readings are stored in the default partition, where they are found.
func TestPartitionDropped(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	ctx := context.Background()
	conn := connect(t, server)
	defer conn.Close(ctx)
	mustStore(t, s, reading("d", 0, 1)) // now the store knows the partition
	for n, unit := range []int32{0, 2} {
		group := []*storage.Entry{reading("d", int64(2*n+1), 1), reading("d", int64(2*n+2), 1)}
		group[0].Unit = unit
		drop := "DROP TABLE IF EXISTS " + o.Schema + ".readings_p0"
		mustExecute(t, conn, drop)
		mustExecute(t, conn, fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d)", pgstore.LockKey("seal", o.Schema)))
		ended := make(chan error, 1)
		go func() { ended <- s.Append(group) }()
		polltest.Until(t, "the group waits", func() bool { return lockedOut(t, server) == 1 })
		mustExecute(t, conn, drop)
		mustExecute(t, conn, "COMMIT")
		try(t, <-ended)
		for i, e := range group {
			if e.Outcome != storage.Stored {
				t.Errorf("unit of %d: reading %d got outcome %s, want stored", unit, i, outcomeName(e.Outcome))
			}
		}
		if got := metric(t, s, "pulsegate_postgres_retries_total", `"23514"`); got != 0 {
			t.Errorf("unit of %d: a partition was missing in %v attempts", unit, got)
		}
		if found := scanned(t, s, storage.Range{Device: group[0].Reading.Device, ToUnixMs: 100}, 10); len(found) != 2*n+2 {
			t.Errorf("unit of %d: %d readings are found, want %d", unit, len(found), 2*n+2)
		}
	}
}

// A backend of PostgreSQL may not see a partition that was attached while it built its list of partitions. So
// connections that are older than a partition are replaced: before a removal at once, otherwise after a while.
func TestPartitionAttached(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	one, other := open(t, o), open(t, o)
	backends := func() (reading, writing uint32) {
		t.Helper()
		pids, err := pgstore.Backends(other)
		try(t, err)
		return pids[0], pids[1]
	}
	const monthMs = 30 * 24 * 60 * minuteMs
	month := int64(0)
	attach := func() {
		t.Helper()
		month++
		mustStore(t, one, reading("d", month*monthMs, 1))
	}
	attach()
	pgstore.Reconnect(other)
	reading1, writing1 := backends()
	time.Sleep(pgstore.CheckEvery)
	// the pool for reading may have another connection, while one is watching the server
	if _, now := backends(); now != writing1 {
		t.Errorf("no partition was attached, and the connection %d was replaced by %d", writing1, now)
	}
	attach()
	time.Sleep(pgstore.CheckEvery)
	if r, w := backends(); r == reading1 || w == writing1 {
		t.Errorf("a partition was attached, and the connections %d and %d are used, which were %d and %d before", r, w,
			reading1, writing1)
	}

	for _, removal := range []struct {
		name   string
		remove func() error
	}{
		// no whole partition
		{"retention", func() error { _, err := other.Expire(t.Context(), monthMs+1, 1<<40); return err }},
		{"erasure", func() error { _, err := other.Erase(reading("d", 1, 1).Reading.Device); return err }},
	} {
		_, before := backends()
		attach()
		try(t, removal.remove())
		if _, now := backends(); now == before {
			t.Errorf("%s with a connection that is older than a partition", removal.name)
		}
	}
}

// A server whose answers have other types than the schema makes a call fail, and not the process.
func TestOtherTypes(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	e := reading("d", 1, 1)
	mustStore(t, s, e)
	try(t, s.Close())
	o.Timeout = time.Second // Append fails for this time
	execute(t, server, "DROP VIEW "+o.Schema+".all_readings CASCADE")
	execute(t, server, "ALTER TABLE "+o.Schema+".readings ALTER received_ms TYPE integer")
	s = open(t, o)
	// An attempt that the deadline cuts off has an error of its own.
	polltest.Until(t, "Append finds that the record is unreadable", func() bool {
		again := reading("d", 1, 1)
		err := s.Append([]*storage.Entry{again})
		if err == nil && again.Outcome != storage.Unreadable {
			t.Fatalf("Append succeeded with %s", outcomeName(again.Outcome))
		}
		return err == nil || errors.Is(err, storage.ErrCorrupt)
	})
	polltest.Until(t, "Scan returns ErrCorrupt", func() bool {
		_, err := s.Scan(context.Background(), storage.Range{Device: e.Reading.Device, ToUnixMs: 9},
			make([]storage.Record, 1))
		if err == nil {
			t.Fatal("Scan succeeded")
		}
		return errors.Is(err, storage.ErrCorrupt)
	})
}

// While no standby answers, the transactions that a node has given up stay with the server, which
// waits for a standby. Their number is bounded: the server has only so many connections.
func TestStandbysGone(t *testing.T) {
	t.Parallel()
	primary, standby := replicated(t)
	o := options(primary)
	o.Single, o.Timeout = false, 2*time.Second
	s := open(t, o)
	const devices = 20
	group := func(ms int64) (all []*storage.Entry) {
		for i := range devices {
			all = append(all, reading(fmt.Sprintf("d-%d", i), ms, 1))
		}
		return all
	}
	mustStore(t, s, group(1)...)
	standby.Kill()
	for round := range int64(3) {
		var calls []<-chan error
		for _, e := range group(2 + round) {
			calls = append(calls, appendLater(s, e))
		}
		for _, done := range calls {
			if err := <-done; err == nil {
				t.Error("a reading was acknowledged")
			} else if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: this is answered as if the server were stopped", err)
			}
		}
	}
	connections := pgstore.Lanes + 2
	if n := waiting(t, primary); n > 2*connections {
		t.Errorf("%d backends wait for the standby, want at most twice the %d connections of the node", n, connections)
	}
	standby.Restart(t)
	polltest.Until(t, "readings are stored again", func() bool { return s.Append(group(100)) == nil })
}
