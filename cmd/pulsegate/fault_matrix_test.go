package main_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// faultMatrix lists the faults to survive and the tests that provoke them: tests of this package
// that run on a server with the fast lane and on one without it, and others.
var faultMatrix = []struct {
	fault  string
	lanes  []string
	others []string // with the package's directory, if it is another one
}{
	{"kill -9 at any moment under load",
		[]string{"TestKillAnyMoment", "TestKillAtSync"},
		[]string{"TestCrashCampaign", "TestMQTTCampaign", "TestHL7Campaign", "internal/storage/pebblestore TestCrashWhileCreating"}},
	{"loss of power",
		[]string{"TestPowerLoss"},
		[]string{"internal/storage/pebblestore TestCrashEverywhere", "internal/storage/pebblestore TestCrashEverywhereExhaustive",
			"internal/storage/pebblestore TestDuplicateOfUnsynced"}},
	{"failed sync",
		[]string{"TestSyncError"},
		[]string{"internal/storage/pebblestore TestFailedLog", "internal/storage/pebblestore TestFailedManifest"}},
	{"slow disk, stalled disk",
		[]string{"TestSlowDisk", "TestStalledDisk", "TestRetryWhileSyncing"},
		nil},
	{"disk full",
		[]string{"TestDiskFull"},
		[]string{"TestDiskFullAtOnce", "internal/storage/pebblestore TestDiskLow", "internal/storage/pebblestore TestRoom"}},
	{"torn files, damaged files",
		[]string{"TestTornLog", "TestDamagedFiles", "TestDamagedLookup"},
		[]string{"internal/storage/pebblestore TestTornLog", "internal/storage/pebblestore TestDamagedLog",
			"internal/storage/pebblestore TestDamagedManifest", "internal/storage/pebblestore TestDamagedTable",
			"internal/storage/pebblestore TestDamagedLookup"}},
	{"damage in data that is not read",
		nil,
		[]string{"internal/server TestScrub", "internal/storage/pebblestore TestScrub", "internal/storage/pebblestore TestScrubLost",
			"internal/storage/pebblestore TestScrubOpenFiles", "internal/storage/pebblestore TestScrubFault",
			"internal/storage/pebblestore TestScrubRemoved", "internal/storage/pebblestore TestScrubLetsGo",
			"internal/storage/pebblestore TestScrubYields", "internal/storage/pebblestore TestScrubRestart",
			"internal/storage/pebblestore TestScrubRemembers", "internal/storage/pebblestore TestScrubBesideAll"}},
	{"lost, cut and replaced files",
		[]string{"TestLostFiles"},
		[]string{"TestCrashCampaign", "internal/storage/pebblestore TestDamage", "internal/storage/pebblestore TestDamageExhaustive",
			"internal/storage/pebblestore TestCrashWhileOpening", "internal/storage/pebblestore TestCrashWhileOpeningExhaustive"}},
	{"an operation that fails once",
		nil,
		[]string{"internal/storage/pebblestore TestEveryFault", "internal/storage/pebblestore TestEveryFaultExhaustive"}},
	{"SIGTERM under load",
		[]string{"TestTermAnswers", "TestTermUnderLoad"},
		[]string{"TestDrain", "TestSecondTerm"}},
	{"out of memory",
		[]string{"TestMemoryLimit"},
		[]string{"TestUnderLimit", "internal/api/ingest TestBodyMemory", "internal/api/ingest TestFullQueue"}},
	{"overload",
		[]string{"TestOverloadUnderFlood", "TestOverloadConnections"},
		[]string{"internal/server TestAdminEvictsIdleConnections"}},
	{"slow clients",
		[]string{"TestSlowClients"},
		[]string{"internal/api/ingest TestPeerThatDoesNotRead"}},
	{"bad input",
		[]string{"TestBadInputBodies", "TestBadInputEndless"},
		[]string{"TestBadInputSmuggling", "internal/api/ingest TestRefused", "internal/api/ingest TestPeersThatGo", "internal/api/ingest TestPipelined",
			"vitals FuzzDecode", "internal/api/ingest FuzzLanes"}},
	{"bad TLS",
		nil,
		[]string{"TestTLSLane", "TestFairHandshakes", "TestBadInputSmuggling", "internal/wire/listen TestHandshakesTakeTurns",
			"internal/wire/eventloop TestTLSFaults", "internal/wire/eventloop TestTLSKeyUpdates", "internal/wire/eventloop TestTLSTinyRecords",
			"internal/wire/eventloop TestTLSInputMemory", "internal/wire/eventloop TestTLSGoodbye", "internal/api/ingest TestPeersThatGo",
			"internal/api/ingest TestPeerThatDoesNotRead", "internal/api/ingest TestSlow", "internal/api/ingest TestEverySplitOverTLS"}},
	{"retries, reordering, two gateways at once",
		[]string{"TestRetries", "TestConflicts", "TestRetryWhileSyncing"},
		nil},
	{"clock that jumps",
		[]string{"TestClockJumps"},
		nil},
	{"loss of a machine of PostgreSQL",
		nil,
		[]string{"TestCluster", "internal/storage/pgstore TestQuorum"}},
	{"failing PostgreSQL",
		nil,
		[]string{"TestPostgresCampaign", "TestPostgresPowerLoss", "internal/storage/pgstore TestFrozen", "internal/storage/pgstore TestTraps", "internal/storage/pgstore TestDuplicatesWait",
			"internal/storage/pgstore TestEveryByte", "internal/storage/pgstore TestStorm", "internal/storage/pgstore TestConformanceServerCrash"}},
	{"an earlier state of PostgreSQL",
		nil,
		[]string{"TestRepairCampaign", "TestForgetCampaign", "internal/storage/pgstore TestRepair", "internal/storage/pgstore TestRepairErasures", "internal/storage/pgstore TestRepairAgain", "internal/storage/pgstore TestForgettingPrimary", "internal/storage/pgstore TestForgettingErasure", "internal/storage/pgstore TestForgettingModel"}},
	{"two servers on one directory",
		[]string{"TestTwoServers"},
		nil},
	{"the directory is moved or replaced",
		[]string{"TestTakenDirectory"},
		[]string{"internal/storage/pebblestore TestTampering", "internal/storage/pebblestore TestLockRemoved",
			"internal/storage/pebblestore/datadir TestAnchoredFiles"}},
}

// root is the directory of the module.
const root = "../.."

// TestFaultMatrix checks the table: every test exists, those of the lanes run on both, each of
// those fails with a mutant, and docs/reliability.md describes it.
func TestFaultMatrix(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reliability.md")
	try(t, err)
	index := testIndex{}
	tests := index.in(t, ".")
	caught := map[string]bool{}
	for _, m := range mutants(t) {
		for _, test := range m.tests {
			caught[test] = true
		}
	}
	for _, row := range faultMatrix {
		if !strings.Contains(string(page), "| "+row.fault+" |") {
			t.Errorf("docs/reliability.md has no row %q", row.fault)
		}
		for _, name := range row.lanes {
			if test := tests[name]; test == nil {
				t.Errorf("%s: there is no %s", row.fault, name)
			} else if !calls(test, "onBothLanes", "eachLane", "lanes") {
				t.Errorf("%s: %s does not run on both lanes", row.fault, name)
			}
			if !caught["./cmd/pulsegate "+name] {
				t.Errorf("%s: no mutant names %s", row.fault, name)
			}
		}
		for _, name := range slices.Concat(row.lanes, row.others) {
			dir, test, elsewhere := strings.Cut(name, " ")
			if !elsewhere {
				dir, test = "cmd/pulsegate", name
			}
			if index.in(t, filepath.Join(root, dir))[test] == nil {
				t.Errorf("%s: there is no %s", row.fault, name)
			}
			if !strings.Contains(string(page), test) {
				t.Errorf("%s: docs/reliability.md does not name %s", row.fault, test)
			}
		}
	}
}

// A mutant is a patch that breaks the service.
type mutant struct {
	name, what string
	tests      []string // package and test
	patch      string
}

// mutants reads the headers of all patches.
func mutants(t *testing.T) []mutant {
	t.Helper()
	files, err := filepath.Glob("testdata/mutants/*.patch")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no mutants: %v", err)
	}
	var all []mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		try(t, err)
		m := mutant{name: strings.TrimSuffix(filepath.Base(file), ".patch"), patch: string(text)}
		header, _, _ := strings.Cut(string(text), "\n\n")
		for line := range strings.Lines(header) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch key {
			case "What":
				m.what = value
			case "Test":
				m.tests = append(m.tests, value)
			default:
				t.Errorf("%s: %q is neither What nor Test", file, line)
			}
		}
		all = append(all, m)
	}
	return all
}

// TestMutants checks that every patch applies, describes what it breaks, and names existing tests, and
// that docs/reliability.md lists it. make mutants runs the patches.
func TestMutants(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reliability.md")
	try(t, err)
	index := testIndex{}
	for _, m := range mutants(t) {
		if m.what == "" || len(m.tests) == 0 {
			t.Errorf("%s does not state what it breaks and which tests detect it", m.name)
		}
		for _, named := range m.tests {
			dir, test, _ := strings.Cut(named, " ")
			if index.in(t, filepath.Join(root, dir))[test] == nil {
				t.Errorf("%s: there is no %s", m.name, named)
			}
		}
		if !strings.Contains(string(page), "| "+m.name+" | "+m.what+" |") {
			t.Errorf("docs/reliability.md does not list %s: %s", m.name, m.what)
		}
		if err := applies(m.patch); err != nil {
			t.Errorf("%s no longer applies: %v", m.name, err)
		}
	}
}

// applies returns an error unless the old lines of each hunk stand in the patch's file, as git apply
// requires. A process of git for each patch takes several seconds.
func applies(patch string) error {
	var file, old string
	found := func() error {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err == nil && !strings.Contains(string(text), old) {
			err = fmt.Errorf("%s does not hold\n%s", file, old)
		}
		old = ""
		return err
	}
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "--- a/"), strings.HasPrefix(line, "@@ "):
			if old != "" {
				if err := found(); err != nil {
					return err
				}
			}
			if name, ok := strings.CutPrefix(line, "--- a/"); ok {
				file = strings.TrimSpace(name)
			}
		case file != "" && line == "\n":
			old += line // an editor may remove the space of an empty line
		case file != "" && (line[0] == ' ' || line[0] == '-'):
			old += line[1:]
		}
	}
	if old == "" {
		return errors.New("it has no hunks")
	}
	return found()
}

var (
	testName   = regexp.MustCompile(`\b(Test|Fuzz)[A-Z0-9]\w*`)
	mutantName = regexp.MustCompile(`mutants? ([a-z0-9-]+(?:(?:, | and )(?:[a-z]+-[a-z0-9-]+))*)`)
)

// TestReliabilityNames checks that the tests that docs/reliability.md names exist, and the mutants
// that comments name.
func TestReliabilityNames(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reliability.md")
	try(t, err)
	index, all := testIndex{}, map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "testdata" || strings.HasPrefix(name, ".") && path != root {
			return filepath.SkipDir
		}
		for name := range index.in(t, path) {
			all[name] = true
		}
		return nil
	})
	try(t, err)
	names := testName.FindAllString(string(page), -1)
	if len(names) < 20 {
		t.Errorf("docs/reliability.md names %d tests", len(names))
	}
	for _, name := range names {
		if !all[name] {
			t.Errorf("docs/reliability.md names %s, which does not exist", name)
		}
	}

	known := map[string]bool{}
	for _, m := range mutants(t) {
		known[m.name] = true
	}
	found := 0
	for _, test := range index.in(t, ".") {
		text := strings.Join(strings.Fields(test.Doc.Text()), " ")
		_, seen, _ := strings.Cut(text, "Seen to fail with")
		for _, list := range mutantName.FindAllStringSubmatch(seen, -1) {
			for name := range strings.SplitSeq(strings.ReplaceAll(list[1], " and ", ", "), ", ") {
				found++
				if !known[name] {
					t.Errorf("the comment of %s names the mutant %s, which does not exist", test.Name.Name, name)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("comments name %d mutants", found)
	}
}

// A testIndex has the tests and fuzz targets of each directory that was asked for, by name.
type testIndex map[string]map[string]*ast.FuncDecl

// in returns the tests and fuzz targets of a directory by name.
func (index testIndex) in(t *testing.T, dir string) map[string]*ast.FuncDecl {
	t.Helper()
	if tests := index[dir]; tests != nil {
		return tests
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	try(t, err)
	tests := map[string]*ast.FuncDecl{}
	index[dir] = tests
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		try(t, err)
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
				tests[f.Name.Name] = f
			}
		}
	}
	return tests
}

// calls reports whether a function calls one of the given functions by its unqualified name.
func calls(f *ast.FuncDecl, names ...string) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok && slices.Contains(names, id.Name) {
				found = true
			}
		}
		return !found
	})
	return found
}
