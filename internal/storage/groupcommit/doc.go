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
// Memory is bounded by [Config]: what does not fit is refused at once, nobody
// waits for room.
//
// # Why groups
//
// A write is safe only after a sync, and a sync costs the same for one write as
// for a thousand. So the calls that come in while one sync runs share the next.
//
//	Commit ──┐
//	Commit ──┼── admit: join the newest group ──> queue ──> run: flush, answer ──┐
//	Submit ──┘   (mutex; copies the items)        of groups  (one goroutine)     │
//	   └<───────────────────────── the answer, to each call ─────────────────────┘
//
// There is no timer. When the committer is idle, a group of one call goes at
// once; while it flushes, the next group fills. Groups become as large as the
// load and the duration of a flush make them: an idle caller waits for one flush
// and a busy one for at most the groups ahead of it, which MaxQueued bounds.
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
// An error of flush is the answer to its group and to no other: the committer
// goes on, since only the store knows whether it can. After a panic nobody knows
// what state the store is in. The group is told a [PanicError], the calls behind
// it and all later ones that nothing of theirs was written, for the same reason.
//
// # Rejected designs
//
// A timer that lets a group fill. It adds its whole length to the latency of a
// caller who is alone, and under load the flush itself is the better timer: it
// adapts to the disk.
//
// A channel of calls instead of a mutex and a list of groups. BenchmarkCommit
// compares them with 1, 64 and 1,000 callers: times and group sizes are the same
// within the noise, but for a lone caller with nothing to flush, whom the channel
// saves 30 ns of 440. The channel needs a second lock against a send after Close,
// a place for every call that may ever be queued from the start, and the caller's
// slice for as long as the call waits. With the mutex a call joins its group where
// the flush will find it, and refusing it or failing it is one decision.
//
// One channel for a group, closed to wake all of its callers. It would be an
// allocation for each group, which is one for each call when a caller is alone.
// A channel for each call, with room for its answer, comes from a pool, and
// abandoning it concerns nobody else.
//
// A leader among the callers who flushes for the others, and no goroutine. It
// saves a lone caller two switches, which are most of the 440 ns, where a sync
// takes 100 µs. But a leader cannot return when its context ends, pays for others
// with its own latency, and the callers of Submit have no goroutine to lend.
//
// A second goroutine that answers while the next flush runs. The answers are
// what brings the next calls: those would come one group later, and the groups
// would be half as large.
//
// Waiting until no more calls join. One turn of the scheduler after the answers
// (see run) costs nothing when nobody can run. Taking further turns for as long as
// each brings a call makes still larger groups of 64 callers, but under load it
// delays a group until it is full: a bound of MaxGroup calls, not of time.
//
// Taking a call back out of the queue when its context ends. It would make the
// outcome known in some cases; a caller must be ready for the others anyway.
//
// # Not here
//
// A Committer never retries, never reorders and never drops: those choices
// belong to the caller and to the store. It never splits a call: the caller of a
// large one does. It keeps no histogram: the flush function sees every group and
// can measure it.
package groupcommit
