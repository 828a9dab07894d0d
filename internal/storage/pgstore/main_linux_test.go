package pgstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) {
	// A reopened store takes tens of milliseconds: PostgreSQL starts a process per connection.
	// make exhaustive plays more.
	if err := flag.Set("rapid.checks", "2"); err != nil {
		panic(err)
	}
	pgstore.ExpectAgain()
	goleak.VerifyTestMain(run{m})
}

// A run is a run of the tests, which removes the shared server before goroutines are counted.
type run struct{ *testing.M }

func (r run) Run() int {
	code := r.M.Run()
	if shared != nil {
		shared.Remove()
	}
	return code
}

// shared is the server of sharedServer; starting guards it.
var (
	shared   *pgtest.Server
	starting sync.Mutex
)

// sharedServer returns a server for tests that neither stop nor configure it, and use schemas of their
// own. Those that run in parallel do not keep a transaction open for long either, nor end those of
// others. The first test starts it.
func sharedServer(t testing.TB) *pgtest.Server {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	if shared == nil {
		shared = pgtest.Start(lasting{t}, fast...)
	}
	return shared
}

// A lasting test leaves what it has started to the end of the process.
type lasting struct{ testing.TB }

func (lasting) Cleanup(func()) {}

// fast are settings for tests that do not kill the server.
var fast = []string{"fsync=off", "full_page_writes=off", "max_connections=300", "autovacuum=off"}

// safe are settings for tests that do.
var safe = []string{"fsync=on", "max_connections=200", "restart_after_crash=off"}

// schemas counts the schemas of this process, so that each store under test has its own.
var schemas atomic.Int64

// settleMark is in each message that sends a group.
var settleMark = []byte("\x00generation\x00")

// options returns the options for a new schema on server.
func options(server *pgtest.Server) pgstore.Options {
	return pgstore.Options{DSN: server.DSN(), Single: true, Schema: fmt.Sprintf("t%d_%d", os.Getpid(), schemas.Add(1)),
		Timeout: 20 * time.Second}
}

// open opens a store, which is closed at the end of the test.
func open(t testing.TB, o pgstore.Options) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(context.Background(), o)
	try(t, err)
	pgstore.CreateWithin(s, "1min")
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// execute runs a statement on server.
func execute(t testing.TB, server *pgtest.Server, sql string, args ...any) {
	t.Helper()
	conn := connect(t, server)
	defer conn.Close(context.Background())
	mustExecute(t, conn, sql, args...)
}

// mustExecute runs a statement on a connection or in a transaction.
func mustExecute(t testing.TB, conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// setStandbys sets the synchronous standbys of server and reloads its configuration.
func setStandbys(t testing.TB, server *pgtest.Server, names string) {
	t.Helper()
	execute(t, server, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
	execute(t, server, "SELECT pg_reload_conf()")
}

func connect(t testing.TB, server *pgtest.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), server.DSN())
	try(t, err)
	return conn
}

// queryValue returns the single value that a query returns.
func queryValue[T any](t testing.TB, server *pgtest.Server, sql string, args ...any) (v T) {
	t.Helper()
	conn := connect(t, server)
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// reading returns an entry with a heart rate.
func reading(device string, timeUnixMs int64, v vitals.Value) *storage.Entry {
	name, err := vitals.ParseName(device)
	if err != nil {
		panic(err)
	}
	r := &vitals.Reading{Device: name, TimeUnixMs: timeUnixMs}
	r.Values.Set(vitals.HeartRate, v)
	return &storage.Entry{Reading: r, ReceivedUnixMs: 1}
}

// metric returns the sum of a metric of s, of those series whose labels contain label.
func metric(t testing.TB, s *pgstore.Store, name, label string) (sum float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	try(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && strings.Contains(fmt.Sprint(m.Label), label) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

var try = polltest.Try
