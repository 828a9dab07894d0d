package archtest_test

// module is the path of the module that is checked.
const module = "github.com/pulsegate/pulsegate"

// layers says how high each package stands. A package may import what stands
// below it. The test files of a package may import its own layer too.
var layers = map[string]int{
	"cmd/pulsegate":     4,
	"internal/archtest": 4, // imported by nobody

	"internal/ingest":   3,
	"internal/metrics":  3,
	"internal/query":    3,
	"internal/sim":      3,
	"internal/transfer": 3,
	"internal/upkeep":   3,

	"internal/gate":              2,
	"internal/store/pebblestore": 2,
	"internal/store/storetest":   2,

	"internal/audit":     1,
	"internal/problem":   1,
	"internal/recording": 1,
	"internal/store":     1,
	"internal/tlsfiles":  1,
	"internal/token":     1,

	"health":               0,
	"internal/budget":      0,
	"internal/eventloop":   0,
	"internal/filewatch":   0,
	"internal/groupcommit": 0,
	"internal/listen":      0,
	"internal/logbudget":   0,
	"internal/profile":     0,
	"internal/shape":       0,
	"internal/sharedfile":  0,
	"internal/systemd":     0,
	"internal/tracing":     0,
	"mux":                  0,
	"reply":                0,
	"vitals":               0,
}

// standardOnly lists the packages that import nothing but the standard library,
// and what each may import besides. What they may import of this module is the
// matter of layers.
var standardOnly = map[string][]string{
	"health":               nil,
	"internal/groupcommit": nil,
	"internal/listen":      nil,
	"internal/logbudget":   nil,
	"mux":                  nil,
	"reply":                nil,
	"vitals":               {"github.com/go-json-experiment/json"},
}

// A library is a module of others that this one imports.
type library struct {
	path  string
	users []string // the packages that may import it; none: all
	tests bool     // only test files and storetest may import it
}

// libraries are those of ARCHITECTURE.md. Whatever is not listed is not imported:
// peers to compare with belong into bench.
var libraries = []library{
	{path: "github.com/KimMachineGun/automemlimit", users: []string{"cmd/pulsegate"}},
	{path: "github.com/HdrHistogram/hdrhistogram-go", users: []string{"internal/sim", "cmd/pulsegate"}},
	{path: "github.com/alecthomas/kong", users: []string{"cmd/pulsegate"}},
	{path: "github.com/cockroachdb/pebble/v2", users: []string{"internal/store/pebblestore"}},
	{path: "github.com/go-json-experiment/json"},
	{path: "github.com/google/pprof", users: []string{"internal/profile"}},
	{path: "github.com/klauspost/compress"},
	{path: "github.com/pelletier/go-toml/v2", users: []string{"cmd/pulsegate"}},
	{path: "github.com/prometheus/client_golang", users: []string{"internal/metrics", "cmd/pulsegate"}},
	{path: "github.com/prometheus/client_model", users: []string{"internal/profile"}}, // comes with client_golang
	{path: "github.com/prometheus/common", users: []string{"internal/profile"}},       // comes with client_golang
	{path: "github.com/rogpeppe/go-internal", tests: true},
	{path: "github.com/schollz/progressbar/v3", users: []string{"cmd/pulsegate"}},
	{path: "go.uber.org/goleak", tests: true},
	{path: "golang.org/x/sys"},
	{path: "golang.org/x/term", users: []string{"cmd/pulsegate"}},
	{path: "golang.org/x/time"},
	{path: "pgregory.net/rapid", tests: true},
}

// An exception lets one package break one rule in one way.
type exception struct {
	rule  rule
	dir   string // the package
	tests bool   // its test files, not the others
	what  string // the import or the name that the rule objects to
}

// exceptions gives the reason for each. One that is not needed any more fails the
// test.
var exceptions = map[exception]string{
	{layerRule, "health", false, module + "/reply"}: "the answers of health are prepared by reply, which knows nothing of health",
	{unsafeRule, "reply", true, "unsafe"}:           "a test changes the bytes of a string to see when net/http reads them",

	{unsafeRule, "internal/eventloop", false, "unsafe"}: "recv(2) and send(2) take a pointer, and are not to be told to the scheduler; socket_linux.go proves it sound",
}
