package pgstore_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fast are settings for tests that do not kill the server.
var fast = []string{"fsync=off", "full_page_writes=off", "max_connections=200", "autovacuum=off"}

// safe are settings for tests that do.
var safe = []string{"fsync=on", "max_connections=200", "restart_after_crash=off"}

// schemas counts the schemas of this process, so that each store under test has its own.
var schemas atomic.Int64

// sockets dials, and can break what it has dialed.
type sockets struct {
	mu   sync.Mutex
	open map[net.Conn]struct{} // guarded by mu

	// cut is the number of bytes after which the answer to the next group is cut off.
	// Negative: never.
	cut atomic.Int64
	got atomic.Int64 // bytes of the answer to the last group
}

func (d *sockets) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[net.Conn]struct{}{}
	}
	d.open[conn] = struct{}{}
	return &socket{Conn: conn, d: d}, nil
}

// breakAll closes all sockets.
func (d *sockets) breakAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.open {
		_ = conn.Close()
	}
	clear(d.open)
}

// A socket is a connection whose peer disappears in the middle of an answer.
type socket struct {
	net.Conn
	d     *sockets
	group atomic.Bool // the last message was a group
}

func (c *socket) Write(p []byte) (int, error) {
	if c.group.Store(bytes.Contains(p, []byte("\x00settle\x00"))); c.group.Load() {
		c.d.got.Store(0)
	}
	return c.Conn.Write(p)
}

func (c *socket) Read(p []byte) (int, error) {
	cut := c.d.cut.Load()
	if !c.group.Load() || cut < 0 {
		n, err := c.Conn.Read(p)
		if c.group.Load() {
			c.d.got.Add(int64(n))
		}
		return n, err
	}
	left := cut - c.d.got.Load()
	if left <= 0 {
		c.d.cut.Store(-1)
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
	c.d.got.Add(int64(n))
	return n, err
}

// options returns the options for a new schema on server.
func options(server *pgtest.Server) pgstore.Options {
	return pgstore.Options{DSN: server.DSN(), Single: true, Schema: fmt.Sprintf("t%d_%d", os.Getpid(), schemas.Add(1)), Timeout: 20 * time.Second}
}

// open opens a store, which is closed at the end of the test.
func open(t testing.TB, o pgstore.Options) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// execute runs a statement on server.
func execute(t testing.TB, server *pgtest.Server, sql string, args ...any) {
	t.Helper()
	conn := connect(t, server)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func connect(t testing.TB, server *pgtest.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
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
func reading(device string, timeUnixMs int64, v vitals.Hundredths) *storage.Entry {
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
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && strings.Contains(fmt.Sprint(m.Label), label) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
