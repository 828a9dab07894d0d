package archtest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRulesCanFail checks small artificial modules, each of which breaks one rule, and of which the
// lines that keep it are not reported.
func TestRulesCanFail(t *testing.T) {
	seen := make(map[rule]bool)
	const sim, query = "internal/client/sim/a.go", "internal/api/query/a.go"
	var methods strings.Builder
	for i := range maxMethods {
		fmt.Fprintf(&methods, "func (T) M%d() {}\n", i)
	}
	for _, tt := range []struct {
		file, text string
		want       string // "line: rule" of each violation
	}{
		{"mux/a.go", lib("mux", `import _ "M/internal/api/query"`), "5: role"},
		{sim, lib("sim", "import _ \"M/internal/api/problem\"\nimport _ \"M/internal/sys/systemd\"\nimport _ \"M/internal/storage\""), "7: role"},
		{"internal/client/sim/a_test.go", `package sim_test; import _ "M/internal/storage"`, ""},
		{"internal/api/ingest/a.go", lib("ingest", `import _ "M/internal/polltest"`), "5: role"},
		{"mux/a_test.go", `package mux_test; import _ "M/internal/polltest"`, ""},
		{"internal/fresh/a.go", lib("fresh", ``), "4: role"},
		{"mux/a.go", lib("mux", `import _ "golang.org/x/sys/unix"`), "5: standard library"},
		{query, lib("query", `import _ "github.com/gorilla/mux"`), "5: library"},
		{query, lib("query", `import _ "github.com/cockroachdb/pebble/v2"`), "5: library"},
		{"internal/api/ingest/a.go", lib("ingest", `import _ "M/internal/storage/pebblestore"`), "5: store"},
		{"bench/peers/a.go", lib("peers", ``), "4: role, 4: module"},
		{"internal/storage/pebblestore/layout/a.go", lib("layout", "import _ \"M/vitals\"\nimport _ \"M/internal/storage\""), "6: part"},
		{"internal/storage/pebblestore/attic/a.go", lib("attic", ``), "4: part"},
		{sim, lib("sim", `import . "strings"`), "5: dot import"},
		{sim, lib("sim", `import _ "unsafe"`), "5: unsafe"},
		{"internal/client/sim/a_test.go", `package sim_test; import "C"`, "1: unsafe"},
		{"internal/api/admin/a.go", lib("admin", `import _ "M/internal/client/transfer"`), "5: role"},
		{"internal/api/admin/a_test.go", `package admin_test; import _ "M/internal/client/transfer"`, ""},
		{sim, lib("sim", "import \"flag\"; import system \"os\"\nvar f = flag.Bool(``, false, ``)\nfunc g() []string { return system.Args }"), "6: flags, 7: flags"},
		{sim, lib("sim", "import \"os\"; import \"syscall\"\nfunc g() { os.Getenv(`A`)\nsyscall.Getenv(`A`) }"), "6: environment, 7: environment"},
		{sim, lib("sim", "import \"log\"; import \"log/slog\"\nfunc g() { log.Printf(`x`)\nslog.Info(`x`)\nh := slog.Default\n_ = h }"), "6: logger, 7: logger, 8: logger"},
		{sim, lib("sim", "type t int\nfunc (t) init() {}\nfunc init() {}"), "7: init"},
		{"cmd/pulsegate/a.go", "// Command pulsegate is made up.\npackage main\nfunc init() {}", "3: init"},
		{sim, lib("sim", "import \"sync\"; import \"sync/atomic\"\nvar mu sync.Mutex\nvar pool = &sync.Pool{New: func() any { return nil }}\nvar m = new(sync.Map)\n"+
			"var n [4]atomic.Int64\nvar s struct{ once sync.Once }\nvar d = newCache()\nvar ch = make(chan int)\n"+
			"func newCache() *cache { return nil }\ntype cache struct { inner }\ntype inner struct { sync.RWMutex; next *inner }"),
			"6: global state, 7: global state, 8: global state, 9: global state, 10: global state, 11: global state, 12: global state"},
		{sim, lib("sim", "import \"net/http\"\nvar n int; var m = map[string]int{}; var s []int; var x struct{ y [2]int }; var p = &x\nfunc f() { n = 1\nn++\n"+
			"m[`a`] += 1\ndelete(m, `a`)\nclear(s)\ncopy(s[1:], s)\nx.y[0] = 1\n(*p).y[0] = 1\nfor n = range 3 {}\nhttp.DefaultClient = nil\n_ = func() { s = nil }\n}"),
			"7: global state, 8: global state, 9: global state, 10: global state, 11: global state, 12: global state, 13: global state, 14: global state, 15: global state, 16: global state, 17: global state"},
		{sim, lib("util", ``), "4: name"},
		{"mux/a.go", lib("mux", "type T struct{}\n"+methods.String()+"func (*T) N() {}"), "26: methods"},
		{sim, "// A comment apart.\n\npackage sim", "3: package comment"},
		{sim, "// Package sim says what is Not here in a sentence.\npackage sim", "2: package comment"},
		{sim, "// Package sim has a [Fleet], [New] and TestRun.\n//\n// # Not here\npackage sim\nfunc New() {}", "1: symbol, 1: symbol"},
		{query, lib("query", "import \"M/vitals\"\nvar _ = vitals.SpO2\nconst _ = `,\"weight_kg\":`"), "6: sign, 7: sign"},
		{"internal/api/dashboard/ui/a.js", "\nconst sign = 'spo2_pct';", "2: sign"},
	} {
		files := fstest.MapFS{
			"vitals/sign.go":              {Data: []byte(signTableText)},
			"internal/api/dashboard/a.go": {Data: []byte(lib("dashboard", ``))},
			tt.file:                       {Data: []byte(strings.ReplaceAll(tt.text, `"M/`, `"`+module+`/`))},
		}
		s, err := parse(files)
		try(t, err)
		var got []string
		violations, _ := check(s)
		for _, v := range violations {
			seen[v.rule] = true
			place, _, _ := strings.Cut(strings.TrimPrefix(v.String(), tt.file+":"), string(v.rule)+": ")
			got = append(got, place+string(v.rule))
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s:\n%s\ngot  %s\nwant %s", tt.file, tt.text, text, tt.want)
		}
	}
	for _, r := range rules {
		for _, name := range r.names {
			if !seen[name] {
				t.Errorf("no example breaks the rule %q", name)
			}
		}
	}
}

// signTableText is a table of two signs.
const signTableText = "// Package vitals is made up.\n//\n// # Not here\npackage vitals\ntype Sign int\ntype Definition struct{ Field string }\n" +
	"const (\n\tSpO2 Sign = 0\n\tWeight Sign = 1\n)\nvar builtIn = [2]Definition{SpO2: {Field: \"spo2_pct\"}, Weight: {Field: \"weight_kg\"}}"

// lib returns the text of a library file with a complete package comment. The code
// starts in line 5.
func lib(name, code string) string {
	return fmt.Sprintf("// Package %s is made up.\n//\n// # Not here\npackage %[1]s\n%s", name, code)
}
