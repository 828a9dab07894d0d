package routers_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	gorilla "github.com/gorilla/mux"

	"github.com/pulsegate/pulsegate/mux"
)

// compilerKinds is the number of functions that compilerOf can return.
const compilerKinds = 4

// check builds one scenario with both packages and compares the answers to some requests.
func check(t *testing.T, data []byte) {
	t.Helper()
	s := newScenario(&chooser{data})
	defer func(theirs, ours func(string) (*regexp.Regexp, error)) {
		gorilla.RegexpCompileFunc, mux.RegexpCompileFunc = theirs, ours
	}(gorilla.RegexpCompileFunc, mux.RegexpCompileFunc)
	if compile := compilerOf(s.compiler); compile != nil {
		gorilla.RegexpCompileFunc, mux.RegexpCompileFunc = compile, compile
	}
	checkPair(t, s, false)
	if !s.usesOmit() {
		checkPair(t, s, true)
	}
}

func checkPair(t *testing.T, s scenario, share bool) {
	t.Helper()
	theirs := &instance{access: gorillaAccessors, root: gorillaRouter{gorilla.NewRouter()}, update: func(f func()) { f() }}
	own := mux.NewRouter().ShareRequest(share)
	ours := &instance{access: oursAccessors, root: oursRouter{own}, update: own.Update}
	// If neither route nor router is stored in the context, gorilla passes the
	// original request to middleware. In a reentrant call it would change the
	// request of the outer call.
	omitted := s.omitRoute && s.omitRouter
	if !omitted {
		theirs.maxDepth, ours.maxDepth = 2, 2
	}
	// both calls f for both instances and compares the panics.
	both := func(what string, f func(*instance)) (panicked bool) {
		want, got := panicOf(func() { f(theirs) }), panicOf(func() { f(ours) })
		if got != want {
			t.Fatalf("%s: %s, gorilla %s\n%s", what, got, want, s.table)
		}
		return want != ""
	}
	if both("building", func(in *instance) { in.build(s.table, in.root, "") }) {
		return
	}
	both("copying", func(in *instance) {
		in.served = in.root
		if s.copied {
			in.served = in.root.copied()
		}
	})
	p := &pairing{theirs, ours, s.usesEncoding(), share || omitted}
	send := func(when string, specs []requestSpec) {
		t.Helper()
		p.compareRoutes(t, s.table)
		for _, spec := range specs {
			if diff := p.compare(spec); diff != "" {
				t.Fatalf("share %v, %s: %s\nrequest %+q\nchanges %+q\n%s", share, when, diff, fmt.Sprint(spec),
					fmt.Sprint(s.changes), s.table)
			}
		}
	}
	send("at first", s.before)
	panicked := both("changing", func(in *instance) {
		update := func(f func()) { f() }
		if s.grouped {
			update = in.update
		}
		update(func() { in.applyChanges(s.changes) })
	})
	if !panicked {
		send("after the changes", s.after)
	}
}

// compilerOf returns one of the functions to which programs may set RegexpCompileFunc.
func compilerOf(kind int) func(string) (*regexp.Regexp, error) {
	switch kind {
	case 1:
		return regexp.CompilePOSIX
	case 2:
		return func(s string) (*regexp.Regexp, error) { return regexp.Compile("(?i)" + s) }
	case 3:
		kept := make(map[string]*regexp.Regexp)
		return func(s string) (*regexp.Regexp, error) {
			if re := kept[s]; re != nil {
				return re, nil
			}
			re, err := regexp.Compile(s)
			if err == nil {
				kept[s] = re
			}
			return re, err
		}
	default:
		return nil
	}
}

// usesEncoding reports whether a router of the table matches encoded paths.
func (t *table) usesEncoding() bool {
	return t.encoded ||
		slices.ContainsFunc(t.routes, func(r routeSpec) bool { return r.sub != nil && r.sub.usesEncoding() })
}

// usesOmit reports whether the root omits the route or the router.
func (t *table) usesOmit() bool { return t.omitRoute || t.omitRouter }

// String prints the table for a failed test.
func (t *table) String() string { return t.indented("  ") }

func (t *table) indented(by string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%sstrict=%v late=%v skipClean=%v encoded=%v omit=%v,%v 404=%v 405=%v middlewares=%v\n",
		by, t.strictSlash, t.lateStrict, t.skipClean, t.encoded, t.omitRoute, t.omitRouter, t.notFound, t.notAllowed,
		t.middlewares)
	for i, r := range t.routes {
		fmt.Fprintf(&b, "%sroute %d: %+q handler=%v again=%q buildOnly=%v name=%q middlewares=%d after=%+q\n",
			by, i, fmt.Sprint(r.steps), r.handler, r.reenter, r.buildOnly, r.name, r.middlewares, fmt.Sprint(r.after))
		if r.sub != nil {
			b.WriteString(r.sub.indented(by + "  "))
		}
	}
	return b.String()
}

// TestAgainstGorilla compares both packages on random scenarios.
func TestAgainstGorilla(t *testing.T) {
	tables := 10_000
	if testing.Short() {
		tables = 1_000
	}
	for seed := range uint64(tables) {
		check(t, randomBytes(seed))
	}
}

func randomBytes(seed uint64) []byte {
	rnd := rand.New(rand.NewPCG(seed, 3))
	data := make([]byte, 40+rnd.IntN(360))
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	return data
}

// FuzzAgainstGorilla does the same with tables made by the fuzzer.
func FuzzAgainstGorilla(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("an arbitrary table of routes with some requests"))
	for seed := range uint64(20) {
		f.Add(randomBytes(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const maxBytes = 800 // enough for a scenario
		if len(data) > maxBytes {
			return
		}
		check(t, data)
	})
}
