package ingest

import "net/http"

// A Form returns the Input of a request. The Input may also implement [Responder].
type Form func(r *http.Request) Input

// A Responder is an Input that answers over HTTP in a form of its own. Other inputs are answered as
// POST /v1/readings is.
type Responder interface {
	// Respond returns the answer. If the request was rejected as a whole, its status must be
	// that of the problem. Decode may not have been called then.
	Respond(o *Outcome) Answer
}
