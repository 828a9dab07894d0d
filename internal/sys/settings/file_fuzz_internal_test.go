package settings

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// Any file is read or rejected, and each problem has a line.
func FuzzConfigFile(f *testing.F) {
	for _, text := range []string{
		"[serve]\nmax-ahead = '5m'\naccept = { spo2_pct = '1..100' }\n",
		"serve.addr = 'x'\n[sim.run]\nusers = 3\nshare = { drop = 0.5 }",
		"[[serve]]\naddr = 1", "\"serve.addr\" = 1", "[serve.accept]\n'' = 1", "serve = { max-ahead = 300 }",
		"[serve]\naddr = 1979-05-27T07:32:00Z",
	} {
		f.Add([]byte(text))
	}
	var cmds struct {
		Serve struct {
			Addr          string
			Accept        map[string]string `mapsep:","`
			Insecure      bool
			Loops         int
			MaxAhead      time.Duration
			MaxBatchBytes int
			TraceSample   float64
			LogLevel      slog.Level
			FastLane      string `enum:"on,off" default:"on"`
		} `cmd:""`
		Sim struct {
			Run struct {
				Users int
				Share map[string]string `mapsep:","`
			} `cmd:""`
		} `cmd:""`
	}
	parser, err := kong.New(&cmds, Environment(), Units())
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "pulsegate.toml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := readFile(path, parser.Model)
		lines := 1 + strings.Count(string(text), "\n")
		var joined interface{ Unwrap() []error }
		if errors.As(err, &joined) {
			for _, err := range joined.Unwrap() {
				if p, ok := errors.AsType[problem](err); !ok || p.line < 1 || p.line > lines {
					t.Errorf("a problem without a line: %v", err)
				}
			}
		}
		if err == nil {
			for flag, v := range file.values {
				if v.line < 1 || v.line > lines {
					t.Errorf("--%s has line %d of %d", flag.Name, v.line, lines)
				}
			}
		}
	})
}
