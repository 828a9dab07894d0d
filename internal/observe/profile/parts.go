package profile

import (
	"slices"
	"strings"
)

// A Part is a category of work, by its purpose.
type Part string

// The parts of a request's cost, in the order in which parts of equal cost are shown.
const (
	Receiving         Part = "receiving"          // connections, token; header and body, packets of MQTT, frames of MLLP
	Routing           Part = "routing"            // from the path to the handler
	Decoding          Part = "decoding"           // JSON, validation, decompression
	GroupCommit       Part = "group commit"       // joining a group, waiting, waking up
	StorePart         Part = "store"              // settling, batches, compaction, look-ups
	ReadingBack       Part = "reading back"       // pages and formats of the read API
	Answering         Part = "answering"          // fixed replies, response headers
	Logging           Part = "logging"            // writing log lines
	Measuring         Part = "measuring"          // metrics and profiles themselves
	GarbageCollection Part = "garbage collection" // marking, sweeping, assists
	Scheduler         Part = "scheduler"          // goroutines, timers, the poller
	Kernel            Part = "kernel"             // all system calls
	Other             Part = "other"              // what no rule matches
)

// allParts lists the parts in order. It is never modified.
var allParts = []Part{Receiving, Routing, Decoding, GroupCommit, StorePart, ReadingBack, Answering, Logging,
	Measuring, GarbageCollection, Scheduler, Kernel, Other}

// A rule assigns functions to a part. The part of a stack is decided by the first of
// these that applies:
//
//  1. Kernel: the innermost frame enters the kernel (CPU profiles only; the table of
//     system calls shows which calls).
//  2. Runtime: the innermost frames belong to the runtime, and one of them matches
//     runtimeRules. So a GC assist counts as garbage collection although an allocation
//     caused it, and a wake-up counts as scheduling although a channel caused it.
//     Garbage collection takes precedence over scheduling.
//  3. Owner: the innermost frame that matches ownerRules. So runtime.mallocgc and
//     bytes.IndexByte count as decoding if package vitals calls them.
//  4. Other.
//
// Rules are ordered from special to general; the first that matches a function applies.
type rule struct {
	part      Part
	packages  []string // import paths; a trailing "/..." includes the packages below
	functions []string // prefixes of names within the packages; none means all
}

// passOn is not a part: it leaves the decision to the frame's caller.
const passOn Part = "-"

var runtimeRules = []rule{
	{GarbageCollection, []string{"runtime"}, []string{
		"gc", "_GC", "GC", "bgsweep", "bgscavenge", "sweepone", "(*mspan).ensureSwept", "(*sweepLocked)", "deductSweepCredit",
		"(*mheap).reclaim", "(*scavenge", "(*pageAlloc).scavenge", "wbBufFlush", "markroot", "scanObject", "scanSpan",
		"scanConservative", "scanblock", "scanstack", "greyobject", "runFinalizers", "runCleanups", "(*gcWork)",
		"(*gcControllerState)",
	}},
	{Scheduler, []string{"runtime"}, []string{
		"schedule", "findRunnable", "park_m", "mcall", "gosched", "gopreempt", "goschedImpl", "stealWork",
		"runq", "execute", "resetspinning", "wakep", "startm", "stopm", "mPark", "ready", "goready", "sysmon", "retake",
		"injectglist", "netpoll", "newproc", "goexit0", "goexit1", "gdestroy", "entersyscall", "exitsyscall",
		"reentersyscall",
		"notesleep", "notewakeup", "notetsleep", "futexsleep", "futexwakeup", "mstart", "(*timers)", "(*timer)", "gopark",
		"handoffp", "asyncPreempt", "preemptPark", "templateThread",
	}},
}

// Our own packages that have several parts.
const (
	metricsPackage = modulePath + "/internal/observe/metrics"
	ingestPackage  = modulePath + "/internal/api/ingest"
	mqttPackage    = modulePath + "/internal/api/mqtt"
	hl7Package     = modulePath + "/internal/api/hl7"
	influxPackage  = modulePath + "/internal/api/influx"
	mappingPackage = modulePath + "/internal/api/mapping"
	laneSockets    = modulePath + "/internal/wire/eventloop"
)

var ownerRules = []rule{
	{Logging, []string{"log/...", modulePath + "/internal/observe/logbudget"}, nil},
	// Measuring precedes receiving: the admin listener's handlers are HTTP as well.
	{Measuring, []string{"runtime/pprof", "net/http/pprof", "runtime/metrics", "github.com/prometheus/...",
		modulePath + "/internal/observe/..."}, nil},

	{Decoding, []string{modulePath + "/vitals", "github.com/go-json-experiment/json/...", "encoding/json/...",
		"github.com/klauspost/compress/..."}, nil},
	{Receiving, []string{hl7Package}, []string{"(*conn)", "(*frames)", "(*Server)"}},
	{Answering, []string{hl7Package}, []string{"(*Message).Answer", "(*Message).append"}},
	{Answering, []string{influxPackage}, []string{"(*input).Respond", "(*api)"}},
	{Decoding, []string{hl7Package, influxPackage, mappingPackage}, nil},
	{Decoding, []string{ingestPackage}, []string{"(*Job).Decode", "(*Job).decode", "(*Core).Job", "(*answers).refusalOf"}},
	{GroupCommit, []string{ingestPackage}, []string{"(*Job).Commit", "(*Job).refuse", "(*Lane).submit", "(*turn).Done"}},
	{Answering, []string{ingestPackage}, []string{"(*Job).Answer", "(*Job).batchAnswer", "(*Answer)", "(*answers)",
		"(*Outcome)", "(*httpFront).AppendAnswer", "(*Lane).answer", "appendRejected", "(*handler).refuse"}},
	{Answering, []string{mqttPackage}, []string{"(*loopFront).AppendAnswer", "(*service).resultOf",
		"(*session).appendAck"}},
	{Receiving, []string{ingestPackage, mqttPackage, "github.com/mochi-mqtt/...", modulePath + "/internal/wire/...",
		modulePath + "/internal/access/..."}, nil},

	{GroupCommit, []string{modulePath + "/internal/storage/groupcommit"}, nil},
	{StorePart, []string{modulePath + "/internal/storage/...", "github.com/cockroachdb/pebble/..."}, nil},
	{ReadingBack, []string{modulePath + "/internal/api/query"}, nil},
	{Answering, []string{modulePath + "/reply", modulePath + "/health", modulePath + "/internal/api/problem"}, nil},
	{Routing, []string{modulePath + "/mux"}, nil},
	{Routing, []string{"net/http"}, []string{"(*ServeMux)", "(*routingNode)", "(*routingIndex)", "(*pattern)"}},

	// Headers are read by the server and written by handlers.
	{passOn, []string{"net/http"}, []string{"Header.", "HandlerFunc.", "(*Request)."}},
	{Answering, []string{"net/http"}, []string{
		"(*response)", "(*chunkWriter)", "checkConnErrorWriter", "(*ResponseController)",
		"extraHeader", "StatusText", "writeStatusLine", "DetectContentType",
	}},
	{Receiving, []string{"net/http/...", "net/textproto", "net/url"}, nil},
}

// runtimePackages are the packages whose cost belongs to their callers.
var runtimePackages = []rule{{Other, []string{"runtime", "internal/runtime/..."}, nil}}

// waitPackages are the packages through which goroutines wait.
var waitPackages = []rule{{Other, []string{"sync", "internal/sync", "internal/poll"}, nil}}

// wrappers only count what passes through them. Their lines would hide the lines of our
// own code that cause the work.
var wrappers = []rule{{Measuring, []string{metricsPackage}, []string{"(*statusWriter)"}}}

// match returns the part of the first matching rule, or "".
func match(rules []rule, pkg, base string) Part {
	for i := range rules {
		if r := &rules[i]; r.matches(pkg, base) {
			if r.part == passOn {
				return ""
			}
			return r.part
		}
	}
	return ""
}

func (r *rule) matches(pkg, base string) bool {
	named := slices.ContainsFunc(r.packages, func(p string) bool {
		root, below := strings.CutSuffix(p, "/...")
		return pkg == root || below && underPackage(pkg, root)
	})
	return named &&
		(len(r.functions) == 0 || slices.ContainsFunc(r.functions, func(f string) bool { return strings.HasPrefix(base, f) }))
}

// partOf returns the part of a stack, innermost frame first.
func partOf(stack []frame) Part {
	if len(stack) > 0 && stack[0].kernel {
		return Kernel
	}
	part := Part("")
	for _, f := range stack {
		if !f.inRuntime {
			break
		}
		if f.runtimePart == GarbageCollection {
			return GarbageCollection
		}
		if part == "" {
			part = f.runtimePart
		}
	}
	if part != "" {
		return part
	}
	for _, f := range stack {
		if f.ownerPart != "" {
			return f.ownerPart
		}
	}
	return Other
}

// ownFrame returns the position of the innermost frame of our own code, or -1.
// Wrappers do not count as our own.
func ownFrame(stack []frame) int {
	return slices.IndexFunc(stack, func(f frame) bool { return f.own })
}

// gateways are the functions through which system calls with any number go. The first
// frame outside of them has the name of the call.
var gateways = []rule{
	{Kernel, []string{"internal/runtime/syscall/..."}, []string{"Syscall6"}},
	{Kernel, []string{"syscall"}, []string{"Syscall", "RawSyscall", "rawSyscall", "AllThreadsSyscall"}},
	{Kernel, []string{"golang.org/x/sys/unix"}, []string{"Syscall", "RawSyscall", "SyscallNoError", "RawSyscallNoError"}},
}

// callPackages are the packages whose functions are named after system calls.
var callPackages = []rule{{Kernel, []string{"internal/runtime/syscall/...", "syscall", "golang.org/x/sys/unix",
	laneSockets}, nil}}

// runtimeCalls are the system calls that the runtime makes directly in assembly
// (runtime/sys_linux_amd64.s).
var runtimeCalls = map[string]bool{
	"futex": true, "usleep": true, "osyield": true, "madvise": true, "sysMmap": true, "sysMunmap": true, "mincore": true,
	"write1": true, "read": true, "open": true, "closefd": true, "pipe2": true, "tgkill": true, "raise": true,
	"clone": true, "rtsigprocmask": true, "sigaltstack": true, "timer_settime": true, "timer_create": true,
	"setitimer": true, "sched_getaffinity": true, "exit": true, "exitThread": true,
}

// callNames maps wrappers to calls whose names differ by more than capitals and
// trailing digits, as in runtime.write1.
var callNames = map[string]string{
	"sysmmap": "mmap", "sysmunmap": "munmap", "closefd": "close", "epollwait": "epoll_wait", "epollctl": "epoll_ctl",
}

// syscallOf returns the name of the system call of a stack in part Kernel, such as
// "write", or "other" if the frames do not show it.
func syscallOf(stack []frame) string {
	for _, f := range stack {
		if f.gateway {
			continue
		}
		if !f.kernel && match(callPackages, f.pkg, f.base) == "" {
			break
		}
		name := strings.TrimRight(strings.ToLower(f.base), "0123456789")
		if known, ok := callNames[name]; ok {
			return known
		}
		return name
	}
	return "other"
}
