// Package health serves /livez, /readyz and /healthz. It depends only on the standard
// library and package reply.
//
// # Promise
//
// Answers are prepared when the state changes. Serving a request runs no check, takes
// no lock and does not allocate, so neither a slow disk nor a flood of probes delays
// another probe.
//
// Liveness means that the process serves requests. Readiness means that the last result
// of every check is a pass and that the process is not draining. It is false until
// every check has a first result. A check that only degrades the service
// ([Check].Degrades) is named in answers but does not affect readiness.
//
// Answers contain the names of failing checks, and the texts of errors that are [Public]. Other
// texts may be confidential, so they are passed only to [Options].OnChange.
//
// # Checks
//
//   - A check with a Run function runs in the background: immediately when
//     [Health.Start] is called, and then periodically. If a run exceeds its deadline,
//     the check fails, and it is not run again until that run returns. A run that panics
//     fails.
//   - A check without a Run function gets its results from [Health.Reporter]. So may a
//     check with one: a reported result is valid until the next run; the result of a
//     run in progress is then ignored. With [Check].MaxAge, a reported result expires.
//
// # Answers
//
//	200 {"status":"ok"}                                  livez, healthz
//	200 {"status":"ready"}                               readyz
//	200 {"status":"ready","degraded":["damage"]}
//	200 {"status":"ready","degraded":["loss"],"details":{"loss":"…"}}
//	503 {"status":"unavailable","failing":["disk"],"pending":["store"]}
//	503 {"status":"draining"}                            failing and pending as above
//	405                                                  not GET or HEAD; with Allow
//
// Names are in the order in which the checks were passed to [New]; empty lists are
// omitted. Answers that may change have Cache-Control: no-store. The answer of livez
// never changes and has only a type and a length: each further field would add half to
// its time, and without a validator or an explicit lifetime caches do not store it.
//
// # Not here
//
// No thresholds and no history: these belong to the prober. No metrics and no logging:
// use OnChange.
package health
