package archtest_test

// module is the path of the checked module.
const module = "github.com/pulsegate/pulsegate"

// A role is a directory of the tree, or the public packages.
type role string

const (
	publicRole  role = "the public packages"
	wireRole    role = "internal/wire"
	sysRole     role = "internal/sys"
	accessRole  role = "internal/access"
	observeRole role = "internal/observe"
	storageRole role = "internal/storage"
	apiRole     role = "internal/api"
	serverRole  role = "internal/server"
	clientRole  role = "internal/client"
	cmdRole     role = "cmd"
	archRole    role = "internal/archtest"
	pollRole    role = "internal/polltest"
	portRole    role = "internal/porttest"
	pgRole      role = "internal/pgtest"
	certRole    role = "internal/certtest"
)

// public lists the public packages.
var public = []string{"health", "mux", "reply", "vitals"}

// ranks has the height of each role. A package may import its own role and lower ones;
// its test files may also import roles of the same height.
var ranks = map[role]int{
	cmdRole:     5,
	serverRole:  4,
	clientRole:  4,
	apiRole:     3,
	accessRole:  2,
	observeRole: 2,
	storageRole: 2,
	sysRole:     1,
	wireRole:    1,
	publicRole:  0,
	archRole:    0, // imports nothing and is never imported
	pollRole:    0, // imported by tests only
	portRole:    0, // likewise
	certRole:    0, // likewise
	pgRole:      1, // likewise; it uses polltest
}

// clientImports lists what a client may import from this module in addition to its own
// role and the public packages. A client talks to a server over the network and must
// not share the server's code.
var clientImports = []string{"internal/api/problem", "internal/api/shape", string(observeRole), string(sysRole)}

// standardOnly lists the packages that import only the standard library, with the
// exceptions of each. Imports from this module are checked by roles.
var standardOnly = map[string][]string{
	"health":                       nil,
	"internal/storage/groupcommit": nil,
	"internal/wire/listen":         nil,
	"internal/observe/logbudget":   nil,
	"mux":                          nil,
	"reply":                        nil,
	"vitals":                       {"github.com/go-json-experiment/json"},
}

// parts lists the packages below internal/storage/pebblestore, and what each may import of this module:
// other parts, and packages.
var parts = map[string][]string{
	"assign": {"vitals", "internal/storage", "damage", "layout"},
	"layout": {"vitals", "internal/storage/columns"},
	"purge": {"vitals", "internal/storage", "internal/storage/columns", "assign", "damage", "datadir", "layout",
		"memory", "seal"},
	"memory":      {"vitals", "internal/storage/columns", "layout"},
	"damage":      {"internal/storage"},
	"seal":        {"vitals", "internal/storage", "internal/storage/columns", "damage", "layout", "memory"},
	"datadir":     {"internal/storage", "internal/sys/sharedfile", "damage", "datadir/wal"},
	"datadir/wal": {"internal/storage"},
	"verify": {"vitals", "internal/storage", "internal/storage/columns", "assign", "damage", "datadir", "layout",
		"memory", "seal"},
	"backup": {"internal/storage", "datadir"},
	"space":  {"internal/storage"},
}

// A library is a third-party module that this module imports.
type library struct {
	path  string
	users []string // packages that may import it; none: all
	tests bool     // only test files and storetest may import it
}

// libraries lists the libraries in ARCHITECTURE.md. No others are imported; peers for
// comparison belong in bench.
var libraries = []library{
	{path: "github.com/KimMachineGun/automemlimit", users: []string{"internal/server"}},
	{path: "github.com/HdrHistogram/hdrhistogram-go", users: []string{"internal/client/sim"}},
	{path: "github.com/alecthomas/kong", users: []string{"cmd/pulsegate", "internal/sys/settings"}},
	{path: "github.com/cockroachdb/pebble/v2", users: []string{
		"internal/storage/pebblestore", "internal/storage/pebblestore/damage", "internal/storage/pebblestore/datadir",
		"internal/storage/pebblestore/verify", "internal/storage/pebblestore/backup", "internal/storage/pebblestore/seal",
		"internal/storage/pebblestore/space", "internal/storage/pebblestore/purge", "internal/storage/pebblestore/assign",
	}},
	{path: "github.com/coreos/go-oidc/v3", users: []string{"internal/access/oidc"}},
	{path: "github.com/go-jose/go-jose/v4", users: []string{"internal/access/oidc"}}, // comes with go-oidc
	{path: "github.com/go-json-experiment/json"},
	{path: "github.com/google/pprof", users: []string{"internal/observe/profile"}},
	{path: "github.com/jackc/pgx/v5", users: []string{"internal/storage/pgstore"}},
	{path: "github.com/klauspost/compress"},
	{path: "github.com/influxdata/line-protocol/v2", tests: true},
	{path: "github.com/mochi-mqtt/server/v2", users: []string{"internal/api/mqtt", "internal/client/sim"}},
	{path: "github.com/parquet-go/parquet-go", users: []string{"internal/api/query"}},
	// a roster is large
	{path: "github.com/pelletier/go-toml/v2", users: []string{"internal/sys/tomlfile", "internal/api/roster"}},
	{path: "github.com/prometheus/client_golang", users: []string{ // collectors are next to their counters
		"internal/observe/metrics", "internal/observe/tracing", "internal/access/gate", "internal/access/oidc",
		"internal/storage/pebblestore", "internal/storage/pgstore", "internal/api/ingest", "internal/api/admin",
		"internal/api/live", "internal/api/mqtt", "internal/api/hl7", "internal/api/alert", "internal/api/alertmanager",
		"internal/api/roster",
	}},
	{path: "github.com/prometheus/client_model", users: []string{"internal/observe/profile"}}, // comes with client_golang
	{path: "github.com/prometheus/common", users: []string{"internal/observe/profile"}},       // comes with client_golang
	{path: "github.com/rogpeppe/go-internal", tests: true},
	{path: "github.com/schollz/progressbar/v3", users: []string{"cmd/pulsegate"}},
	{path: "go.uber.org/goleak", tests: true},
	{path: "golang.org/x/oauth2", users: []string{"internal/access/signin"}},
	{path: "golang.org/x/sys"},
	{path: "golang.org/x/term", users: []string{"internal/sys/terminal"}},
	{path: "golang.org/x/time"},
	{path: "pgregory.net/rapid", tests: true},
}

// signFiles lists the files beside the table of signs that may name a sign, or directories: each maps
// signs to something that has no table.
var signFiles = []string{
	"internal/api/codes/codes.go",         // codes of others
	"internal/api/fhir/in_codes.go",       // meanings of codes
	"internal/api/fhir/in_observation.go", // a blood pressure is one resource
	"internal/api/fhir/mapping.go",        // profiles of FHIR
	"internal/api/omh/decode.go",          // a heart rate at rest
	"internal/api/omh/doc.go",             // schemas of Open mHealth
	"internal/client/recording/mimic2.go", // columns of a recording
	"internal/client/sim/body.go",         // flawed bodies
	"internal/client/sim/wearer.go",       // distributions
	"internal/storage/pgstore/schema.go",  // columns that there were before the table
	"internal/storage/storetest",          // readings of tests
	"vitals/validate.go",                  // a percentage that was sent as a fraction
}

// maxColumn is where lines of Go end at the latest.
const maxColumn = 120

// maxMethods is how many methods a type may have. One with more usually has several tasks.
const maxMethods = 20

// An exception allows one package to break one rule in one way.
type exception struct {
	rule  rule
	dir   string // the package
	tests bool   // its test files only
	what  string // the import or the name that breaks the rule
}

// exceptions has the reason for each exception. An exception that is no longer needed
// fails the test.
var exceptions = map[exception]string{
	{roleRule, "internal/pgtest", false, module + "/internal/polltest"}:        "both are for tests only",
	{libraryRule, "internal/polltest", false, "go.uber.org/goleak"}:            "polltest is for tests only",
	{roleRule, "internal/pgtest", false, module + "/internal/porttest"}:        "both are for tests only",
	{roleRule, "internal/api/fronttest", false, module + "/internal/certtest"}: "both are for tests only",
	{roleRule, "internal/api/fronttest", false, module + "/internal/polltest"}: "both are for tests only",
	{roleRule, "internal/api/admin", true,
		module + "/internal/client/transfer"}: "the test receives a backup like a client",

	{methodsRule, "mux", false, "Route"}:  "gorilla/mux gives the methods",
	{methodsRule, "mux", false, "Router"}: "gorilla/mux gives the methods",
	{methodsRule, "internal/api/fhir", false,
		"Handler"}: "22: one for each interaction of FHIR, and what these share",
	{methodsRule, "internal/server", false,
		"server"}: "22: the steps of its life, which use most of its fields",
	{methodsRule, "internal/wire/eventloop", false,
		"Loop"}: "22: the states of a connection, which only the loop's goroutine changes",
	{methodsRule, "internal/wire/eventloop", false, "Conn"}: "21: what a front asks of a connection",
	{methodsRule, "internal/storage/pebblestore/memory", false,
		"Window"}: "22: rows, devices and their indexes change together, under one lock",
	{methodsRule, "internal/pgtest", false, "Cluster"}: "21: what tests do to a machine",
	{methodsRule, "internal/pgtest", false, "Server"}:  "21: what tests do to a server",

	{signRule, "cmd/pulsegate", false, "heart_rate_bpm"}: "an example in the help of import",

	{unsafeRule, "internal/wire/eventloop", false,
		"unsafe"}: "recv(2) and send(2) take a pointer and must bypass the scheduler; socket_linux.go explains why " +
		"that is sound",
}
