// Package ingest processes the readings of a request from its bytes to stable storage:
// decode, validate, join a group, commit, answer.
//
// # Promise
//
// An answer with the status stored or duplicate is made only after the store's sync of that
// reading has returned without an error. The answer to a request accounts for each of its
// readings.
//
// # Inputs and fronts
//
// An [Input] decodes a message: JSON here, further forms in packages of their own. A front
// receives messages of a protocol and owns their bytes. It passes them to the [Core], which is
// independent of any protocol, and answers from the [Outcome]:
//
//	core.Receive(ctx, &ingest.Delivery{From: credentials, Input: input, Message: message}, func(o *ingest.Outcome) {
//		… // acknowledge: o.Refusal, o.Results
//	})
//
// So a further input needs a package with an Input, and a line in package server that mounts it:
// [Core.Handler] if it comes over HTTP, else a listener that calls Receive.
//
// The fronts in this package borrow a [Job] and call what Receive consists of:
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
// [Core.Handler] is the front for net/http, for any input. [Core.FastLane] is a front on an event loop for
// the usual request only: it submits the readings of many requests to the committer together,
// and leaves every other request to net/http.
//
// # Not here
//
// No storage and no routing. The Core does not read requests.
package ingest
