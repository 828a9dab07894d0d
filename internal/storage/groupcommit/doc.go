// Package groupcommit merges many concurrent writes into few durable ones.
//
// # Promise
//
// When [Committer.Commit] returns nil, the flush function has returned nil for
// a group that holds all of the caller's items, side by side and in the caller's
// order. Calls are admitted, flushed and answered in one order.
//
// When Commit returns an error that wraps [ErrNotWritten], no item of the call
// was handed to the flush function, nor will be.
//
// # Why groups
//
// A write is safe only after a sync, and a sync costs the same for one write as
// for a thousand. So the calls that come in while one sync runs share the next.
//
//	Commit ──┐
//	Commit ──┼── Submit: join the newest group ──> queue ──> run: flush, answer ──┐
//	Submit ──┘   (mutex; copies the items)         of groups  (one goroutine)     │
//	   └<──────────────────────── the flush, to each call ────────────────────────┘
//
// There is no timer. When the committer is idle, a group of one call goes at
// once; while it flushes, the next group fills. Groups become as large as the
// load and the duration of a flush make them: an idle caller waits for one flush
// and a busy one for the groups ahead of it.
//
// # Invariants
//
//   - Every admitted call is answered exactly once: by the outcome of its own
//     group's flush, or after a panic. Close changes nothing in this.
//   - The items of a call stand in one group, side by side. A call that does not
//     fit into the newest group opens the next; none overtakes another.
//   - flush is called by one goroutine, with at least one item.
//   - No call is admitted after Close or after a panic.
//   - A call that its caller has abandoned is answered all the same; its memory
//     is left to the garbage collector and never used for another call.
//
// An error of flush is the answer to its group and to no other: only the store
// knows whether it can take another. After a panic nobody knows what state the
// store is in. The group gets a [PanicError]; the calls behind it and all later
// ones get an error that wraps it and ErrNotWritten.
//
// docs/adr/0002-group-commit-without-timer.md lists the designs that were rejected;
// BenchmarkCommit compares one of them.
//
// # Not here
//
// No bound on the queue: the callers admit, before they spend anything on a call;
// one call brings at most MaxGroup items. A Committer never retries, never reorders
// and never drops: those choices belong to the caller and to the store. It never
// splits a call: the caller of a large one does. It keeps no histogram: Config.OnFlush
// observes every flush.
package groupcommit
