package archtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRulesCanFail checks small artificial modules, each of which keeps or breaks one
// rule.
func TestRulesCanFail(t *testing.T) {
	seen := make(map[rule]bool)
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string // "file:line: rule: part of the text"
	}{
		// role
		{
			"up",
			map[string]string{"vitals/a.go": lib("vitals", `import _ "M/internal/api/query"`)},
			[]string{"vitals/a.go:5: role: imports internal/api/query of internal/api, which is above the public packages"},
		}, {
			"a client and the server's code",
			map[string]string{
				"internal/client/sim/a.go":      lib("sim", "import _ \"M/internal/api/problem\"\nimport _ \"M/internal/sys/systemd\"\nimport _ \"M/internal/storage\""),
				"internal/client/sim/a_test.go": `package sim_test; import _ "M/internal/storage"`,
			},
			[]string{"internal/client/sim/a.go:7: role: imports internal/storage: a client shares no code with the server except internal/api/problem"},
		}, {
			"a package for tests only",
			map[string]string{
				"mux/a_test.go":             `package mux_test; import _ "M/internal/polltest"`,
				"internal/api/ingest/a.go":  lib("ingest", `import _ "M/internal/polltest"`),
				"internal/polltest/poll.go": lib("polltest", ``),
			},
			[]string{"internal/api/ingest/a.go:5: role: imports internal/polltest, which is for tests only"},
		}, {
			"a package without a role",
			map[string]string{"internal/fresh/a.go": lib("fresh", ``)},
			[]string{"internal/fresh/a.go:4: role: package internal/fresh has no role"},
		},

		// standard library, library
		{
			"a library in mux",
			map[string]string{"mux/a.go": lib("mux", `import _ "golang.org/x/sys/unix"`)},
			[]string{"mux/a.go:5: standard library: imports golang.org/x/sys/unix: mux may import only the standard library"},
		}, {
			"a peer",
			map[string]string{"internal/api/query/a.go": lib("query", `import _ "github.com/gorilla/mux"`)},
			[]string{"internal/api/query/a.go:5: library: imports github.com/gorilla/mux, which is not a listed library"},
		}, {
			"a library of another package",
			map[string]string{"internal/api/query/a.go": lib("query", `import _ "github.com/cockroachdb/pebble/v2"`)},
			[]string{"internal/api/query/a.go:5: library: imports github.com/cockroachdb/pebble/v2, which is for internal/storage/pebblestore and internal/storage/pebblestore/damage"},
		},

		// store
		{
			"a concrete store in ingest",
			map[string]string{"internal/api/ingest/a.go": lib("ingest", `import _ "M/internal/storage/pebblestore"`)},
			[]string{"internal/api/ingest/a.go:5: store: imports the concrete store internal/storage/pebblestore"},
		},

		// module
		{
			"bench without go.mod",
			map[string]string{"bench/peers/a.go": lib("peers", ``)},
			[]string{
				"bench/peers/a.go:4: role: package bench/peers has no role",
				"bench/peers/a.go:4: module: bench/peers is part of the main module: bench/go.mod is missing",
			},
		}, {
			"parts of the embedded store",
			map[string]string{
				"internal/storage/pebblestore/layout/a.go":      lib("layout", "import _ \"M/vitals\"\nimport _ \"M/internal/storage\""),
				"internal/storage/pebblestore/layout/a_test.go": `package layout_test; import _ "M/internal/storage"`,
				"internal/storage/pebblestore/attic/a.go":       lib("attic", ``),
			},
			[]string{
				"internal/storage/pebblestore/attic/a.go:4: part: package internal/storage/pebblestore/attic is not a listed part",
				"internal/storage/pebblestore/layout/a.go:6: part: imports internal/storage, which this part of the embedded store must not know",
			},
		},

		// dot import, unsafe
		{
			"a dot import",
			map[string]string{"internal/client/sim/a.go": lib("sim", `import . "strings"`)},
			[]string{"internal/client/sim/a.go:5: dot import: imports strings as a dot import"},
		}, {
			"unsafe and cgo",
			map[string]string{
				"internal/client/sim/a.go":      lib("sim", `import _ "unsafe"`),
				"internal/client/sim/a_test.go": `package sim_test; import "C"`,
			},
			[]string{
				`internal/client/sim/a.go:5: unsafe: imports "unsafe"`,
				`internal/client/sim/a_test.go:1: unsafe: imports "C"`,
			},
		}, {
			"an exception for tests applies to tests only",
			map[string]string{
				"internal/api/admin/a.go":      lib("admin", `import _ "M/internal/client/transfer"`),
				"internal/api/admin/a_test.go": `package admin_test; import _ "M/internal/client/transfer"`,
			},
			[]string{`internal/api/admin/a.go:5: role: imports internal/client/transfer`},
		},

		// flags, environment, logger
		{
			"flags in a library",
			map[string]string{"internal/client/sim/a.go": lib("sim", "import \"flag\"; import system \"os\"\nvar f = flag.Bool(``, false, ``)\nfunc g() []string { return system.Args }")},
			[]string{
				"internal/client/sim/a.go:6: flags: uses flag.Bool in a library",
				"internal/client/sim/a.go:7: flags: uses os.Args in a library",
			},
		}, {
			"the environment in a library",
			map[string]string{"internal/client/sim/a.go": lib("sim", "import \"os\"; import \"syscall\"\nfunc g() { os.Getenv(`A`)\nsyscall.Getenv(`A`) }")},
			[]string{
				"internal/client/sim/a.go:6: environment: uses os.Getenv in a library",
				"internal/client/sim/a.go:7: environment: uses syscall.Getenv in a library",
			},
		}, {
			"global loggers in a library",
			map[string]string{"internal/client/sim/a.go": lib("sim", "import \"log\"; import \"log/slog\"\nfunc g() { log.Printf(`x`)\nslog.Info(`x`)\nh := slog.Default\n_ = h }")},
			[]string{
				"internal/client/sim/a.go:6: logger: uses log.Printf in a library: take a *slog.Logger",
				"internal/client/sim/a.go:7: logger: uses log/slog.Info in a library",
				"internal/client/sim/a.go:8: logger: uses log/slog.Default in a library",
			},
		},

		// init
		{
			"init",
			map[string]string{
				"internal/client/sim/a.go":      lib("sim", "type t int\nfunc (t) init() {}\nfunc init() {}"),
				"cmd/pulsegate/a.go":            command("func init() {}"),
				"internal/client/sim/a_test.go": "package sim_test\nfunc init() {}",
			},
			[]string{
				"cmd/pulsegate/a.go:3: init: declares func init",
				"internal/client/sim/a.go:7: init: declares func init",
				"internal/client/sim/a_test.go:2: init: declares func init",
			},
		},

		// global state
		{
			"types meant to be modified",
			map[string]string{
				"internal/client/sim/a.go": lib("sim", strings.Join([]string{
					`import "sync"; import "sync/atomic"`,
					`var mu sync.Mutex`,
					`var pool = &sync.Pool{New: func() any { return nil }}`,
					`var m = new(sync.Map)`,
					`var n [4]atomic.Int64`,
					`var s struct{ once sync.Once }`,
					`var c cache`,
					`var d = newCache()`,
					`var ch = make(chan int)`,
					`func newCache() *cache { return nil }`,
				}, "\n")),
				"internal/client/sim/b.go": "package sim\n import \"sync\"\ntype cache struct { inner }\ntype inner struct { sync.RWMutex; next *inner }",
			},
			[]string{
				"internal/client/sim/a.go:6: global state: var mu holds a sync.Mutex at package level",
				"internal/client/sim/a.go:7: global state: var pool holds a sync.Pool",
				"internal/client/sim/a.go:8: global state: var m holds a sync.Map",
				"internal/client/sim/a.go:9: global state: var n holds a sync/atomic.Int64",
				"internal/client/sim/a.go:10: global state: var s holds a sync.Once",
				"internal/client/sim/a.go:11: global state: var c holds a sync.RWMutex",
				"internal/client/sim/a.go:12: global state: var d holds a sync.RWMutex",
				"internal/client/sim/a.go:13: global state: var ch is a channel",
			},
		}, {
			"changes",
			map[string]string{"internal/client/sim/a.go": lib("sim", strings.Join([]string{
				`import "net/http"`,
				`var n int; var m = map[string]int{}; var s []int; var x struct{ y [2]int }; var p = &x`,
				`func f() { n = 1`,
				`n++`,
				`m["a"] += 1`,
				`delete(m, "a")`,
				`clear(s)`,
				`copy(s[1:], s)`,
				`x.y[0] = 1`,
				`(*p).y[0], n = 1, 2`,
				`for n = range 3 {}`,
				`http.DefaultClient = nil`,
				`_ = func() { s = nil }`,
				`}`,
			}, "\n"))},
			[]string{
				"internal/client/sim/a.go:7: global state: changes the package-level variable n",
				"internal/client/sim/a.go:8: global state: changes the package-level variable n",
				"internal/client/sim/a.go:9: global state: changes the package-level variable m",
				"internal/client/sim/a.go:10: global state: changes the package-level variable m",
				"internal/client/sim/a.go:11: global state: changes the package-level variable s",
				"internal/client/sim/a.go:12: global state: changes the package-level variable s",
				"internal/client/sim/a.go:13: global state: changes the package-level variable x",
				"internal/client/sim/a.go:14: global state: changes the package-level variable p",
				"internal/client/sim/a.go:14: global state: changes the package-level variable n",
				"internal/client/sim/a.go:15: global state: changes the package-level variable n",
				"internal/client/sim/a.go:16: global state: changes net/http.DefaultClient",
				"internal/client/sim/a.go:17: global state: changes the package-level variable s",
			},
		},

		// name
		{
			"a meaningless package name",
			map[string]string{"internal/client/sim/a.go": lib("util", ``), "internal/client/sim/a_test.go": `package util_test`},
			[]string{"internal/client/sim/a.go:4: name: package util", "internal/client/sim/a_test.go:1: name: package util_test"},
		},

		// methods
		{
			"a type with many methods",
			map[string]string{"mux/a.go": lib("mux", "type T struct{}\n"+manyMethods(maxMethods)), "mux/b.go": "package mux\nfunc (T) M0() {}\nfunc (*T) N() {}"},
			[]string{"mux/b.go:3: methods: type T has more than 20 methods"},
		},

		// package comment
		{
			"no comment",
			map[string]string{"internal/client/sim/a.go": "// A comment apart.\n\npackage sim", "internal/client/sim/b.go": "package sim"},
			[]string{"internal/client/sim/a.go:3: package comment: package internal/client/sim has no comment"},
		}, {
			"no section",
			map[string]string{"internal/client/sim/a.go": "// Package sim says what is Not here in a sentence.\npackage sim"},
			[]string{`internal/client/sim/a.go:2: package comment: the comment of package internal/client/sim has no section "# Not here"`},
		},

		// symbol
		{
			"a comment names missing symbols",
			map[string]string{
				"internal/client/sim/a.go":      "// Package sim has a [Fleet], [New], [transfer.Upload] and TestRun.\n//\n// # Not here\npackage sim\nfunc New() {}",
				"internal/client/transfer/a.go": lib("transfer", ""),
			},
			[]string{
				"internal/client/sim/a.go:1: symbol: the package comment links [Fleet], which does not exist",
				"internal/client/sim/a.go:1: symbol: the package comment links [transfer.Upload], which does not exist",
				"internal/client/sim/a.go:1: symbol: the package comment names TestRun, which does not exist",
			},
		},

		// sign
		{
			"a sign elsewhere",
			map[string]string{
				"vitals/sign.go":                   signTableText,
				"vitals/a.go":                      "package vitals\nconst first = SpO2",
				"internal/api/query/a.go":          lib("query", "import \"M/vitals\"\nvar _ = vitals.SpO2\nconst _ = `,\"weight_kg\":`"),
				"internal/api/dashboard/a.go":      lib("dashboard", ``),
				"internal/api/dashboard/ui/a.js":   "\nconst sign = 'spo2_pct';",
				"internal/api/dashboard/page.html": "<td data-sign=weight_kg>",
			},
			[]string{
				"internal/api/dashboard/page.html:1: sign: names the sign weight_kg",
				"internal/api/dashboard/ui/a.js:2: sign: names the sign spo2_pct",
				"internal/api/query/a.go:6: sign: names the sign SpO2",
				"internal/api/query/a.go:7: sign: names the sign weight_kg",
				"vitals/a.go:2: sign: names the sign SpO2",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := make(fstest.MapFS)
			for name, text := range tt.files {
				files[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(text, `"M/`, `"`+module+`/`))}
			}
			s, err := parse(files)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			violations, _ := check(s)
			for _, v := range violations {
				seen[v.rule] = true
				got = append(got, v.String())
			}
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got:\n%s\nwant, as prefixes:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
	for _, r := range rules {
		for _, name := range r.names {
			if !seen[name] {
				t.Errorf("no example breaks the rule %q", name)
			}
		}
	}
}

// TestParseReportsSyntax checks that an invalid Go file is an error, and not an empty
// package that breaks no rule.
func TestParseReportsSyntax(t *testing.T) {
	_, err := parse(fstest.MapFS{"vitals/a.go": &fstest.MapFile{Data: []byte("package")}})
	if err == nil {
		t.Error("parse of a broken file: got nil, want an error")
	}
}

// signTableText is a table of two signs.
const signTableText = "// Package vitals is made up.\n//\n// # Not here\npackage vitals\ntype Sign int\ntype Definition struct{ Field string }\n" +
	"const (\n\tSpO2 Sign = 0\n\tWeight Sign = 1\n)\nvar builtIn = [2]Definition{SpO2: {Field: \"spo2_pct\"}, Weight: {Field: \"weight_kg\"}}"

// manyMethods declares n methods of a type T.
func manyMethods(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "func (T) M%d() {}\n", i)
	}
	return b.String()
}

// lib returns the text of a library file with a complete package comment. The code
// starts in line 5.
func lib(name, code string) string {
	return fmt.Sprintf("// Package %s is made up.\n//\n// # Not here\npackage %[1]s\n%s", name, code)
}

// command returns the text of a command's file. The code starts in line 3.
func command(code string) string {
	return "// Command pulsegate is made up.\npackage main\n" + code
}
