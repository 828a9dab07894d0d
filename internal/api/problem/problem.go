// Package problem defines all error responses of Pulsegate: one RFC 9457 problem type
// for each kind of error, with its HTTP status.
//
// # Promise
//
// The meaning of a type's URI and status never changes. The status tells a client what
// to do: 503 and 429 have a Retry-After and mean "nothing was stored, try again"; other
// 4xx mean "do not send this again unchanged".
//
// # Not here
//
// No decisions: the code that rejects a request selects the problem. docs/problems.md
// explains each type to authors of clients; a test compares it with this list.
package problem

import (
	"net/http"
	"slices"

	"github.com/pulsegate/pulsegate/reply"
)

// typeBase is the URL of the documentation of the types.
const typeBase = "https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#"

// challenge is the authentication scheme with its required parameter. Only responses to
// requests with credentials have the parameter error (RFC 6750, section 3).
const challenge = `Bearer realm="pulsegate"`

// A Set has all problems. It is immutable and safe for concurrent use.
type Set struct {
	// About a request as a whole.
	Malformed        *reply.Problem // 400 the body is not JSON, or is ambiguous
	BadParameter     *reply.Problem // 400 a query or path parameter
	NotFound         *reply.Problem // 404 no such resource
	UnknownDevice    *reply.Problem // 404 no readings are stored for this device
	NotAssigned      *reply.Problem // 404 there is no such assignment of a device to a subject
	CursorUnknown    *reply.Problem // 410 what follows a cursor of changes is not known
	Assigned         *reply.Problem // 409 the device is assigned to a subject at that time
	MethodNotAllowed *reply.Problem // 405
	NotAcceptable    *reply.Problem // 406
	Timeout          *reply.Problem // 408 the request took too long to arrive
	LengthRequired   *reply.Problem // 411
	TooLarge         *reply.Problem // 413
	UnsupportedType  *reply.Problem // 415 a Content-Type that is not read at this address
	UnknownEncoding  *reply.Problem // 415 a Content-Encoding other than gzip and zstd
	OldHTTP          *reply.Problem // 426 HTTP/1.0, for an answer without a length

	// About the client.
	Unauthorized       *reply.Problem // 401 credentials are missing
	InvalidCredentials *reply.Problem // 401 credentials are invalid or no longer valid
	Forbidden          *reply.Problem // 403 credentials are valid, but do not allow this
	UntrustedOrigin    *reply.Problem // 403 rejected for its origin, whatever the credentials
	TooManyReadings    *reply.Problem // 429 exceeds the token's rate

	// 429 a reading that would have to be compared, after too many contradictions
	TooManyContradictions *reply.Problem

	KeysUnknown *reply.Problem // 503 the provider's keys are not known yet

	// About a single reading.
	Conflict *reply.Problem // 409 contradicts what is stored
	Invalid  *reply.Problem // 422 breaks a rule of the data model

	// About an administrator's request.
	ErasureUnfinished *reply.Problem // 500 an erasure has started but is not finished
	Busy              *reply.Problem // 503 a backup or an erasure is in progress

	// About the server. Nothing was stored, unless the detail says otherwise.
	ReadFailed     *reply.Problem // 500 the stored readings could not be read
	NotKept        *reply.Problem // 501 no changes can be read from this server
	Unreadable     *reply.Problem // 503 some of the stored readings cannot be read now
	OutcomeUnknown *reply.Problem // 500 it is unknown whether the readings were stored; retrying is safe
	Overloaded     *reply.Problem // 503
	Draining       *reply.Problem // 503 about to stop
	DiskLow        *reply.Problem // 503
	StoreDamaged   *reply.Problem // 503 the stored reading with which this one must be compared cannot be read
	TooManyDevices *reply.Problem // 503 the store has its maximum number of devices or gateways, and this is a new one
	StoreFailed    *reply.Problem // 503

	all []*reply.Problem
}

// New prepares the problems.
func New() *Set {
	var all []*reply.Problem
	define := func(status int, name, title string, opts ...reply.Option) *reply.Problem {
		all = append(all, reply.NewProblem(status, typeBase+name, title, opts...))
		return all[len(all)-1]
	}
	s := &Set{ // in the order of All
		Malformed:    define(http.StatusBadRequest, "malformed-body", "The body is not valid"),
		BadParameter: define(http.StatusBadRequest, "bad-parameter", "A parameter is not valid"),
		Unauthorized: define(http.StatusUnauthorized, "unauthorized", "Credentials are needed",
			reply.Header("WWW-Authenticate", challenge)),
		InvalidCredentials: define(http.StatusUnauthorized, "invalid-credentials", "The credentials are not valid",
			reply.Header("WWW-Authenticate", challenge+`, error="invalid_token"`)),
		Forbidden: define(http.StatusForbidden, "forbidden", "The credentials do not allow this",
			reply.Header("WWW-Authenticate", challenge+`, error="insufficient_scope"`)),
		UntrustedOrigin:  define(http.StatusForbidden, "untrusted-origin", "Requests from this origin are not accepted"),
		NotFound:         define(http.StatusNotFound, "not-found", "There is no resource at this address"),
		UnknownDevice:    define(http.StatusNotFound, "unknown-device", "No readings are stored for this device"),
		NotAssigned:      define(http.StatusNotFound, "not-assigned", "There is no such assignment"),
		MethodNotAllowed: define(http.StatusMethodNotAllowed, "method-not-allowed", "The method is not allowed here"),
		NotAcceptable:    define(http.StatusNotAcceptable, "not-acceptable", "None of the accepted formats is offered"),
		Timeout:          define(http.StatusRequestTimeout, "timeout", "The request took too long to arrive"),
		Conflict:         define(http.StatusConflict, "conflict", "The reading contradicts a stored one"),
		Assigned:         define(http.StatusConflict, "assigned", "The device is already assigned at that time"),
		CursorUnknown:    define(http.StatusGone, "cursor-unknown", "What follows the cursor is not known here"),
		LengthRequired:   define(http.StatusLengthRequired, "length-required", "The length of the body is missing"),
		TooLarge:         define(http.StatusRequestEntityTooLarge, "too-large", "The body is too large"),
		UnsupportedType: define(http.StatusUnsupportedMediaType, "unsupported-type",
			"The type of the body is not supported"),
		UnknownEncoding: define(http.StatusUnsupportedMediaType, "unknown-encoding", "The content encoding is not supported",
			reply.Header("Accept-Encoding", "gzip, zstd")),
		OldHTTP: define(http.StatusUpgradeRequired, "old-http",
			"Over HTTP/1.0, an answer that is cut off looks complete; let the proxy speak HTTP/1.1, nginx with "+
				"proxy_http_version 1.1",
			reply.Header("Upgrade", "HTTP/1.1")),
		Invalid:         define(http.StatusUnprocessableEntity, "invalid-reading", "The reading is not acceptable"),
		TooManyReadings: define(http.StatusTooManyRequests, "too-many-readings", "The token's rate is exceeded"),
		TooManyContradictions: define(http.StatusTooManyRequests, "too-many-contradictions",
			"The reading is not compared with those of other gateways"),
		ReadFailed: define(http.StatusInternalServerError, "read-failed", "The stored readings could not be read"),
		OutcomeUnknown: define(http.StatusInternalServerError, "outcome-unknown",
			"It is unknown whether the readings were stored"),
		ErasureUnfinished: define(http.StatusInternalServerError, "erasure-unfinished", "The erasure is not finished"),
		NotKept:           define(http.StatusNotImplemented, "not-kept", "This server keeps no changes that could be read"),
		Busy:              define(http.StatusServiceUnavailable, "busy", "A backup or an erasure is in progress"),
		Unreadable: define(http.StatusServiceUnavailable, "unreadable",
			"Some of the stored readings cannot be read now"),
		KeysUnknown: define(http.StatusServiceUnavailable, "keys-unknown", "The credentials cannot be checked yet"),
		Overloaded:  define(http.StatusServiceUnavailable, "overloaded", "The server is overloaded"),
		Draining:    define(http.StatusServiceUnavailable, "draining", "The server is about to stop"),
		DiskLow:     define(http.StatusServiceUnavailable, "disk-low", "The server's disk is nearly full"),
		StoreDamaged: define(http.StatusServiceUnavailable, "store-damaged",
			"The stored reading of the same time cannot be read"),
		TooManyDevices: define(http.StatusServiceUnavailable, "too-many-devices",
			"The store has its maximum number of devices"),
		StoreFailed: define(http.StatusServiceUnavailable, "store-failed", "The server cannot store readings"),
	}
	s.all = all
	return s
}

// WithoutTokens returns the problems of a server without tokens. No token would allow
// what is forbidden there, so Forbidden has no challenge.
func (s *Set) WithoutTokens() *Set {
	own := *s
	own.Forbidden = reply.NewProblem(s.Forbidden.Status(), s.Forbidden.Type(), s.Forbidden.Title())
	own.all = slices.Clone(s.all)
	own.all[slices.Index(own.all, s.Forbidden)] = own.Forbidden
	return &own
}

// Header returns the header fields of a problem's answers.
func Header(p *reply.Problem) http.Header {
	w := headerOnly{}
	p.Answer("", nil).ServeHTTP(w, &http.Request{Method: http.MethodHead})
	return http.Header(w)
}

// Options returns the header fields of a problem's answers that do not depend on the media type, for answers in
// another form.
func Options(p *reply.Problem) (opts []reply.Option) {
	for name, values := range Header(p) {
		switch name {
		case "Content-Type", "Content-Length", "X-Content-Type-Options":
		default:
			opts = append(opts, reply.Header(name, values[0]))
		}
	}
	return opts
}

// headerOnly is an http.ResponseWriter that keeps the header only.
type headerOnly http.Header

func (h headerOnly) Header() http.Header         { return http.Header(h) }
func (h headerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (h headerOnly) WriteHeader(int)             {}

// All returns the problems in the order of their statuses.
func (s *Set) All() []*reply.Problem { return s.all }
