package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/admin"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// A fixture is a server with a scripted store and audit log.
type fixture struct {
	backupErr, sendErr, eraseErr, recordErr error

	sent     string // content of a backup, before sendErr
	closed   int
	erased   []string
	recorded []audit.Record
	log      bytes.Buffer

	client *transfer.Client
	server *httptest.Server

	none bool // the erased device has no readings
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{sent: "an archive"}
	h := admin.NewHandler(admin.Options{
		Backup: func() (admin.Copy, error) {
			if f.backupErr != nil {
				return nil, f.backupErr
			}
			return f, nil
		},
		Erase: func(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error) {
			f.erased = append(f.erased, device.String())
			e := storage.Erasure{Device: device, Readings: 7}
			if f.none {
				e.Readings = 0
			}
			if f.eraseErr != nil {
				return e, f.eraseErr
			}
			if err := record(e); err != nil {
				return e, fmt.Errorf("%w: %w", storage.ErrUnfinished, err)
			}
			return e, nil
		},
		Record: func(r audit.Record) error {
			f.recorded = append(f.recorded, r)
			return f.recordErr
		},
		Actor:    func(context.Context) string { return "token:abc" },
		Problems: problem.New(),
		Log:      slog.New(slog.NewTextHandler(&f.log, nil)),
	})
	routes := http.NewServeMux()
	routes.HandleFunc("POST "+transfer.BackupPath, h.Backup)
	routes.HandleFunc("POST "+transfer.ErasePath, h.Erase)
	f.server = httptest.NewUnstartedServer(routes)
	f.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	f.server.Start()
	t.Cleanup(f.server.Close)
	var err error
	f.client, err = transfer.NewClient(f.server.URL, transfer.Credentials{})
	try(t, err)
	t.Cleanup(f.client.Close)
	return f
}

// A fixture is its own backup.
func (f *fixture) Bytes() int64 { return 4711 }
func (f *fixture) Close() error { f.closed++; return nil }

func (f *fixture) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, f.sent)
	return int64(n), errors.Join(err, f.sendErr)
}

// fetch returns what a client receives of a backup, and closes the server.
func (f *fixture) fetch(t *testing.T) (text string, bytes int64, err error) {
	t.Helper()
	err = f.client.Backup(t.Context(), func(archive io.Reader, n int64) error {
		b, err := io.ReadAll(archive)
		text, bytes = string(b), n
		return err
	})
	f.client.Close()
	f.server.Close() // waits for the handler
	return text, bytes, err
}

func TestBackup(t *testing.T) {
	f := newFixture(t)
	f.sent = strings.Repeat("an archive ", 100_000)
	text, n, err := f.fetch(t)
	if err != nil || text != f.sent || n != 4711 {
		t.Errorf("the client got %d bytes, announced %d, %v", len(text), n, err)
	}
	if f.closed != 1 {
		t.Errorf("the copy was closed %d times, want once", f.closed)
	}
	if len(f.recorded) != 1 || f.recorded[0].Event != audit.BackedUp || f.recorded[0].Actor != "token:abc" ||
		!f.recorded[0].Peer.IsLoopback() {
		t.Errorf("recorded: %+v", f.recorded)
	}
}

// A backup that fails is detectably incomplete, even if no byte is missing.
func TestBackupCutOff(t *testing.T) {
	for _, sent := range []string{"", "short", strings.Repeat("long ", 1_000_000)} {
		f := newFixture(t)
		f.sent, f.sendErr = sent, errors.New("input/output error")
		text, _, err := f.fetch(t)
		if err == nil {
			t.Errorf("of %d bytes the client got %d, and no error", len(sent), len(text))
		}
		if f.closed != 1 {
			t.Errorf("the copy was closed %d times, want once", f.closed)
		}
		if !strings.Contains(f.log.String(), "a backup was cut off") {
			t.Errorf("the log is %q", f.log.String())
		}
	}
}

// Over HTTP/1.0, whose answers have no end, no backup is sent.
func TestBackupOldHTTP(t *testing.T) {
	f := newFixture(t)
	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	try(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST "+transfer.BackupPath+" HTTP/1.0\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	try(t, err)
	answer, err := io.ReadAll(conn)
	try(t, err)
	if text := string(answer); !strings.Contains(text, " 426 ") || !strings.Contains(text, "#old-http") ||
		len(f.recorded) != 0 {
		t.Errorf("the answer is %s, recorded: %+v", text, f.recorded)
	}
}

func TestBackupNotRecorded(t *testing.T) {
	f := newFixture(t)
	f.recordErr = errors.New("no space left")
	_, _, err := f.fetch(t)
	if problem, ok := errors.AsType[*transfer.Problem](err); !ok || problem.Status != 500 ||
		!strings.Contains(problem.Detail, "audit log") {
		t.Errorf("got %v, want 500 about the audit log", err)
	}
	if f.closed != 1 {
		t.Errorf("the copy was closed %d times, want once", f.closed)
	}
}

func TestErase(t *testing.T) {
	f := newFixture(t)
	n, err := f.client.Erase(t.Context(), "ppg-1")
	if err != nil || n != 7 || len(f.erased) != 1 || f.erased[0] != "ppg-1" {
		t.Errorf("Erase returns %d, %v; erased: %v", n, err, f.erased)
	}
	want := audit.Record{Event: audit.Erased, Count: 7, Actor: "token:abc"}
	if len(f.recorded) != 1 || f.recorded[0].Device.String() != "ppg-1" {
		t.Fatalf("recorded: %+v", f.recorded)
	}
	if got := f.recorded[0]; got.Event != want.Event || got.Count != want.Count || got.Actor != want.Actor {
		t.Errorf("recorded: %+v, want %+v", got, want)
	}
	f.recordErr = errors.New("no space left")
	_, err = f.client.Erase(t.Context(), "ppg-1")
	if problem, ok := errors.AsType[*transfer.Problem](err); !ok ||
		!strings.HasSuffix(problem.Type, "#erasure-unfinished") || !strings.Contains(problem.Detail, "is erased") {
		t.Errorf("when it cannot be recorded: %v, want 500 with that detail", err)
	}
}

// TestEraseRest checks the response if no readings were stored.
func TestEraseRest(t *testing.T) {
	for none, want := range map[bool]string{
		false: `{"device":"ppg-1","erased":7}`,
		true: `{"device":"ppg-1","erased":0,"detail":"No readings were stored. Remains of earlier readings in its files ` +
			`are removed."}`,
	} {
		f := newFixture(t)
		f.none = none
		resp, err := http.Post(f.server.URL+transfer.ErasePath, "application/json", strings.NewReader(`{"device":"ppg-1"}`))
		try(t, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := strings.TrimSpace(string(text)); err != nil || got != want {
			t.Errorf("answered %s, %v, want %s", got, err, want)
		}
		if len(f.recorded) != 1 {
			t.Errorf("recorded: %+v", f.recorded)
		}
	}
}

// TestRejected checks the response to each error of a store.
func TestRejected(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		typ    string
	}{
		{storage.ErrNotFound, 404, "unknown-device"},
		{storage.ErrBusy, 503, "busy"},
		{storage.ErrClosed, 503, "draining"},
		{storage.ErrDiskLow, 503, "disk-low"},
		{storage.ErrFailed, 503, "store-failed"},
		{storage.ErrUnfinished, 500, "erasure-unfinished"},
		{fmt.Errorf("%w: %w", storage.ErrUnfinished, storage.ErrDiskLow), 500, "erasure-unfinished"},
		{errors.New("input/output error"), 500, "read-failed"},
	} {
		f := newFixture(t)
		f.eraseErr, f.backupErr = fmt.Errorf("erase: %w", tt.err), fmt.Errorf("back up: %w", tt.err)
		_, eraseErr := f.client.Erase(t.Context(), "ppg-1")
		_, _, backupErr := f.fetch(t) // closes the server
		for what, err := range map[string]error{"erase": eraseErr, "backup": backupErr} {
			problem, ok := errors.AsType[*transfer.Problem](err)
			if !ok || problem.Status != tt.status || !strings.HasSuffix(problem.Type, "#"+tt.typ) {
				t.Errorf("%s: %v is answered %v, want %d %s", what, tt.err, err, tt.status, tt.typ)
			}
		}
		if len(f.recorded) > 0 || f.closed > 0 {
			t.Errorf("%v: recorded %v, closed %d times", tt.err, f.recorded, f.closed)
		}
	}
}

// TestEraseBodies checks that bodies that do not name one device are rejected.
func TestEraseBodies(t *testing.T) {
	f := newFixture(t)
	for body, want := range map[string]int{
		``:                               400,
		`{}`:                             400,
		`{"device":""}`:                  400,
		`{"device":"a b"}`:               400,
		`{"device":7}`:                   400,
		`{"device":"a","devices":"b"}`:   400,
		`{"device":"a","device":"b"}`:    400,
		`{"device":"a"}x`:                400,
		`["a"]`:                          400,
		strings.Repeat(" ", 4097) + `{}`: 413,
		`{"device":"a"}`:                 200,
	} {
		resp, err := http.Post(f.server.URL+transfer.ErasePath, "application/json", strings.NewReader(body))
		try(t, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want {
			t.Errorf("%.40q: %d %s %v, want %d", body, resp.StatusCode, text, err, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if len(f.erased) != 1 {
		t.Errorf("erased: %v", f.erased)
	}
}

// TestHeader checks that both ends use the same header and paths.
func TestHeader(t *testing.T) {
	f := newFixture(t)
	resp, err := http.Post(f.server.URL+transfer.BackupPath, "", nil)
	try(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	if got := resp.Header.Get(admin.BytesHeader); got != "4711" || resp.Header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("the header is %v", resp.Header)
	}
}

var try = polltest.Try
