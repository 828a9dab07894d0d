// Package groupcommit merges many concurrent writes into few durable ones.
//
// # Promise
//
// When [Committer.Commit] returns nil, the flush function has returned nil for
// a group that holds all of the caller's items, adjacent and in the caller's order.
// Calls are flushed and answered in the order of their admission.
//
// When Commit returns an error that wraps [ErrNotWritten], no item of the call
// was or will be passed to the flush function.
//
// # Why groups
//
// A write is safe only after a sync, and a sync costs the same for one write as
// for a thousand. So the calls that arrive during one sync share the next.
//
//	Commit ──┐
//	Commit ──┼── Submit: join the newest group ──> queue ──> run: flush, answer ──┐
//	Submit ──┘   (mutex; copies the items)         of groups  (one goroutine)     │
//	   └<──────────────────────── the flush, to each call ────────────────────────┘
//
// There is no timer. An idle committer flushes a call immediately, in a group of its
// own; during a flush, the next group fills. So the size of groups follows from the
// load and the duration of a flush, and a call waits for its own flush and for those
// of the groups ahead of it.
//
// # Invariants
//
//   - Every admitted call is answered exactly once, with the outcome of its own
//     group's flush or, if an earlier flush panicked, with an error. Close does not
//     change this.
//   - The items of a call are adjacent in one group. A call that does not fit into
//     the newest group opens the next; no call overtakes another.
//   - flush is called by one goroutine, with at least one item.
//   - No call is admitted after Close or after a panic.
//   - A call whose ctx has ended is answered too; its memory is left to the garbage
//     collector and never reused for another call.
//
// An error of flush is the answer to its group only: the store decides whether it
// accepts another group. After a panic, the state of the store is unknown. The group
// gets a [PanicError]; queued and later calls get an error that wraps it and
// ErrNotWritten.
//
// docs/adr/0002-group-commit-without-timer.md lists the designs that were rejected.
//
// # Not here
//
// No bound on the queue: callers limit their calls before they spend work on them,
// and a call has at most MaxGroup items. A Committer never retries, reorders or drops
// calls: these choices belong to the caller and to the store. It never splits a call;
// the caller does. It keeps no histogram: Options.OnFlush observes every flush.
package groupcommit
