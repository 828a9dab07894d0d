package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// contents returns the contents of a file, or "none".
func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	try(t, err)
	return string(text)
}

// An output is complete or does not exist, whether it is written, abandoned or fails.
func TestOutput(t *testing.T) {
	failure := errors.New("failure")
	write := func(text string, err error) func(*output) error {
		return func(o *output) error {
			defer o.abandon() // does nothing after write
			return o.write(func(w io.Writer) error {
				_, _ = io.WriteString(w, text)
				return err
			})
		}
	}
	abandon := func(o *output) error { o.abandon(); return nil }
	for _, tt := range []struct {
		name    string
		act     func(*output) error
		wantErr error
		want    string
	}{
		{"written", write("text", nil), nil, "text"},
		{"failed", write("te", failure), failure, "none"},
		{"abandoned", abandon, nil, "none"},
	} {
		path := filepath.Join(t.TempDir(), "file")
		o, err := createOutput("--out", path)
		try(t, err)
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("a new file: %v, %v; want mode 0600", info, err)
		}
		if _, err := createOutput("--out", path); !errors.As(err, new(settings.UsageError)) {
			t.Errorf("a file that exists: got %v, want a usage error", err)
		}
		if err := tt.act(o); !errors.Is(err, tt.wantErr) || contents(t, path) != tt.want {
			t.Errorf("%s: got %v and %q, want %v and %q", tt.name, err, contents(t, path), tt.wantErr, tt.want)
		}
	}
}
