// Package health answers /livez, /readyz and /healthz. It needs the standard
// library and package reply only.
//
// # Promise
//
// A request is answered with an answer that was prepared when the state last
// changed. It runs no check, takes no lock and allocates nothing, so that
// neither a slow disk nor a flood of probes makes another probe wait.
//
// Liveness says that the process serves requests. Readiness says that every
// check passed when it was last asked, and that nobody drains the process. It is
// false until every check has a first result. A check that only degrades the service
// ([Check].Degrades) is named, and has no part in that.
//
// Answers name the checks that fail, and nothing else. The text of an error may
// tell what a stranger must not know; it goes to [Options].OnChange only.
//
// # Checks
//
//   - A check with a Run function runs in the background: at once when
//     [Health.Start] is called, and then on its own schedule. From its deadline on
//     it counts as failing, and as long as it has not come back it is not started
//     again.
//   - A check without one is told its results by whoever knows them first
//     ([Health.Reporter]). So may a check with one be; what it was told counts
//     until its next run, and a run under way at that moment does not count.
//
// # Answers
//
//	200 {"status":"ok"}                                  livez, healthz
//	200 {"status":"ready"}                               readyz
//	200 {"status":"ready","degraded":["damage"]}
//	503 {"status":"unavailable","failing":["disk"],"pending":["store"]}
//	503 {"status":"draining"}                            failing and pending as above
//	405                                                  not GET or HEAD; with Allow
//
// Names stand in the order in which the checks were given to [New]; an empty list
// is left out. What may change carries Cache-Control: no-store. The answer of
// livez never does, and carries nothing but its type and length: each further
// field would add half to its time, and without a validator or an explicit
// lifetime caches do not store it.
//
// # Not here
//
// No thresholds and no history: whoever probes readiness has them. No metrics
// and no logging: OnChange tells what there is to count and to log.
package health
