package pgstore_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// A confused is a primary and two standbys, of which tests promote any.
type confused struct {
	primary, a, b *pgtest.Server
}

// startConfused starts the servers. Commits do not wait for the standbys, so that a test decides what they have.
func startConfused(t *testing.T) confused {
	t.Helper()
	primary := pgtest.Start(t, fast...)
	return confused{primary, primary.Standby(t, "a", fast...), primary.Standby(t, "b", fast...)}
}

// options returns options with the addresses of all three.
func (c *confused) options() pgstore.Options {
	o := options(c.primary)
	o.DSN = strings.Replace(o.DSN, c.primary.Addr(), strings.Join([]string{c.primary.Addr(), c.a.Addr(), c.b.Addr()}, ","),
		1)
	o.Timeout = polltest.Patience
	return o
}

// awaitEqual waits until the standbys have all that the primary has.
func (c *confused) awaitEqual(t *testing.T) {
	t.Helper()
	polltest.Until(t, "the standbys have everything", func() bool {
		return queryValue[int](t, c.primary,
			"SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()") == 2
	})
}

// mustRefuse checks that a store neither writes nor reads.
func mustRefuse(t *testing.T, s *pgstore.Store, what string) {
	t.Helper()
	polltest.Until(t, what+": Ready returns ErrForgot", func() bool { return errors.Is(s.Ready(), pgstore.ErrForgot) })
	// an attempt on a server that was just killed may have an unknown outcome
	if err := s.Append([]*storage.Entry{reading("d", 99, 1)}); !errors.Is(err, pgstore.ErrForgot) {
		t.Errorf("%s: Append returned %v, want ErrForgot", what, err)
	}
	name, _ := vitals.ParseName("d") // it is a name
	if _, err := s.Latest(context.Background(), name); !errors.Is(err, pgstore.ErrForgot) {
		t.Errorf("%s: Latest returned %v, want ErrForgot", what, err)
	}
}

// A logBuffer has what was logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.text.String(), text)
}

// mustMiss checks when, according to the metrics, the first and the last of what is missing was acknowledged:
// in the time from the first of these to the second, and in that from the third until now.
func mustMiss(t *testing.T, s *pgstore.Store, firstFrom, firstTo, last time.Time) {
	t.Helper()
	from, to := gauge(t, s, "pulsegate_postgres_missing_from_timestamp_seconds"),
		gauge(t, s, "pulsegate_postgres_missing_to_timestamp_seconds")
	seconds := func(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
	if from < seconds(firstFrom) || from > seconds(firstTo) {
		t.Errorf("the first that is missing was acknowledged at %f, want %f to %f", from, seconds(firstFrom),
			seconds(firstTo))
	}
	if to < seconds(last) || to > seconds(time.Now()) {
		t.Errorf("the last that is missing was acknowledged at %f, want %f until now", to, seconds(last))
	}
}

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	all, err := r.Gather()
	try(t, err)
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestForgettingPrimary promotes the wrong servers: an old primary is started again after another one was
// promoted, and the second of two equal standbys is promoted in place of the first, so that both have the
// same timeline number.
//
// Its mutant is forget-marks.
func TestForgettingPrimary(t *testing.T) {
	t.Parallel()
	c := startConfused(t)
	o := c.options()
	o.Timeout = 2 * time.Second
	var log logBuffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, o)
	began := time.Now()
	mustStore(t, s, reading("d", 1, 1))
	c.awaitEqual(t)
	c.primary.Kill()
	c.a.Promote(t)
	polltest.Until(t, "the first standby takes readings",
		func() bool { return s.Append([]*storage.Entry{reading("d", 2, 1)}) == nil })
	second := time.Now()

	c.primary.Restart(t)
	execute(t, c.a, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pulsegate'")
	third := time.Now()
	mustStore(t, s, reading("d", 3, 1)) // the address names the old primary first
	if n := queryValue[int](t, c.a, "SELECT count(*) FROM "+o.Schema+".readings"); n != 3 {
		t.Errorf("the promoted standby has %d readings, want 3", n)
	}
	c.a.Kill()
	mustRefuse(t, s, "the old primary was started again")
	mustMiss(t, s, began, second, third)

	c.primary.Kill()
	c.b.Promote(t)
	mustRefuse(t, s, "another standby was promoted")
	mustMiss(t, s, began, second, third)
	if !log.contains("acknowledged_from=20") || !log.contains("acknowledged_to=20") {
		t.Error("the log does not say when what is missing was acknowledged")
	}

	c.b.Kill()
	c.a.Restart(t)
	polltest.Until(t, "the store is ready again", func() bool { return s.Ready() == nil })
	if at := gauge(t, s, "pulsegate_postgres_missing_to_timestamp_seconds"); at != 0 {
		t.Errorf("something is missing until %f though the database has everything", at)
	}
	mustStore(t, s, reading("d", 4, 1))
	name, _ := vitals.ParseName("d") // it is a name
	if n, err := s.Scan(context.Background(), storage.Range{Device: name, ToUnixMs: 10},
		make([]storage.Record, 9)); n != 4 || err != nil {
		t.Errorf("Scan returned %d, %v, want 4 readings", n, err)
	}
}

// TestRefusals checks that PostgreSQL's log names the reason for which the schema rolls a transaction back, and that
// errors do.
func TestRefusals(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.Timeout = time.Second
	s := open(t, o)
	for _, tt := range []struct {
		number, learned  int64
		state, text, log string
	}{
		{1 << 40, math.MaxInt64, "PU001", pgstore.ErrForgot.Error(),
			"ERROR:  this database lacks what a Pulsegate server has acknowledged"},
		{0, 0, "PU002", "SQLSTATE PU002: something was removed or sealed", "ERROR:  something was removed or sealed since"},
	} {
		var err error
		if !polltest.Within(polltest.Patience, func() bool { // a busy server does not always answer before the deadline
			err = pgstore.Refuse(s, tt.number, tt.learned)
			pg, ok := errors.AsType[*pgconn.PgError](err)
			return ok && pg.Code == tt.state && strings.Contains(err.Error(), tt.text)
		}) {
			t.Errorf("the error is %v, want one of SQLSTATE %s with %q", err, tt.state, tt.text)
		}
		if !strings.Contains(server.Log(), tt.log) {
			t.Errorf("the log of PostgreSQL lacks %q", tt.log)
		}
	}
}

// TestForgettingErasure restores a backup of before an erasure. A server that has acknowledged nothing, and has only
// read of the erasure, refuses it.
//
// Its mutant is forget-erasures.
func TestForgettingErasure(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, fast...)
	var sockets pgtest.Sockets
	var addr atomic.Value
	addr.Store(primary.Addr())
	o := options(primary)
	o.DSN = strings.Replace(o.DSN, primary.Addr(), sockets.Forward(t, func() string { return addr.Load().(string) }), 1)
	o.Timeout = 2 * time.Second
	a, b := open(t, o), open(t, o)
	mustStore(t, a, reading("d", 1, 1))
	backup := primary.Backup(t, fast...)
	name, _ := vitals.ParseName("d") // it is a name
	_, err := a.Erase(name)
	try(t, err)
	generation := queryValue[int64](t, primary, "SELECT generation FROM "+o.Schema+".state")
	polltest.Until(t, "the other server has read of the erasure", func() bool { return pgstore.Learned(b) == generation })
	addr.Store("")
	primary.Kill()
	backup.Restart(t)
	addr.Store(backup.Addr())
	mustRefuse(t, b, "a backup of before an erasure was restored")
}

// TestKeptMarks removes marks and changes that are old by the earlier of two clocks, and never the last ones: a server
// whose clock is ahead, or a database's, does not make others that are alive take the database for forgetful.
//
// Its mutant is tidy-by-own-clock.
func TestKeptMarks(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	mustStore(t, s, reading("d", 1, 1))
	execute(t, server,
		"INSERT INTO "+o.Schema+".changes SELECT n, n, n, 1, 'erased', 0, 0, extract(epoch FROM now()) * 1000 FROM "+
			"generate_series(1, 20) AS n")
	count := func(table string) int { return queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+"."+table) }
	tidy := func(ahead time.Duration) {
		t.Helper()
		try(t, pgstore.Tidy(s, time.Now().Add(ahead)))
	}
	check := func(when string, marks, changes int) {
		t.Helper()
		if m, c := count("marks"), count("changes"); m != marks || c != changes {
			t.Errorf("%s: %d marks and %d changes are left, want %d and %d", when, m, c, marks, changes)
		}
	}
	const years = 3 * 365 * 24 * time.Hour
	marks := count("marks")
	tidy(years)
	check("the server's clock was ahead", marks, 20)
	for _, table := range []string{"marks", "changes"} {
		execute(t, server, "UPDATE "+o.Schema+"."+table+" SET at_ms = at_ms - $1", years.Milliseconds())
	}
	tidy(-years)
	check("the database's clock was ahead", marks, 20)
	tidy(0)
	check("both clocks were ahead", marks, 16)
	mustStore(t, s, reading("d", 2, 2))
	execute(t, server,
		"INSERT INTO "+o.Schema+".marks SELECT 1, n, 1, extract(epoch FROM now()) * 1000 FROM generate_series(1, 2000) AS n")
	execute(t, server, "UPDATE "+o.Schema+".marks SET at_ms = 1 WHERE server = 1 AND slot > 1000")
	tidy(0)
	if n := count("marks"); n < 1000 || n > 1000+marks {
		t.Errorf("%d marks are left, want the last 1,000", n)
	}
	try(t, s.Close()) // it would take the database for forgetful
	execute(t, server, "DELETE FROM "+o.Schema+".marks WHERE server <> 1")
	s = open(t, o)
	try(t, pgstore.Mark(s, time.Now().Add(-years)), pgstore.Tidy(s, time.Now()))
	if n := count("marks WHERE server <> 1"); n != 1 {
		t.Errorf("%d marks of a server whose clock is behind are left, want the last one", n)
	}
}
