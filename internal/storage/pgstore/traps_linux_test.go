package pgstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// replicated starts a primary with one synchronous standby.
func replicated(t *testing.T) (primary, standby *pgtest.Server) {
	primary = pgtest.Start(t, append(fast, "synchronous_standby_names=s1", "wal_sender_timeout=5s")...)
	standby = primary.Standby(t, "s1", fast...)
	polltest.Until(t, "the standby is synchronous", func() bool {
		return queryValue[int](t, primary, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
	})
	return primary, standby
}

// waiting returns the number of backends of stores that wait for the standby.
func waiting(t *testing.T, server *pgtest.Server) int {
	return queryValue[int](t, server,
		"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = 'SyncRep'")
}

// appendLater calls Append in a goroutine.
func appendLater(s *pgstore.Store, e *storage.Entry) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Append([]*storage.Entry{e}) }()
	return done
}

// mustNotEnd fails the test if Append has returned.
func mustNotEnd(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("Append returned %v although the standby is cut off", err)
	default:
	}
}

// TestTraps cuts the standby off while a reading is stored, and ends the wait for it in every way
// that PostgreSQL and pgx know. The reading must not be acknowledged before the standby has it.
//
// Seen to fail with the mutant plain-postgres.
func TestTraps(t *testing.T) {
	t.Parallel()
	primary, standby := replicated(t)
	var net pgtest.Sockets
	o := options(primary)
	o.Single, o.Dial, o.Timeout = false, net.Dial, polltest.Patience
	s := open(t, o)
	ms := int64(0)
	first := reading("d", ms, 1)
	if err := s.Append([]*storage.Entry{first}); err != nil || first.Outcome != storage.Stored {
		t.Fatalf("Append: %v, outcome %d", err, first.Outcome)
	}
	visible := func() int {
		return queryValue[int](t, primary, "SELECT count(*) FROM "+o.Schema+".readings WHERE time_ms = $1", ms)
	}
	disturb := func(name string, wait func(t *testing.T, done <-chan error)) {
		t.Run(name, func(t *testing.T) {
			ms++
			standby.Kill()
			e := reading("d", ms, vitals.Value(ms))
			done := appendLater(s, e)
			polltest.Until(t, "the commit waits", func() bool { return waiting(t, primary) > 0 })
			wait(t, done)
			standby.Restart(t)
			if err := <-done; err != nil || e.Outcome != storage.Stored {
				t.Errorf("with the standby back, Append returned %v, outcome %d, want stored", err, e.Outcome)
			}
			polltest.Until(t, "the standby has the reading", func() bool {
				return queryValue[int](t, standby, "SELECT count(*) FROM "+o.Schema+".readings WHERE time_ms = $1", ms) == 1
			})
		})
	}
	const backends = " FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = 'SyncRep'"
	disturb("canceled", func(t *testing.T, done <-chan error) {
		before := metric(t, s, "pulsegate_postgres_retries_total", `"warning"`)
		for i := range 3 {
			execute(t, primary, "SELECT pg_cancel_backend(pid)"+backends)
			polltest.Until(t, "the warning is noticed", func() bool {
				return len(done) > 0 || metric(t, s, "pulsegate_postgres_retries_total", `"warning"`) > before+float64(i)
			})
			polltest.Until(t, "the retry waits", func() bool { return len(done) > 0 || waiting(t, primary) > 0 })
			mustNotEnd(t, done)
		}
	})
	disturb("terminate", func(t *testing.T, done <-chan error) {
		before := metric(t, s, "pulsegate_postgres_retries_total", "")
		execute(t, primary, "SELECT pg_terminate_backend(pid)"+backends)
		polltest.Until(t, "the retry is noticed", func() bool {
			return len(done) > 0 ||
				metric(t, s, "pulsegate_postgres_retries_total", "") > before
		})
		polltest.Until(t, "the retry waits", func() bool { return len(done) > 0 || waiting(t, primary) > 0 })
		mustNotEnd(t, done)
	})
	disturb("broken", func(t *testing.T, done <-chan error) {
		net.BreakAll()
		polltest.Until(t, "the retry waits for the first attempt", func() bool {
			return visible() > 0 ||
				queryValue[int](t, primary,
					"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event IN ('SyncRep', "+
						"'transactionid')") >= 2
		})
		if n := visible(); n != 0 {
			t.Errorf("a broken connection made %d readings visible that the standby has not: pgx has canceled the commit", n)
		}
		mustNotEnd(t, done)
	})
}

// TestDuplicatesWait sends a reading again that only the primary has, as after a canceled commit.
// It must not be acknowledged as a duplicate. The plain form, DO NOTHING, would be.
//
// Seen to fail with the mutant plain-postgres.
func TestDuplicatesWait(t *testing.T) {
	t.Parallel()
	primary, standby := replicated(t)
	o := options(primary)
	o.Single, o.Timeout = false, polltest.Patience
	s := open(t, o)
	try(t, s.Append([]*storage.Entry{reading("d", 1, 1)}))
	standby.Kill()
	insert := "INSERT INTO " + o.Schema +
		".readings (device, time_ms, received_ms, heart_rate_bpm, shared, changed) VALUES ('d', 2, 1, 2, false, 0)"
	execute(t, primary, "SET synchronous_commit = local; "+insert)
	execute(t, primary, insert+" ON CONFLICT DO NOTHING") // the trap: it returns

	e := reading("d", 2, 2)
	done := appendLater(s, e)
	polltest.Until(t, "the duplicate waits", func() bool { return len(done) > 0 || waiting(t, primary) > 0 })
	mustNotEnd(t, done)
	standby.Restart(t)
	if err := <-done; err != nil || e.Outcome != storage.Duplicate {
		t.Errorf("Append returned %v, outcome %d, want duplicate", err, e.Outcome)
	}
	polltest.Until(t, "the standby has the duplicate", func() bool {
		return queryValue[int](t, standby, "SELECT count(*) FROM "+o.Schema+".readings") == 2
	})
}

// TestEveryByte cuts the connection off at some bytes of the answer to a group, and
// TestEveryByteExhaustive (make exhaustive) at every byte. The group must be stored once, and
// reported as stored.
func TestEveryByte(t *testing.T) {
	t.Parallel()
	cutAnswers(t, 7)
}

func TestEveryByteExhaustive(t *testing.T) { cutAnswers(t, 1) }

// cutAnswers cuts the connection off after every step-th byte, from a random one on.
func cutAnswers(t *testing.T, step int64) {
	server := sharedServer(t)
	net := pgtest.Sockets{Mark: settleMark}
	o := options(server)
	o.Dial = net.Dial
	s := open(t, o)
	group := func(ms int64) []*storage.Entry {
		completing := reading("a", ms, 1)
		completing.Reading.Values.Set(vitals.SpO2, 9700)
		return []*storage.Entry{reading("a", ms, 1), completing, reading("a", ms, 2), reading("b", ms, 3)}
	}
	check := func(g []*storage.Entry, cut int64) {
		t.Helper()
		want := []storage.Outcome{storage.Stored, storage.Completed, storage.Conflict, storage.Stored}
		for i, e := range g {
			// A retry cannot tell a reading that it has completed from one that it has stored.
			if e.Outcome != want[i] && !(i == 1 && e.Outcome == storage.Stored) {
				t.Errorf("cut after %d bytes: reading %d has outcome %s, want %s", cut, i, outcomeName(e.Outcome),
					outcomeName(want[i]))
			}
		}
	}
	g := group(0)
	try(t, s.Append(g))
	check(g, -1)
	length, first := net.LastAnswer(), rand.Int64N(step)
	t.Logf("cut after every %d of %d bytes, from %d on", step, length, first)
	for cut := first; cut <= length; cut += step {
		net.CutAfter(cut)
		g := group(1 + cut)
		if err := s.Append(g); err != nil {
			t.Fatalf("cut after %d bytes: %v", cut, err)
		}
		net.CutNone()
		check(g, cut)
		page := make([]storage.Record, 2)
		n, err := s.Scan(context.Background(), storage.Range{Device: g[0].Reading.Device, FromUnixMs: 1 + cut,
			ToUnixMs: 2 + cut}, page)
		if err != nil || n != 1 || page[0].Values != g[1].Reading.Values {
			t.Fatalf("cut after %d bytes: %d records, %v", cut, n, err)
		}
	}
}

func outcomeName(o storage.Outcome) string {
	return [...]string{"none", "stored", "completed", "duplicate", "conflict", "too many devices", "awkward name",
		"withheld", "unreadable", "unavailable",
		"other subject", "too many assignments", "unrecorded"}[o]
}

// TestStorm cancels and terminates all backends again and again while two nodes store the same
// readings. Each must be stored once, and none altered. The strikes become rarer while no group is
// stored, because a machine with other work stores none between two of them.
func TestStorm(t *testing.T) { storm(t, 15) }

func TestStormExhaustive(t *testing.T) { storm(t, 60) }

func storm(t *testing.T, groups int) {
	t.Parallel()
	server := pgtest.Start(t, fast...) // the storm strikes the stores of other tests too
	o := options(server)
	o.Timeout = polltest.Patience
	nodes := []*pgstore.Store{open(t, o), open(t, o)}
	stop := make(chan struct{})
	var progress atomic.Int64 // groups that are stored
	var striking sync.WaitGroup
	striking.Go(func() {
		conn := connect(t, server)
		defer conn.Close(context.Background())
		before, vain := int64(0), 0
		for i := 0; ; i++ {
			if now := progress.Load(); now > before {
				before, vain = now, 0
			}
			vain++
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(i%7) * time.Millisecond << min(vain/32, 9)):
			}
			how := []string{"pg_cancel_backend", "pg_terminate_backend"}[i/8%2]
			if _, err := conn.Exec(context.Background(),
				"SELECT "+how+"(pid) FROM pg_stat_activity WHERE application_name = 'pulsegate'"); err != nil {
				t.Errorf("storm: %v", err)
				return
			}
		}
	})
	const devices = 20
	group := func(k, by int) (g []*storage.Entry) {
		for d := range devices {
			g = append(g, reading(fmt.Sprintf("d-%02d", (d+by*7)%devices), int64(k), vitals.Value((d+by*7)%devices+1)))
		}
		return g
	}
	stored := make([]int, len(nodes))
	var writers sync.WaitGroup
	for n, s := range nodes {
		writers.Go(func() {
			for k := range groups {
				g := group(k, n)
				if err := s.Append(g); err != nil {
					t.Errorf("node %d, group %d: %v", n, k, err)
					return
				}
				progress.Add(1)
				for _, e := range g {
					switch e.Outcome {
					case storage.Stored:
						stored[n]++
					case storage.Duplicate:
					default:
						t.Errorf("node %d, group %d: outcome %s", n, k, outcomeName(e.Outcome))
					}
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	striking.Wait()
	for d := range devices {
		page := make([]storage.Record, groups+1)
		e := reading(fmt.Sprintf("d-%02d", d), 0, vitals.Value(d+1))
		n, err := nodes[0].Scan(context.Background(), storage.Range{Device: e.Reading.Device, ToUnixMs: 1 << 40}, page)
		if err != nil || n != groups {
			t.Fatalf("device %d has %d records, %v, want %d", d, n, err, groups)
		}
		for _, rec := range page[:n] {
			if rec.Values != e.Reading.Values {
				t.Errorf("device %d: the record at %d was altered", d, rec.TimeUnixMs)
			}
		}
	}
	t.Logf("stored %v of %d; retries %v", stored, groups*devices,
		metric(t, nodes[0], "pulsegate_postgres_retries_total", ""))
}

// TestErasedElsewhere stores readings of a device that another node has erased since this one stored some: all
// nodes must know the device again.
func TestErasedElsewhere(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	o := options(server)
	a, b := open(t, o), open(t, o)
	for ms := range int64(5) {
		e := reading("d", ms, 1)
		try(t, a.Append([]*storage.Entry{e}))
		for _, s := range []*pgstore.Store{a, b} {
			if _, err := s.Latest(context.Background(), e.Reading.Device); err != nil {
				t.Errorf("after reading %d: %v", ms, err)
			}
		}
		if got, err := b.Erase(e.Reading.Device); err != nil || got.Readings != 1 {
			t.Errorf("Erase returned %+v, %v", got, err)
		}
	}
	if n := queryValue[int](t, server, "SELECT devices FROM "+o.Schema+".state"); n != 0 {
		t.Errorf("%d devices are counted, want 0", n)
	}
}

// TestOpenRefuses opens databases that must be refused.
func TestOpenRefuses(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.Single = false
	if _, err := pgstore.Open(context.Background(), o); !errors.Is(err, pgstore.ErrNotReplicated) {
		t.Errorf("without standbys Open returned %v, want ErrNotReplicated", err)
	}
	for _, dsn := range []string{"postgres://u:hidden-word@127.0.0.1/db", "host=127.0.0.1 password=hidden-word",
		"postgres://u@h/db?password=hidden-word", "postgres://u:hidden-word@h:x/",
		"postgres://u@h/db?sslpassword=hidden-word", "host=h sslpassword = hidden-word",
		"postgres://u@h/db?pass%77ord=hidden-word", "user='u'password=hidden-word"} {
		if err := pgstore.CheckDSN(dsn); err == nil || strings.Contains(err.Error(), "hidden-word") {
			t.Errorf("an address with a password: %v, want an error without it", err)
		}
	}
	if err := pgstore.CheckDSN("postgres://u@h/db?sslmode=verify-full&sslrootcert=/missing/ca.crt"); err == nil ||
		!strings.Contains(err.Error(), "/missing/ca.crt") {
		t.Errorf("an address with a missing file: %v, want its name", err)
	}
	if err := pgstore.CheckDSN("postgres://u@h1:5432,h2,[::1]:5433/db?sslmode=verify-full"); err != nil {
		t.Errorf("an address with several hosts: %v", err)
	}
}

// TestPooler connects through PgBouncer, which Open must refuse by name in each mode, before it has changed anything.
func TestPooler(t *testing.T) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // Debian installs it there, which is not always in PATH
	}
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal("PgBouncer is missing, which .ci/setup installs")
	case err != nil:
		t.Skip("PgBouncer is missing")
	}
	server := sharedServer(t)
	for _, mode := range []string{"session", "transaction", "statement"} {
		addr := porttest.Addr(t)
		_, port, _ := net.SplitHostPort(addr) // it is an address
		_, serverPort, _ := net.SplitHostPort(server.Addr())
		dir, err := os.MkdirTemp("", "pgbouncer") // its user could not reach one in t.TempDir()
		try(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		config := filepath.Join(dir, "pgbouncer.ini")
		if err := os.WriteFile(config, fmt.Appendf(nil, `[databases]
postgres = host=127.0.0.1 port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
`, serverPort, pgtest.User, port, mode), 0o644); err != nil {
			t.Fatal(err)
		}
		pooler := exec.Command(program, config)
		if pooler.SysProcAttr, err = pgtest.Unprivileged(dir); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		pooler.Stderr = &log
		try(t, pooler.Start())
		t.Cleanup(func() {
			_ = pooler.Process.Kill()
			_ = pooler.Wait() // it was killed
			if t.Failed() {
				t.Log(log.String())
			}
		})
		o := options(server)
		o.DSN = strings.Replace(o.DSN, server.Addr(), addr, 1)
		polltest.Until(t, "PgBouncer takes connections", func() bool {
			conn, err := pgx.Connect(context.Background(), o.DSN)
			return err == nil && conn.Close(context.Background()) == nil
		})
		if _, err := pgstore.Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "PgBouncer") {
			t.Errorf("mode %s: Open returned %v, want an error that names PgBouncer", mode, err)
		}
		if queryValue[bool](t, server, "SELECT to_regnamespace($1) IS NOT NULL", o.Schema) {
			t.Errorf("mode %s: the schema was created", mode)
		}
	}
}

// TestExpireUnknown cuts the connection off after readings of one device have expired, so that the
// answer with its name is lost. The row of the device must not
// stay: it would be counted and listed forever. Nor must readings that are due.
//
// Seen to fail when Expire forgot only the devices that answers have named.
func TestExpireUnknown(t *testing.T) {
	server := sharedServer(t)
	const before = 0x0102030405
	net := pgtest.Sockets{Mark: binary.BigEndian.AppendUint64(nil, before)}
	o := options(server)
	o.Dial = net.Dial
	s := open(t, o)
	_, err := s.Expire(context.Background(), 1, 10)
	try(t, err)
	for _, cut := range []string{"first", "second"} {
		mustStore(t, s, reading(cut, before-1, 1), reading("stays", before, 1))
		net.CutAfter(0)
		got, err := s.Expire(context.Background(), before, 10)
		if err != nil || got.Devices != 1 || got.More {
			t.Errorf("%s: Expire returned %+v, %v, want one device", cut, got, err)
		}
		if !net.CutNone() {
			t.Fatal("no answer was cut off")
		}
		left := queryValue[string](t, server, "SELECT string_agg(device, ' ') FROM "+o.Schema+".devices")
		if counted := queryValue[int](t, server, "SELECT devices FROM "+o.Schema+".state"); left != "stays" || counted != 1 {
			t.Errorf("%s: the devices %s are left, and %d are counted, want one that stays", cut, left, counted)
		}
	}
}
