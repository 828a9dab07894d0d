package profile

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"
)

// modulePath is the module path of our own code.
const modulePath = "github.com/pulsegate/pulsegate"

// A function describes a function of a profile. It is computed once per function.
type function struct {
	name string // as in the profile, such as "net/http.(*conn).serve"
	pkg  string // "net/http"
	base string // "(*conn).serve"
	file string // as in the profile

	inRuntime bool // a function of the runtime, whose cost belongs to its caller
	own       bool // a function of our own code
	kernel    bool // enters the kernel
	gateway   bool // a function through which all system calls go

	runtimePart Part // by runtimeRules; "" if none matches
	ownerPart   Part // by ownerRules; "" if none matches
}

// A frame is one function of a stack, and the line in it.
type frame struct {
	*function
	line int64
}

// eachSample calls f with the stack of every sample and its values of two types. The
// stack has the innermost frame first and a frame for each inlined call; it is valid
// only during the call. eachSample skips samples whose values are both 0, and does
// nothing if p is nil or lacks one of the types.
func eachSample(p *profile.Profile, typeA, typeB string, f func(stack []frame, a, b int64)) {
	if p == nil {
		return
	}
	a, b := -1, -1
	for i, t := range p.SampleType {
		if t.Type == typeA {
			a = i
		}
		if t.Type == typeB {
			b = i
		}
	}
	if a < 0 || b < 0 {
		return
	}
	known := map[*profile.Function]*function{nil: newFunction("(unknown)", "")}
	var stack []frame
	for _, s := range p.Sample {
		if s.Value[a] == 0 && s.Value[b] == 0 {
			continue
		}
		stack = stack[:0]
		for _, loc := range s.Location {
			if len(loc.Line) == 0 {
				stack = append(stack, frame{known[nil], 0})
			}
			for _, l := range loc.Line {
				if known[l.Function] == nil {
					known[l.Function] = newFunction(l.Function.Name, l.Function.Filename)
				}
				stack = append(stack, frame{known[l.Function], l.Line})
			}
		}
		f(stack, s.Value[a], s.Value[b])
	}
}

func newFunction(name, file string) *function {
	fn := &function{name: name, file: file}
	fn.pkg, fn.base = splitName(name)
	fn.inRuntime = match(runtimePackages, fn.pkg, fn.base) != ""
	fn.own = (fn.pkg == "main" || underPackage(fn.pkg, modulePath)) && match(wrappers, fn.pkg, fn.base) == ""
	fn.gateway = match(gateways, fn.pkg, fn.base) != ""
	fn.kernel = fn.gateway || fn.pkg == "runtime" && runtimeCalls[fn.base]
	fn.runtimePart = match(runtimeRules, fn.pkg, fn.base)
	fn.ownerPart = match(ownerRules, fn.pkg, fn.base)
	return fn
}

// splitName splits a function's linker name into its package path and the rest.
func splitName(name string) (pkg, base string) {
	head, _, _ := strings.Cut(name, "[") // type arguments may contain slashes and dots
	start := strings.LastIndexByte(head, '/') + 1
	dot := strings.IndexByte(head[start:], '.')
	if dot < 0 {
		return "", name
	}
	// The linker escapes dots in the last element of a path.
	return strings.ReplaceAll(name[:start+dot], "%2e", "."), name[start+dot+1:]
}

// underPackage reports whether pkg is root or a package below it. A test package counts
// as the package that it tests.
func underPackage(pkg, root string) bool {
	rest, ok := strings.CutPrefix(pkg, root)
	return ok && (rest == "" || rest[0] == '/' || rest[0] == '.' || rest == "_test")
}

// shortName returns a function's name without the path of our module and, for
// third-party packages, with only the last element of the package path:
// "pebble/v2.(*DB).Apply".
func (fn *function) shortName() string {
	if fn.pkg == "" {
		return fn.name
	}
	pkg, ok := strings.CutPrefix(fn.pkg, modulePath+"/")
	if !ok && strings.Contains(pkg, ".") && strings.Contains(pkg, "/") {
		dir, base := path.Split(pkg)
		if pkg = base; len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
			pkg = path.Base(dir) + "/" + base // a major version
		}
	}
	return pkg + "." + fn.shortBase()
}

// typeArguments matches the type arguments in a function's name, which may be very long.
var typeArguments = regexp.MustCompile(`\[.*\]`)

// shortBase returns base without type arguments.
func (fn *function) shortBase() string { return typeArguments.ReplaceAllString(fn.base, "[…]") }

// place returns file and line of a frame of our own code, relative to the module's
// root: "internal/api/ingest/body.go:123". It omits paths of the build machine, so that
// two builds can be compared.
func (f frame) place() string {
	dir := strings.TrimPrefix(f.pkg, modulePath+"/")
	if f.pkg == "main" {
		// The name lacks the package path; approximate it with the file's directory.
		dir = "cmd/" + path.Base(path.Dir(f.file))
	}
	return dir + "/" + path.Base(f.file) + ":" + strconv.FormatInt(f.line, 10)
}
