package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/mux"
	"github.com/pulsegate/pulsegate/vitals"
)

// minLogOptions returns LogOptions with the lowest level and the smallest budget.
func minLogOptions(t *testing.T) *LogOptions {
	t.Helper()
	return &LogOptions{
		LogLevel: slog.LevelDebug, LogFormat: "text", LogBudget: logbudget.DefaultLinesPerMinute,
		AccessLog: "off",
	}
}

// TestFloodOfFaults repeats faults that a request can cause, each through the code
// that logs it in a running server.
func TestFloodOfFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults int
		cause  func(t *testing.T, logs *Log, faults int)
		like   string // the message of all lines
	}{
		{"stored readings cannot be read", 5000, readDamaged, "reading stored readings failed"},
		{"a handler panics", 1000, panicking, "request handler panicked"},
		{"connections without TLS", 1000, brokenTLS, "TLS handshake failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			flags := minLogOptions(t)
			logs, err := OpenLog(&out, flags)
			try(t, err)
			tt.cause(t, logs, tt.faults)
			logs.Close()
			lines := strings.Count(out.String(), "\n")
			if lines != flags.LogBudget+1 || strings.Count(out.String(), `msg="`+tt.like+`"`) != flags.LogBudget {
				t.Errorf("%d lines, want %d and a summary, all of %q; the first: %.300s", lines, flags.LogBudget, tt.like,
					out.String())
			}
			if out.Len() > logbudget.DefaultBytesPerMinute {
				t.Errorf("%d bytes, promised are %d", out.Len(), logbudget.DefaultBytesPerMinute)
			}
			s := logs.lines.Stats()
			if got := int(s.Suppressed) + lines - 1; got != tt.faults {
				t.Errorf("%d faults are logged or counted, want %d", got, tt.faults)
			}
		})
	}
}

// damaged is a store whose reads fail.
type damaged struct {
	query.Reader
	query.Lister
}

func (damaged) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return storage.Device{}, errors.New("checksum of block 17 does not match")
}

// readDamaged requests readings through the routes of serve.
func readDamaged(t *testing.T, logs *Log, faults int) {
	t.Helper()
	router := mux.NewRouter()
	reads := query.New(damaged{}, damaged{}, query.Options{Service: query.Service{
		Problems: problem.New(),
		Param:    mux.Var,
		OnError:  func(err error) { logs.Error("reading stored readings failed", "error", err) },
	}})
	router.HandleFunc("/v1/devices/{device}", reads.Device)
	r := httptest.NewRequest("GET", "/v1/devices/d", nil)
	for range faults {
		router.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// panicking makes a handler panic on every connection.
func panicking(t *testing.T, logs *Log, faults int) {
	t.Helper()
	serveConns(t, logs, faults, func(srv *http.Server, l net.Listener) error { return srv.Serve(l) },
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

// brokenTLS sends bytes that are not a handshake.
func brokenTLS(t *testing.T, logs *Log, faults int) {
	t.Helper()
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	serveConns(t, logs, faults, func(srv *http.Server, l net.Listener) error {
		a := &access{log: logs.Logger}
		return srv.Serve(listen.TLS(l, &share.Conns{Max: 1, MaxGuests: 1}, listen.Handshakes{
			Config: cert.TLS, Slots: 1, Timeout: polltest.Patience, Failed: a.handshakeFailed,
		}))
	}, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

// serveConns serves conns connections in memory, each of which sends text.
func serveConns(t *testing.T, logs *Log, conns int, serve func(*http.Server, net.Listener) error, text string) {
	t.Helper()
	srv := &http.Server{
		ErrorLog: logs.httpErrors(),
		Handler:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }),
	}
	l := &pipeListener{conns: make(chan net.Conn)}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := serve(srv, l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	for range conns {
		client, server := net.Pipe()
		l.conns <- server
		_, _ = io.WriteString(client, text) // net/http may have closed it already
		_, _ = io.Copy(io.Discard, client)
		client.Close()
	}
	if err := srv.Shutdown(context.Background()); err != nil { // everything has then been logged
		t.Error(err)
	}
	wg.Wait()
}

// A pipeListener accepts in-memory connections.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

var try = polltest.Try
