// Package ingest processes the readings of a request from its bytes to stable storage:
// decode, validate, join a group, commit, answer.
//
// # Promise
//
// An answer with the status stored or duplicate is made only after the store's sync of that
// reading has returned without an error. The answer to a request accounts for each of its
// readings.
//
// # Core and fronts
//
// A [Core] is independent of any HTTP library. A front reads a request and owns its bytes; it
// borrows a [Job] from the Core and calls three methods:
//
//	job := core.Job()
//	ok := job.Decode(body)      // body may be reused after this
//	job.Commit(ctx)             // waits for the sync, unless ok is false
//	answer := job.Answer()      // valid until Release
//	job.Release()
//
// A Job does not retain the body after Decode has returned.
//
// If there is a [gate.Gate], a front authorizes a request before it reads the body, and passes
// the result to the Job: readings are attributed to the token's gateway, readings of devices
// that the token does not cover are rejected, and all are charged to the token's rate. A Job
// without authorization accepts no readings.
//
// [Core.Handler] is the front for net/http. [Core.FastLane] is a front on an event loop for
// the usual request only: it submits the readings of many requests to the committer together,
// and leaves every other request to net/http.
//
// # Not here
//
// No storage and no routing. The Core does not read requests.
package ingest
