package profile

import "strings"

// A Part is what a stretch of work was for.
type Part string

// The parts of a request's cost, in the order in which they are shown when they
// cost the same.
const (
	HTTPReading       Part = "HTTP reading"       // connections, header, token and body
	Routing           Part = "routing"            // from the path to the handler
	Decoding          Part = "decoding"           // JSON, validation, decompression
	GroupCommit       Part = "group commit"       // joining a group, waiting, being woken
	StorePart         Part = "store"              // settling, batches, compaction, look-ups
	ReadingBack       Part = "reading back"       // the read side's pages and formats
	Answering         Part = "answering"          // fixed replies, response headers
	Logging           Part = "logging"            // writing log lines
	Measuring         Part = "measuring"          // metrics and profiles themselves
	GarbageCollection Part = "garbage collection" // marking, sweeping, assists
	Scheduler         Part = "scheduler"          // goroutines, timers, the poller
	Kernel            Part = "kernel"             // system calls, whoever makes them
	Other             Part = "other"              // what no rule knows
)

// allParts are the parts in their order. It is never written to.
var allParts = []Part{HTTPReading, Routing, Decoding, GroupCommit, StorePart, ReadingBack, Answering, Logging,
	Measuring, GarbageCollection, Scheduler, Kernel, Other}

// A rule gives stacks to a part. A stack is read from the innermost frame
// outwards, and the first of these decides:
//
//  1. Kernel: the innermost frame enters the kernel. (CPU profiles only; the table
//     of system calls tells which.)
//  2. Runtime: the innermost frames belong to the runtime, and one of them matches
//     runtimeRules. So a garbage collection's assist is garbage collection
//     although an allocation made it, and a wake-up is scheduling although a
//     channel made it. Garbage collection goes before scheduling.
//  3. Owner: the nearest frame that matches ownerRules. So runtime.mallocgc called
//     from package vitals is decoding, and so is bytes.IndexByte called from there.
//  4. Other.
//
// A rule is about packages first: which of them, then which of their functions.
// Rules stand from the special to the general, and the first that matches counts.
type rule struct {
	part      Part
	pkg       string   // import path; with "/..." at its end the packages below it too
	functions []string // beginnings of names within the package; none means all
}

// passOn is not a part: the frame's caller decides.
const passOn Part = "-"

var runtimeRules = []rule{
	{GarbageCollection, "runtime", []string{
		"gc", "_GC", "GC", "bgsweep", "bgscavenge", "sweepone", "(*mspan).ensureSwept", "(*sweepLocked)", "deductSweepCredit",
		"(*mheap).reclaim", "(*scavenge", "(*pageAlloc).scavenge", "wbBufFlush", "markroot", "scanObject", "scanSpan",
		"scanConservative", "scanblock", "scanstack", "greyobject", "runFinalizers", "runCleanups", "(*gcWork)", "(*gcControllerState)",
	}},
	{Scheduler, "runtime", []string{
		"schedule", "findRunnable", "park_m", "mcall", "gosched", "gopreempt", "goschedImpl", "stealWork",
		"runq", "execute", "resetspinning", "wakep", "startm", "stopm", "mPark", "ready", "goready", "sysmon", "retake",
		"injectglist", "netpoll", "newproc", "goexit0", "goexit1", "gdestroy", "entersyscall", "exitsyscall", "reentersyscall",
		"notesleep", "notewakeup", "notetsleep", "futexsleep", "futexwakeup", "mstart", "(*timers)", "(*timer)", "gopark",
		"handoffp", "asyncPreempt", "preemptPark", "templateThread",
	}},
}

var ownerRules = []rule{
	// Measuring goes first: the admin listener's handlers are HTTP as well.
	{Measuring, "runtime/pprof", nil},
	{Measuring, "net/http/pprof", nil},
	{Measuring, "runtime/metrics", nil},
	{Measuring, "github.com/prometheus/...", nil},
	{Measuring, modulePath + "/internal/observe/metrics", nil},
	{Measuring, modulePath + "/internal/observe/profile", nil},

	{Logging, "log/...", nil},

	{Decoding, modulePath + "/vitals", nil},
	{Decoding, "github.com/go-json-experiment/json/...", nil},
	{Decoding, "encoding/json/...", nil},
	{Decoding, "github.com/klauspost/compress/...", nil},

	{Decoding, modulePath + "/internal/api/ingest", []string{"(*Job).Decode", "(*Job).decode", "(*Core).Job", "(*Core).refusalOf"}},
	{GroupCommit, modulePath + "/internal/api/ingest", []string{"(*Job).Commit", "(*Job).refuse"}},
	{Answering, modulePath + "/internal/api/ingest", []string{"(*Job).Answer", "(*Job).batchAnswer", "(*Answer)", "(*Core).answerTo", "entryRefusal", "appendRejected", "(*handler).refuse"}},
	{HTTPReading, modulePath + "/internal/api/ingest", nil},
	{HTTPReading, modulePath + "/internal/wire/eventloop", nil},
	{HTTPReading, modulePath + "/internal/wire/fastparse", nil},
	{HTTPReading, modulePath + "/internal/access/token", nil},

	{GroupCommit, modulePath + "/internal/storage/groupcommit", nil},

	{StorePart, modulePath + "/internal/storage/...", nil},
	{StorePart, "github.com/cockroachdb/pebble/...", nil},

	{ReadingBack, modulePath + "/internal/api/query", nil},

	{Answering, modulePath + "/reply", nil},
	{Answering, modulePath + "/health", nil},
	{Answering, modulePath + "/internal/api/problem", nil},

	{Routing, modulePath + "/mux", nil},
	{Routing, "net/http", []string{"(*ServeMux)", "(*routingNode)", "(*routingIndex)", "(*pattern)"}},

	// A header is read by the server and written by handlers.
	{passOn, "net/http", []string{"Header.", "HandlerFunc.", "(*Request)."}},
	{Answering, "net/http", []string{
		"(*response)", "(*chunkWriter)", "checkConnErrorWriter", "(*ResponseController)",
		"extraHeader", "StatusText", "writeStatusLine", "DetectContentType",
	}},
	{HTTPReading, "net/http/...", nil},
	{HTTPReading, "net/textproto", nil},
	{HTTPReading, "net/url", nil},
}

// wrappers stand between a caller and what it calls, and only count. A line of
// theirs would hide the line that the work is for.
var wrappers = []rule{
	{Measuring, modulePath + "/internal/observe/metrics", []string{"(*statusWriter)", "observedAppender"}},
}

// match returns the part that the first matching rule names, or "".
func match(rules []rule, pkg, base string) Part {
	for i := range rules {
		r := &rules[i]
		if r.matches(pkg, base) {
			if r.part == passOn {
				return ""
			}
			return r.part
		}
	}
	return ""
}

func (r *rule) matches(pkg, base string) bool {
	if root, below := strings.CutSuffix(r.pkg, "/..."); below {
		if !underPackage(pkg, root) {
			return false
		}
	} else if pkg != r.pkg {
		return false
	}
	for _, f := range r.functions {
		if strings.HasPrefix(base, f) {
			return true
		}
	}
	return len(r.functions) == 0
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
	for i, f := range stack {
		if f.own {
			return i
		}
	}
	return -1
}
