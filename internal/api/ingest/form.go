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

// HandlerOf returns a handler like [Core.Handler] for another form.
func (c *Core) HandlerOf(form Form) http.Handler {
	return &handler{core: c, bodies: bodyReader{core: c}, form: form}
}

// OverloadedOf returns a handler like [Core.Overloaded] for another form.
func (c *Core) OverloadedOf(form Form) http.Handler {
	h := &handler{core: c, form: form}
	return http.HandlerFunc(h.overloaded)
}
