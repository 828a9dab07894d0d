package settings

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// Secrets are not shown, whichever flag holds them; paths and numbers are none.
func TestSecretsAreMasked(t *testing.T) {
	for _, tt := range []struct {
		arg  string
		want string // line of the print
	}{
		{"--token=hush", "# token # secret, not shown; from flag"},
		{"--otlp-headers=Authorization=hush", "# otlp-headers # secret, not shown; from flag"},
		{"--pass=hush", "# pass # secret, not shown; from flag"},
		{"--target=http://user:hush@127.0.0.1:1/", "# target # secret, not shown; from flag"},
		{"--target=http://127.0.0.1:1/?token=hush", "# target # secret, not shown; from flag"},
		{"--target=http://%zz/hush", "# target # secret, not shown; from flag"},
		{"--target=http://127.0.0.1:1/x", `target = "http://127.0.0.1:1/x" # flag`},
		{"--token-file=/run/token", `token-file = "/run/token" # flag`},
		{"--token-rate=7", `token-rate = 7 # flag`},
		{"--token-age=1h", `token-age = "1h" # flag`},
		{"--token=", `token = "" # flag`},
	} {
		var cmds struct {
			Settings
			Serve struct {
				Token       string
				OtlpHeaders map[string]string `mapsep:","`
				Pass        string            `secret:""`
				Target      string
				TokenFile   string `type:"path"`
				TokenRate   int
				TokenAge    time.Duration
				Users       int `default:"100"`
			} `cmd:""`
		}
		cmds.LookupEnv = os.LookupEnv
		parser, err := kong.New(&cmds, Environment(), Units())
		if err != nil {
			t.Fatal(err)
		}
		ctx, err := parser.Parse([]string{"serve", tt.arg})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := cmds.Print(&out, ctx); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(regexp.MustCompile(` +`).ReplaceAllString(out.String(), " "), "\n")
		if strings.Contains(out.String(), "hush") || !slices.Contains(lines, tt.want) ||
			!slices.Contains(lines, "users = 100 # default") {
			t.Errorf("%s: want the line %s in\n%s", tt.arg, tt.want, out.String())
		}
	}
}

func TestParseBytes(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"1048576", 1 << 20, true}, {"-1", -1, true}, {"1MiB", 1 << 20, true}, {"1 MiB", 1 << 20, true},
		{"1.5GiB", 3 << 29, true}, {"1kB", 1000, true}, {"2GB", 2e9, true}, {"10B", 10, true}, {"2TiB", 2 << 40, true},
		{"", 0, false}, {"MiB", 0, false}, {"1K", 0, false}, {"1m", 0, false}, {"1 Mb", 0, false}, {"1.0001KiB", 0, false},
		{"NaN", 0, false}, {"InfMiB", 0, false}, {"9999999TiB", 0, false}, {"0x10", 0, false}, {"1MiBB", 0, false},
	} {
		got, err := parseBytes(tt.text)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("%q: got %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.ok)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Minute: "1h30m",
		time.Hour + time.Second: "1h0m1s",
		10 * time.Minute:        "10m", 100 * time.Hour: "100h", 96 * time.Hour: "4d", 1500 * time.Millisecond: "1.5s",
		10*time.Minute + 10*time.Second: "10m10s",
	} {
		got := FormatDuration(d)
		if back, err := ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%v: got %q, which is %v, %v; want %q", d, got, back, err, want)
		}
	}
}

// A formatted number of bytes has the largest unit that divides it, and parses as itself.
func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 1: "1", 1000: "1000", 1024: "1KiB", 1 << 16: "64KiB", 3 << 19: "1536KiB", 1 << 20: "1MiB", 1 << 30: "1GiB",
		1 << 40: "1TiB", -1: "-1",
	} {
		got := FormatBytes(n)
		if back, err := parseBytes(got); got != want || err != nil || back != n {
			t.Errorf("%d: got %q, which parses as %d, %v; want %q", n, got, back, err, want)
		}
	}
}

// The error for a bare number suggests the unit that fits the flag.
func TestUsualUnit(t *testing.T) {
	var cmds struct {
		Retain time.Duration `unit:"d"`
		Ahead  time.Duration `default:"5m"`
		Delay  time.Duration `default:"250ms"`
		Long   time.Duration `default:"1h30m"`
		None   time.Duration
	}
	parser, err := kong.New(&cmds, Units())
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"retain": "7d", "ahead": "7m", "delay": "7ms", "long": "7s", "none": "7s"} {
		if _, err := parser.Parse([]string{"--" + flag, "7"}); err == nil ||
			!strings.Contains(err.Error(), "7 needs a unit; did you mean "+want+"?") {
			t.Errorf("--%s: got %v, want a suggestion of %s", flag, err, want)
		}
	}
}
