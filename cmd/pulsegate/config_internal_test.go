package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

var try = polltest.Try

// runCommand runs a command line in this process.
func runCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	code = run(context.Background(), args, stdio{in: strings.NewReader(""), out: &out, err: &errs})
	return out.String(), errs.String(), code
}

// configText writes a settings file and returns its path.
func configText(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pulsegate.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A flag overrides a variable, which overrides the file, which overrides the default.
func TestPrecedence(t *testing.T) {
	const flag, variable, file = 1, 2, 4
	for from := range 8 {
		args, want := []string{"serve", "--print-config"}, "log-budget = 30 # default"
		path := configText(t, "\n[serve]\nlog-budget = 31")
		t.Run(fmt.Sprintf("%03b", from), func(t *testing.T) {
			if from&file != 0 {
				args = append(args, "--config", path)
				want = "log-budget = 31 # " + path + ":3"
			}
			if from&variable != 0 {
				t.Setenv("PULSEGATE_LOG_BUDGET", "32")
				want = "log-budget = 32 # env PULSEGATE_LOG_BUDGET"
			}
			if from&flag != 0 {
				args = append(args, "--log-budget=33")
				want = "log-budget = 33 # flag"
			}
			out, errs, code := runCommand(t, args...)
			if code != 0 || errs != "" || !slices.Contains(collapseSpaces(out), want) {
				t.Errorf("exit code %d, %s\nwant the line %q in\n%s", code, errs, want, out)
			}
		})
	}
}

// collapseSpaces returns the lines of a text with single spaces.
func collapseSpaces(text string) []string {
	return strings.Split(regexp.MustCompile(` +`).ReplaceAllString(text, " "), "\n")
}

// The output of --print-config has the effect of the settings that it shows.
func TestPrintConfigRoundTrip(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string
		env  map[string]string
		args []string
		want string // one of the settings
	}{
		{"defaults", "", nil, nil, `addr = "127.0.0.1:8080"`},
		{"flags", "", nil, []string{"--accept=spo2_pct=50..100,heart_rate_bpm=30..200", "--insecure", "--admin-addr=",
			"--max-ahead=90m"}, `admin-addr = ""`},
		{"variables", "", map[string]string{"PULSEGATE_USUAL": "spo2_pct=95..100", "PULSEGATE_LOG_LEVEL": "warn",
			"PULSEGATE_DATA": `a "b" \c`}, nil, `log-level = "warn"`},
		{"file", "[serve]\naccept = { spo2_pct = \"50..100\" }\nmin-free-bytes = \"1.5MiB\"\ntrace-sample = 1e-3\n", nil, nil,
			`min-free-bytes = 1572864`},
		{"dotted keys", "serve.max-ahead = \"300s\"\n[serve.accept]\nspo2_pct = \"50..100\"\n", nil, nil, `max-ahead = "5m"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"serve", "--print-config"}, tt.args...)
			if tt.file != "" {
				args = append(args, "--config", configText(t, tt.file))
			}
			print := func(args []string) string {
				t.Helper()
				out, errs, code := runCommand(t, args...)
				if code != 0 || errs != "" {
					t.Fatalf("%v: exit code %d, %s", args, code, errs)
				}
				return out
			}
			restore := map[string]func(){}
			for name, value := range tt.env {
				try(t, os.Setenv(name, value))
				restore[name] = func() { os.Unsetenv(name) }
				defer restore[name]()
			}
			first := print(args)
			for _, f := range restore {
				f()
			}
			path := configText(t, first)
			second := print([]string{"serve", "--print-config", "--config", path})
			if got, want := values(second), values(first); !slices.Equal(got, want) {
				t.Errorf("printed again, the settings are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if !slices.Contains(values(first), tt.want) {
				t.Errorf("no line %s in\n%s", tt.want, first)
			}
			if strings.Contains(second, "# default") || strings.Contains(second, "# env") ||
				strings.Count(second, "# "+path+":") < 25 {
				t.Errorf("some settings do not come from the file:\n%s", second)
			}
		})
	}
}

// values returns the settings of a printed configuration, without their sources.
func values(text string) (lines []string) {
	for line := range strings.Lines(text) {
		setting, _, _ := strings.Cut(line, " # ")
		if setting = strings.TrimSpace(setting); !strings.HasPrefix(setting, "#") && setting != "" {
			lines = append(lines, setting)
		}
	}
	return lines
}

// A mistake in any source is a usage error, before anything starts.
func TestConfigErrorsAreWrongUsage(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string
		args []string
		env  string // value of PULSEGATE_MAX_AHEAD
		want string
	}{
		{"file", "[serve]\nmax-ahead = 300", nil, "",
			"pulsegate.toml:2: serve.max-ahead: 300 needs a unit; did you mean 300m? (the units are ms, s, m, h and d)"},
		{"no file", "", []string{"--config=nowhere.toml"}, "", "nowhere.toml: no such file"},
		{"flag", "", []string{"--max-ahead=300"}, "",
			"--max-ahead: 300 needs a unit; did you mean 300m? (the units are ms, s, m, h and d)"},
		{"flag of unclear unit", "", []string{"--min-free-bytes=1M"}, "",
			`--min-free-bytes: "1M" is not a number of bytes; did you mean 1MiB?`},
		{"variable", "", nil, "300",
			`--max-ahead: 300 needs a unit; did you mean 300m? (the units are ms, s, m, h and d) (from envar ` +
				`PULSEGATE_MAX_AHEAD="300")`},
		{"variable, with a file", "[serve]\nmax-ahead = '1m'", nil, "300",
			`--max-ahead: 300 needs a unit; did you mean 300m? (the units are ms, s, m, h and d) (from envar ` +
				`PULSEGATE_MAX_AHEAD="300")`},
		{"too few", "[serve]\nlog-budget = 0", nil, "", "--log-budget must be at least 1"},
		{"no port", "[serve]\naddr = '127.0.0.1'", nil, "",
			"--addr: address 127.0.0.1: missing port in address; did you mean 127.0.0.1:8080?"},
		{"no host for administrators", "[serve]\nadmin-addr = '6060'", nil, "", "did you mean 127.0.0.1:6060?"},
		{"no unit, usually days", "[serve]\nretain = 400", nil, "", "retain: 400 needs a unit; did you mean 400d?"},
		{"unknown sign", "", []string{"--accept=spo2=1..100"}, "",
			"the signs are systolic_mmhg, diastolic_mmhg, spo2_pct, heart_rate_bpm, resting_heart_rate_bpm"},
		{"open to everybody", "[serve]\naddr = ':8080'", nil, "", "name a token file with --tokens"},
		{"read timeout of zero", "[serve]\nread-timeout = '0s'", nil, "", "--read-timeout must be above 0"},
		{"negative drain delay", "[serve]\ndrain-delay = '-1s'", nil, "", "--drain-delay must be at least 0s"},
		{"negative drain timeout", "[serve]\ndrain-timeout = '-1s'", nil, "", "--drain-timeout must be at least 0s"},
		{"sample above 1", "[serve]\ntrace-sample = 1.5", nil, "", "--trace-sample must be from 0 to 1"},
		{"sample below 0", "[serve]\ntrace-sample = -0.1", nil, "", "--trace-sample must be from 0 to 1"},
		{"sample is no number", "[serve]\ntrace-sample = nan", nil, "", "--trace-sample must be from 0 to 1"},
		{"endpoint of another scheme", "[serve]\notlp-endpoint = \"ftp://127.0.0.1\"", nil, "",
			"is not of the form http://host:port"},
		{"collector without a scheme", "[serve]\notlp-endpoint = 'collector:4318'", nil, "", "--otlp-endpoint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"serve", "--print-config"}
			if tt.file != "" {
				args = append(args, "--config", configText(t, tt.file))
			}
			if tt.env != "" {
				t.Setenv("PULSEGATE_MAX_AHEAD", tt.env)
			}
			_, errs, code := runCommand(t, append(args, tt.args...)...)
			if code != exitUsage || !strings.Contains(errs, tt.want) {
				t.Errorf("exit code %d, want %d, and %q in\n%s", code, exitUsage, tt.want, errs)
			}
		})
	}
}

// A parser that knows one command describes it as a parser of all does.
func TestOnly(t *testing.T) {
	described := func(only string) (all []settings.Command) {
		t.Helper()
		parser, err := newParser(new(commands), stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard}, only)
		try(t, err)
		return settings.Commands(parser.Model)[1:]
	}
	want := map[string][]settings.Command{} // by the name of the first of the nested commands
	for _, c := range described("") {
		name, _, _ := strings.Cut(c.Path, " ")
		want[name] = append(want[name], c)
	}
	for name := range want {
		if got := described(only([]string{name}, nil)); name != "help" && name != "completion" && name != "man" &&
			!reflect.DeepEqual(got, want[name]) {
			t.Errorf("%s is described as %v, want %v", name, got, want[name])
		}
	}
	for _, args := range []string{"", "--help", "help serve", "serve --config=file", "serve --config file"} {
		if got := only(strings.Fields(args), nil); got != "" && want[got] != nil {
			t.Errorf("%q needs only %s", args, got)
		}
	}
	if got := only([]string{"serve"}, []string{"PULSEGATE_TOKEN=a", "PULSEGATE_THREADS=2"}); got != "" {
		t.Errorf("with a variable of sim, only %s is needed", got)
	}
}

// Variables that set nothing are reported, except those of Kubernetes.
func TestUnknownVariables(t *testing.T) {
	parser, err := newParser(new(commands), stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard}, "")
	try(t, err)
	for _, tt := range []struct{ entry, want string }{
		{"PULSEGATE_MAX_AHEAD=1m", ""},
		{"PULSEGATE_LOGLEVEL=debug", "the environment variable PULSEGATE_LOGLEVEL sets nothing"},
		{"PULSEGATE_SOMETHING_ELSE=secret", "the environment variable PULSEGATE_SOMETHING_ELSE sets nothing"},
		{"PULSEGATE_PRINT_CONFIG=1", "the environment variable PULSEGATE_PRINT_CONFIG sets nothing"},
		{"PULSEGATE_TOKEN=secret", ""},
		{"OTHER=1", ""},
		{"PULSEGATE_SERVICE_HOST=10.0.0.1", ""},
		{"PULSEGATE_SERVICE_PORT=8080", ""},
		{"PULSEGATE_SERVICE_PORT_HTTP=8080", ""},
		{"PULSEGATE_PORT=tcp://10.0.0.1:8080", ""},
		{"PULSEGATE_PORT=8080", "the environment variable PULSEGATE_PORT sets nothing"},
		{"PULSEGATE_PORT_8080_TCP=tcp://10.0.0.1:8080", ""},
		{"PULSEGATE_PORT_8080_TCP_ADDR=10.0.0.1", ""},
		{"PULSEGATE_HEADLESS_SERVICE_HOST=10.0.0.1", ""},
		{"PULSEGATE_HEADLESS_PORT_8080_TCP_PROTO=tcp", ""},
	} {
		got := strings.Join(settings.UnknownVariables([]string{tt.entry}, parser.Model.Node, tokenVariable), "\n")
		if got != tt.want && !(tt.want != "" && strings.HasPrefix(got, tt.want) && strings.Contains(tt.entry, "=8080")) {
			t.Errorf("%s: got %q, want %q", tt.entry, got, tt.want)
		}
	}
	// No variable of a Service sets a flag, and only flags of the same name share a variable, unless
	// a tag says so.
	names := map[string]string{}
	err = kong.Visit(parser.Model, func(n kong.Visitable, next kong.Next) error {
		flag, ok := n.(*kong.Flag)
		if !ok {
			return next(nil)
		}
		for _, name := range flag.Envs {
			if other, ok := names[name]; ok && other != flag.Name && flag.Tag.Get("env") != name {
				t.Errorf("%s sets --%s and --%s", name, other, flag.Name)
			}
			names[name] = flag.Name
			if strings.HasPrefix(name, "PULSEGATE_") &&
				len(settings.UnknownVariables([]string{name + "=8080", name + "=tcp://10.0.0.1:8080"}, new(kong.Node), "")) < 2 {
				t.Errorf("--%s: Kubernetes sets %s for a Service", flag.Name, name)
			}
		}
		if len(flag.Envs) == 0 && flag.Name != "help" && !flag.Tag.Has("action") {
			t.Errorf("--%s has no variable", flag.Name)
		}
		return next(nil)
	})
	if err != nil {
		t.Error(err)
	}
	t.Setenv("PULSEGATE_LOGLEVEL", "secret")
	if _, errs, _ := runCommand(t,
		"version"); errs != "pulsegate: warning: the environment variable PULSEGATE_LOGLEVEL sets nothing\n" {
		t.Errorf("version warns %q", errs)
	}
}

// The help of a command shows the flags that the command accepts, in groups, with their defaults
// and without types of Go.
func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"sim", "--help"}, []string{"Usage: pulsegate sim", "--users=N", "(default: 100)", "--verify",
			"--allow-remote", "sim verify"}},
		{[]string{"sim", "run", "--help"}, []string{"--users=N"}},
		{[]string{"profile", "--help"}, []string{"--save=DIR", "<target>", "go tool pprof"}},
		{[]string{"--help"}, []string{"--config=FILE", "--version", "serve", "devices", "Read and write readings:",
			"Administer:"}},
		{[]string{"serve", "--help"}, []string{
			"What most people set:", "Keep readings:", "Decide who may write and read:", "Bound memory and times:",
			"Log and trace:", "Flags of every command:", "Examples:",
			"--print-config", "--max-ahead=DURATION", "(default: 5m)", "(default: keep for ever)", "--log-format=text|json",
			"(default: 256MiB)", "(default: 60s)",
			"($OTEL_EXPORTER_OTLP_ENDPOINT)",
		}},
		{[]string{"export", "--help"}, []string{"Usage: pulsegate export [flags]", "--out-dir=DIR", "--data=DIR",
			"(default: http://127.0.0.1:8080)"}},
		{[]string{"help"}, []string{"Usage: pulsegate <command>", "--config=FILE"}},
		{[]string{"help", "serve"}, []string{"Usage: pulsegate serve", "--print-config"}},
		{[]string{"help", "token", "create"}, []string{"Usage: pulsegate token create", "--out=FILE"}},
	} {
		out, errs, code := runCommand(t, tt.args...)
		text := strings.Join(strings.Fields(out), " ") // descriptions are wrapped
		for _, want := range tt.want {
			if code != 0 || errs != "" || !strings.Contains(text, want) {
				t.Errorf("%v: exit code %d, want 0, and %q in\n%s%s", tt.args, code, want, out, errs)
			}
		}
		if m := regexp.MustCompile(`=INT|=FLOAT|=STRING|retain=400d`).FindString(out); m != "" {
			t.Errorf("%v: the help has %s:\n%s", tt.args, m, out)
		}
	}
	texts, err := helpTexts.ReadDir("help")
	try(t, err)
	for _, file := range texts {
		text, err := helpTexts.ReadFile("help/" + file.Name())
		try(t, err)
		last := strings.TrimSpace(string(text[bytes.LastIndexByte(bytes.TrimSpace(text), '\n')+1:]))
		if out, _, _ := runCommand(t,
			append([]string{"help"}, strings.SplitN(strings.TrimSuffix(file.Name(), ".txt"), "-", 2)...)...); !strings.Contains(
			out, last) {
			t.Errorf("no help shows help/%s:\n%s", file.Name(), out)
		}
	}
	if out, _, _ := runCommand(t, "sim", "verify", "--help"); strings.Contains(out, "--users") {
		t.Errorf("sim verify --help shows the flags of run:\n%s", out)
	}
	if out, errs, code := runCommand(t, "--version"); out != "pulsegate "+versionText()+"\n" || errs != "" || code != 0 {
		t.Errorf("--version: exit code %d, %q, %q", code, out, errs)
	}
}

// An invalid command line exits with 64 and names the help of its command; a command that fails exits with 1.
func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
		text string // in the output
	}{
		{[]string{"version"}, 0, "go1."},
		{[]string{"nonsense"}, exitUsage, `unknown command "nonsense"`},
		{[]string{"serv"}, exitUsage, `unknown command "serv", did you mean "serve"?`},
		{[]string{"token"}, exitUsage, `missing command: "create", "list", "revoke"`},
		{[]string{"token", "nonsense"}, exitUsage, `unknown command "nonsense"`},
		{[]string{"check"}, exitUsage, "missing argument: <dir>"},
		{[]string{"check", "a", "b"}, exitUsage, "unexpected argument b"},
		{[]string{"serve", "--retain", "--insecure"}, exitUsage, "--retain requires a value"},
		{[]string{"token", "revoke", "abc"}, exitUsage, "<id>: an ID is 12 hexadecimal digits"},
		{[]string{"serve", "--accept", "spo2_pct=100..1"}, exitUsage, "spo2_pct"},
		{[]string{"serve", "--scrub", "59s"}, exitUsage, "--scrub must be at least 1m, or 0s"},
		{[]string{"serve", "--scrub", "0s", "--print-config"}, 0, "scrub = "},
		{[]string{"serve", "--print-config"}, 0, "# sign body_weight_kg: unit kg, decimals 3, accepted 0.2..650, usual ..\n"},
		{[]string{"import", "x.csv", "--map", "spo2_pct"}, exitUsage, "field=column"},
		{[]string{"import", "nowhere.csv", "--device", "d"}, 1, "no such file"},
		{[]string{"import", "x.txt"}, exitUsage, "--format"},
		{[]string{"export", "--data", "nowhere", "--device", "d"}, 1, "nowhere"},
		{[]string{"check", "nowhere"}, 1, "nowhere: no usable store: the directory does not exist"},
		{[]string{"devices", "--target", "http://127.0.0.1:1"}, 1, "set the server's address with --target"},
		{[]string{"devices", "--target", "http://nowhere..invalid"}, 1, "set the server's address with --target"},
		{[]string{"sim", "--target", "http://192.0.2.1:8080"}, exitUsage, "--allow-remote"},
		{[]string{"sim", "--target", "http://192.0.2.1:8080", "--allow-remote"}, exitUsage,
			"set the requests per second with --rate"},
		{[]string{"sim", "--target", "http://192.0.2.1:8080", "--allow-remote", "--for", "1s", "--rate", "51", "--batch",
			"20"}, exitUsage, "1020 readings per second exceed the limit of 1000"},
		{[]string{"sim", "--target", "http://192.0.2.1:8080", "--allow-remote", "--for", "1s", "--rate", "10", "--max-rate",
			"9.5"}, exitUsage, "limit of 9.5"},
		{[]string{"sim", "--target", "http://192.0.2.1:8080", "--allow-remote", "--for", "1s", "--rate", "10",
			"--max-rate=-1"}, exitUsage, "--max-rate must be a number"},
		{[]string{"sim", "--target", "nonsense"}, exitUsage, "http://host:port"},
		{[]string{"sim", "--target", "http://127.0.0.1:1"}, 1, "cannot be reached"},
		{[]string{"sim", "verify", "nowhere", "--target", "http://127.0.0.1:1"}, 1, "no such file"},
		{[]string{"profile", "http://127.0.0.1:1"}, 1, "Start a server with 'pulsegate serve', or check the address."},
		{[]string{"token", "list", "--file", "nowhere"}, 1, "'pulsegate token create' creates it"},
		{[]string{"profile", "127.0.0.1:1"}, 1, "connection refused"},
		{[]string{"profile", "ftp://x"}, exitUsage, "not an http"},
		{[]string{"profile", "--for", "1500ms"}, exitUsage, "--for"},
		{nil, exitUsage, "Run 'pulsegate --help' for the commands."},
		{[]string{"serve", "--nonsense"}, exitUsage, "Run 'pulsegate serve --help' for its flags."},
		{[]string{"serve", "--retain", "400"}, exitUsage,
			"--retain: 400 needs a unit; did you mean 400d? (the units are ms, s, m, h and d)\nRun 'pulsegate serve --help' " +
				"for its flags."},
		{[]string{"serve", "--token-rate=x"}, exitUsage, `--token-rate: "x" is not a whole number`},
		{[]string{"serve", "--addr=8080"}, exitUsage,
			"did you mean 127.0.0.1:8080?\nRun 'pulsegate serve --help' for its flags."},
		{[]string{"serve", "--addr=:8080"}, exitUsage, "--addr :8080 has no host, so it can be reached from other machines"},
		{[]string{"serve", "--log-level=loud"}, exitUsage, "the levels are debug, info, warn and error"},
		{[]string{"serve", "--log-format=xml"}, exitUsage, `must be one of "text","json"`},
		{[]string{"serve", "--oldest=2001"}, exitUsage, "RFC 3339 with a zone"},
		{[]string{"token", "create"}, exitUsage, "Run 'pulsegate token create --help' for its flags."},
		{[]string{"import", "x.csv", "--map=pulse=HR"}, exitUsage,
			"the fields are time, utc_offset_minutes, device, gateway, systolic_mmhg"},
		{[]string{"import", "x.csv", "--batch=0"}, exitUsage, "Run 'pulsegate import --help' for its flags."},
		{[]string{"devices", "--target=127.0.0.1:8080"}, exitUsage, "did you mean http://127.0.0.1:8080?"},
		{[]string{"devices", "--target=localhost:8080"}, exitUsage, "did you mean http://localhost:8080?"},
		{[]string{"help", "nonsense"}, exitUsage, "nonsense"},
	} {
		out, errs, code := runCommand(t, tt.args...)
		if code != tt.want || !strings.Contains(out+errs, tt.text) {
			t.Errorf("pulsegate %s: exit code %d, want %d, and %q in\n%s%s", strings.Join(tt.args, " "), code, tt.want,
				tt.text, out, errs)
		}
	}
	if _, err := os.Stat("nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a command created a directory that it should only read")
	}
}
