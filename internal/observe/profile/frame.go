package profile

import (
	"path"
	"strings"

	"github.com/google/pprof/profile"
)

// modulePath is that of our own code.
const modulePath = "github.com/pulsegate/pulsegate"

// A function is what is known of a profile's function, worked out once.
type function struct {
	name string // as the profile has it, such as "net/http.(*conn).serve"
	pkg  string // "net/http"
	base string // "(*conn).serve"
	file string // as the profile has it

	inRuntime bool // a frame of the runtime, whose work belongs to whoever called
	own       bool // a frame of our own code
	kernel    bool // enters the kernel
	gateway   bool // a function by which all system calls go, without a name of its own

	runtimePart Part // of the rules for the runtime; "" where none applies
	ownerPart   Part // of the rules for owners; "" where none applies
}

// A frame is one function of a stack, and the line in it.
type frame struct {
	*function
	line int64
}

// frames resolves the stacks of one profile. Its results share memory.
type frames struct {
	known   map[*profile.Function]*function
	unknown *function
	buf     []frame
}

func newFrames() *frames {
	return &frames{
		known:   map[*profile.Function]*function{},
		unknown: newFunction("(unknown)", ""),
	}
}

// stack returns the frames of a sample, the innermost first, inlined calls each
// by itself. It is valid until the next call.
func (f *frames) stack(s *profile.Sample) []frame {
	f.buf = f.buf[:0]
	for _, loc := range s.Location {
		if len(loc.Line) == 0 {
			f.buf = append(f.buf, frame{f.unknown, 0})
		}
		for _, l := range loc.Line {
			f.buf = append(f.buf, frame{f.function(l.Function), l.Line})
		}
	}
	return f.buf
}

func (f *frames) function(p *profile.Function) *function {
	if p == nil {
		return f.unknown
	}
	if fn, ok := f.known[p]; ok {
		return fn
	}
	fn := newFunction(p.Name, p.Filename)
	f.known[p] = fn
	return fn
}

func newFunction(name, file string) *function {
	fn := &function{name: name, file: file}
	fn.pkg, fn.base = splitName(name)
	fn.inRuntime = fn.pkg == "runtime" || strings.HasPrefix(fn.pkg, "internal/runtime/")
	fn.own = (fn.pkg == "main" || underPackage(fn.pkg, modulePath)) && match(wrappers, fn.pkg, fn.base) == ""
	fn.kernel, fn.gateway = isKernelEntry(fn.pkg, fn.base)
	fn.runtimePart = match(runtimeRules, fn.pkg, fn.base)
	fn.ownerPart = match(ownerRules, fn.pkg, fn.base)
	return fn
}

// splitName splits a function's name as the linker writes it into the path of its
// package and the rest.
func splitName(name string) (pkg, base string) {
	// Type arguments may hold slashes and dots of their own.
	head := name
	if i := strings.IndexByte(head, '['); i >= 0 {
		head = head[:i]
	}
	start := strings.LastIndexByte(head, '/') + 1
	dot := strings.IndexByte(head[start:], '.')
	if dot < 0 {
		return "", name
	}
	// The linker escapes dots in the last element of a path.
	return strings.ReplaceAll(name[:start+dot], "%2e", "."), name[start+dot+1:]
}

// underPackage reports whether pkg is root or a package below it. Test packages
// count as the package that they test.
func underPackage(pkg, root string) bool {
	rest, ok := strings.CutPrefix(pkg, root)
	return ok && (rest == "" || rest[0] == '/' || rest[0] == '.' || rest == "_test")
}

// shortName returns a function's name without the path of our module, or with
// only the last element of another package's path.
func (fn *function) shortName() string {
	if fn.pkg == "" {
		return fn.name
	}
	return fn.shortPackage() + "." + withoutTypeArguments(fn.base)
}

// withoutTypeArguments replaces what stands in brackets, which may be longer than
// a screen.
func withoutTypeArguments(name string) string {
	var short strings.Builder
	depth := 0
	for _, c := range name {
		switch c {
		case '[':
			if depth == 0 {
				short.WriteString("[…]")
			}
			depth++
		case ']':
			depth = max(depth-1, 0)
		default:
			if depth == 0 {
				short.WriteRune(c)
			}
		}
	}
	return short.String()
}

func (fn *function) shortPackage() string {
	switch rest, ok := strings.CutPrefix(fn.pkg, modulePath+"/"); {
	case ok:
		return rest
	case strings.Contains(fn.pkg, ".") && strings.Contains(fn.pkg, "/"):
		// Not of the standard library: host/owner/module/... says little.
		return lastElements(fn.pkg)
	}
	return fn.pkg
}

// lastElements returns the end of an import path that people call it by: without
// the host, and without a major version at its end.
func lastElements(pkg string) string {
	base := path.Base(pkg)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		return path.Base(path.Dir(pkg)) + "/" + base
	}
	return base
}

// place returns the file and the line of a frame of our own code, relative to the
// module's root: "internal/api/ingest/body.go:123". Paths of the build machine are
// left out, so that two builds can be compared.
func (f frame) place() string {
	dir := strings.TrimPrefix(f.pkg, modulePath+"/")
	if f.pkg == "main" {
		// The package's path is not in the name; the file's last folder is close.
		dir = "cmd/" + path.Base(path.Dir(f.file))
	}
	return dir + "/" + path.Base(f.file) + ":" + itoa(f.line)
}
