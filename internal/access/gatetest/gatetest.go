// Package gatetest makes gates with tokens and an audit log, for tests.
//
// # Promise
//
// A gate reloads its tokens when the test says so, and not by itself.
//
// # Not here
//
// No rights, limits or names: each test needs others. No errors: they fail the test.
package gatetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// Files are the files of a gate.
type Files struct {
	Tokens string // path of the token file
	Log    string // path of the audit log
}

// New returns files in a new directory. They do not exist yet.
func New(tb testing.TB) *Files {
	dir := tb.TempDir()
	return &Files{filepath.Join(dir, "tokens"), filepath.Join(dir, "audit")}
}

// Token creates a token for a gateway, and devices whose names begin with devices, unless that is
// "". It returns the token as the value of an Authorization header.
func (f *Files) Token(tb testing.TB, gateway, devices string, spec token.Token) (header string) {
	tb.Helper()
	created := time.Now()
	if !spec.Expires.IsZero() {
		created = spec.Expires.Add(-time.Hour)
	}
	name := func(text string) (name vitals.Name) {
		var err error
		if name, err = vitals.ParseName(text); err != nil && text != "" {
			tb.Fatal(err)
		}
		return name
	}
	spec.Gateway, spec.Devices = name(gateway), name(devices)
	keeper := token.Keeper{Path: f.Tokens}
	_, err := keeper.Create(tb.Context(), spec, created, func(text string) error { header = "Bearer " + text; return nil })
	if err != nil {
		tb.Fatal(err)
	}
	return header
}

// Revoke revokes the tokens of a gateway, or all if it is "". A gate does not notice before a Reload.
func (f *Files) Revoke(tb testing.TB, gateway string) {
	tb.Helper()
	of := func(t *token.Token) bool { return gateway == "" || t.Gateway.String() == gateway }
	keeper := token.Keeper{Path: f.Tokens}
	if _, err := keeper.Revoke(tb.Context(), of); err != nil {
		tb.Fatal(err)
	}
}

// Open returns a gate with the files. It is closed at the end of the test.
func (f *Files) Open(tb testing.TB) *gate.Gate {
	tb.Helper()
	set, err := token.Open(f.Tokens, token.Options{Every: -1})
	if err != nil {
		tb.Fatal(err)
	}
	log, err := audit.Open(tb.Context(), f.Log, audit.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		set.Close()
		_ = log.Close() // a test may have closed it already
	})
	return &gate.Gate{Tokens: set, Audit: log}
}

// Records returns the lines of an event in the audit log.
func (f *Files) Records(tb testing.TB, event string) (lines []string) {
	tb.Helper()
	text, err := os.ReadFile(f.Log)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, fmt.Sprintf(`"event":%q`, event)) {
			lines = append(lines, line)
		}
	}
	return lines
}
