// Package ingest is the way of a reading from the bytes of a request to stable
// storage: decode, validate, join a group, commit, answer.
//
// # Promise
//
// An answer that says stored, or duplicate, is made only after the store's sync
// of that reading has returned without an error. Every reading of a request is
// accounted for in its answer.
//
// # Core and fronts
//
// A [Core] is the part that knows no HTTP library. A front reads a request and
// owns its bytes; it borrows a [Job] from the Core and takes it through three
// steps:
//
//	job := core.Job()
//	ok := job.Decode(body)      // body may be reused after this
//	job.Commit(ctx)             // waits for the sync, unless ok is false
//	answer := job.Answer()      // valid until Release
//	job.Release()
//
// Nothing in a Job refers to the body once Decode has returned.
//
// Where there is a [gate.Gate], a front asks it before it reads a body, and gives the
// Job what it was granted: the readings are then of the gateway that it names, those
// of other devices are refused, and all are charged to its rate. A Job that was
// granted nothing lets no reading through.
//
// [Core.Handler] is the front for net/http. [Core.FastLane] is a front for the usual
// request alone, on an event loop: it hands the readings of many requests to the
// committer at once, and every other request to net/http.
//
// # Not here
//
// No storage and no routing. No reading of requests in the Core.
package ingest
