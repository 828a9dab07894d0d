package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/server"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// options returns the options of a server without flags, on free ports.
func options(t *testing.T) *server.Options {
	t.Helper()
	opt := new(server.Options)
	parser, err := kong.New(opt, settings.Defaults(server.Defaults()), settings.Units())
	try(t, err)
	if _, err := parser.Parse(nil); err != nil {
		t.Fatal(err)
	}
	opt.Addr, opt.AdminAddr, opt.Data = "127.0.0.1:0", "", filepath.Join(t.TempDir(), "data")
	opt.MinFreeBytes = -1
	opt.Getenv = func(string) string { return "" }
	return opt
}

// run runs a server until serving returns, and returns its log.
func run(t *testing.T, opt *server.Options, serving func(url string) error) (log string, err error) {
	t.Helper()
	var out bytes.Buffer
	logs, err := server.OpenLog(&out, &opt.LogOptions)
	try(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*polltest.Patience)
	defer cancel()
	err = server.Run(ctx, opt, logs, func(_ context.Context, addr net.Addr) error {
		defer cancel()
		return serving("http://" + addr.String())
	})
	logs.Close()
	return out.String(), err
}

// Run returns the error that keeps a server from starting, or that ends it, and closes
// what it opened: a server on the same directory starts afterwards. A server that is refused
// before it serves creates no data directory.
//
// Seen to fail when the store is opened before the listeners.
func TestRunFails(t *testing.T) {
	opt := options(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	defer taken.Close()
	errServing := errors.New("the caller's error")
	for _, tt := range []struct {
		name  string
		edit  func(*server.Options)
		usage bool
		opens bool // the store
		want  string
	}{
		{"an impossible bound", func(o *server.Options) { o.MaxWait = 0 }, true, false, "--max-wait must be above 0"},
		{"no token file", func(o *server.Options) {
			none := ""
			o.Tokens, o.Audit = filepath.Join(t.TempDir(), "tokens"), &none
		}, false, false, "pulsegate token create"},
		{"public address taken", func(o *server.Options) { o.Addr = taken.Addr().String() }, false, false,
			"open public listener"},
		{"admin address taken", func(o *server.Options) { o.AdminAddr = taken.Addr().String() }, false, false,
			"open admin listener"},
		{"onServing fails", func(*server.Options) {}, false, true, errServing.Error()},
	} {
		broken := *opt
		tt.edit(&broken)
		_, err := run(t, &broken, func(string) error { return errServing })
		if _, usage := errors.AsType[settings.UsageError](err); err == nil || usage != tt.usage ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
		if _, err := os.Stat(opt.Data); !tt.opens && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: there is a data directory, %v", tt.name, err)
		}
	}
	if _, err := run(t, opt, func(string) error { return nil }); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A bit of a table is flipped while the server runs, and no request reads it. readyz and the
// log name the damage, and readings are accepted as before.
//
// Seen to fail with the mutant scrub-nothing.
func TestScrub(t *testing.T) {
	opt := options(t)
	send := func(url, body, want string) error {
		status, text, err := post(url+"/v1/readings", body)
		if err == nil && text != want+"\n" {
			err = fmt.Errorf("answered %d %s, want %s", status, text, want)
		}
		return err
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, `{"device":"cold","time":%d,"spo2_pct":97}`+"\n", 1_763_000_000_000+i*1000)
	}
	if _, err := run(t, opt, func(url string) error {
		return send(url, many.String(), `{"stored":1000,"duplicate":0}`)
	}); err != nil {
		t.Fatal(err)
	}

	opt.Scrub = time.Minute
	log, err := run(t, opt, func(url string) error {
		defer http.DefaultClient.CloseIdleConnections()
		tables, err := filepath.Glob(filepath.Join(opt.Data, "*.sst"))
		if err != nil || len(tables) != 1 {
			return fmt.Errorf("there are tables %q, %v; want one", tables, err)
		}
		table, err := os.ReadFile(tables[0])
		if err != nil {
			return err
		}
		table[len(table)/2] ^= 1
		if err := os.WriteFile(tables[0], table, 0o600); err != nil {
			return err
		}
		polltest.Until(t, "readyz names the damage", func() bool {
			text, err := get(url + "/readyz")
			return err == nil && text == `{"status":"ready","degraded":["damage"]}`+"\n"
		})
		return send(url, `{"device":"warm","time":1763700000000,"spo2_pct":97}`, `{"status":"stored"}`)
	})
	if err != nil || !strings.Contains(log, ".sst") || strings.Contains(log, "cold") {
		t.Errorf("got %v, and the log\n%s", err, log)
	}
}

var try = polltest.Try
