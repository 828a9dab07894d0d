package archtest_test

// module is the path of the module that is checked.
const module = "github.com/pulsegate/pulsegate"

// A role is one folder of the tree, or the packages for everybody.
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
)

// public lists the packages for everybody.
var public = []string{"health", "mux", "reply", "vitals"}

// ranks says how high each role stands. A package may import its own role and
// those that stand below it; its test files also those beside it.
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
	archRole:    0, // imports nothing and is imported by nobody
	pollRole:    0, // is imported by tests only
	portRole:    0, // likewise
}

// clientImports lists what a client may import of this module besides its own
// role and the public packages: it talks to a server over the network, and must
// not share the server's code.
var clientImports = []string{"internal/api/problem", string(observeRole), string(sysRole)}

// standardOnly lists the packages that import nothing but the standard library,
// and what each may import besides. What they may import of this module is the
// matter of layers.
var standardOnly = map[string][]string{
	"health":                       nil,
	"internal/storage/groupcommit": nil,
	"internal/wire/listen":         nil,
	"internal/observe/logbudget":   nil,
	"mux":                          nil,
	"reply":                        nil,
	"vitals":                       {"github.com/go-json-experiment/json"},
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
	{path: "github.com/KimMachineGun/automemlimit", users: []string{"internal/server"}},
	{path: "github.com/HdrHistogram/hdrhistogram-go", users: []string{"internal/client/sim"}},
	{path: "github.com/alecthomas/kong", users: []string{"cmd/pulsegate", "internal/sys/settings"}},
	{path: "github.com/cockroachdb/pebble/v2", users: []string{"internal/storage/pebblestore"}},
	{path: "github.com/go-json-experiment/json"},
	{path: "github.com/google/pprof", users: []string{"internal/observe/profile"}},
	{path: "github.com/klauspost/compress"},
	{path: "github.com/pelletier/go-toml/v2", users: []string{"internal/sys/settings"}},
	{path: "github.com/prometheus/client_golang", users: []string{ // collectors stand beside their counters
		"internal/observe/metrics", "internal/observe/tracing", "internal/access/gate", "internal/storage/pebblestore", "internal/api/ingest", "internal/api/admin",
	}},
	{path: "github.com/prometheus/client_model", users: []string{"internal/observe/profile"}}, // comes with client_golang
	{path: "github.com/prometheus/common", users: []string{"internal/observe/profile"}},       // comes with client_golang
	{path: "github.com/rogpeppe/go-internal", tests: true},
	{path: "github.com/schollz/progressbar/v3", users: []string{"cmd/pulsegate"}},
	{path: "go.uber.org/goleak", tests: true},
	{path: "golang.org/x/sys"},
	{path: "golang.org/x/term", users: []string{"internal/sys/terminal"}},
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
	{roleRule, "internal/api/admin", true, module + "/internal/client/transfer"}: "the test receives a backup as a client does",

	{unsafeRule, "internal/wire/eventloop", false, "unsafe"}: "recv(2) and send(2) take a pointer, and are not to be told to the scheduler; socket_linux.go proves it sound",
}
