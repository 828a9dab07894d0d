// Package problem is the list of everything that Pulsegate answers instead of
// what was asked for: one RFC 9457 problem type for each kind of refusal, with
// its HTTP status.
//
// # Promise
//
// A type's URI and status never change their meaning. A status tells a client
// what to do: 503 and 429 come with Retry-After and mean "nothing was stored,
// try again"; other 4xx mean "do not send this again as it is".
//
// # Not here
//
// No decisions: who refuses also says why. docs/problems.md explains each type
// to those who write clients; a test holds it to this list.
package problem

import (
	"net/http"

	"github.com/pulsegate/pulsegate/reply"
)

// typeBase is where the types are explained.
const typeBase = "https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#"

// challenge is the scheme of the credentials, with the one parameter that it must
// have. Only an answer to credentials that were given says what is wrong
// (RFC 6750, section 3).
const challenge = `Bearer realm="pulsegate"`

// A Set holds the problems. It is immutable and may be shared.
type Set struct {
	// Of a request as a whole.
	Malformed        *reply.Problem // 400 the body is not JSON, or not with one certain meaning
	BadParameter     *reply.Problem // 400 a query or path parameter
	NotFound         *reply.Problem // 404 no such resource
	UnknownDevice    *reply.Problem // 404 nothing is stored of this device
	MethodNotAllowed *reply.Problem // 405
	NotAcceptable    *reply.Problem // 406
	Timeout          *reply.Problem // 408 the request took too long to arrive
	LengthRequired   *reply.Problem // 411
	TooLarge         *reply.Problem // 413
	UnknownEncoding  *reply.Problem // 415 a Content-Encoding other than gzip and zstd

	// Of whoever sent it.
	Unauthorized       *reply.Problem // 401 credentials are needed, and none were given
	InvalidCredentials *reply.Problem // 401 those that were given are not valid, or not any more
	Forbidden          *reply.Problem // 403 valid ones, that do not allow this
	UntrustedOrigin    *reply.Problem // 403 where it comes from, whatever the credentials
	TooManyReadings    *reply.Problem // 429 more than the token's rate

	// 429 a reading that would have to be compared, after too many contradictions
	TooManyContradictions *reply.Problem

	// Of a single reading.
	Conflict *reply.Problem // 409 contradicts what is stored
	Invalid  *reply.Problem // 422 breaks a rule of the data model

	// Of an administrator's request.
	ErasureUnfinished *reply.Problem // 500 an erasure has begun, and has to be finished
	Busy              *reply.Problem // 503 a backup or an erasure is under way

	// Of the server. Nothing was stored, unless the detail says otherwise.
	ReadFailed     *reply.Problem // 500 what is stored could not be read
	OutcomeUnknown *reply.Problem // 500 whether it was stored is not known; to send it again is safe
	Overloaded     *reply.Problem // 503
	Draining       *reply.Problem // 503 about to stop
	DiskLow        *reply.Problem // 503
	StoreDamaged   *reply.Problem // 503 what the reading must be compared with cannot be read
	StoreFailed    *reply.Problem // 503
}

// New prepares the problems.
func New() *Set {
	define := func(status int, name, title string, opts ...reply.Option) *reply.Problem {
		return reply.NewProblem(status, typeBase+name, title, opts...)
	}
	return &Set{
		Malformed:        define(http.StatusBadRequest, "malformed-body", "The body is not valid"),
		BadParameter:     define(http.StatusBadRequest, "bad-parameter", "A parameter is not valid"),
		NotFound:         define(http.StatusNotFound, "not-found", "There is nothing at this address"),
		UnknownDevice:    define(http.StatusNotFound, "unknown-device", "Nothing is stored of this device"),
		MethodNotAllowed: define(http.StatusMethodNotAllowed, "method-not-allowed", "The method is not allowed here"),
		NotAcceptable:    define(http.StatusNotAcceptable, "not-acceptable", "None of the accepted formats is offered"),
		Timeout:          define(http.StatusRequestTimeout, "timeout", "The request took too long to arrive"),
		LengthRequired:   define(http.StatusLengthRequired, "length-required", "The length of the body is missing"),
		TooLarge:         define(http.StatusRequestEntityTooLarge, "too-large", "The body is too large"),
		UnknownEncoding: define(http.StatusUnsupportedMediaType, "unknown-encoding", "The content encoding is not supported",
			reply.Header("Accept-Encoding", "gzip, zstd")),
		Unauthorized: define(http.StatusUnauthorized, "unauthorized", "Credentials are needed",
			reply.Header("WWW-Authenticate", challenge)),
		InvalidCredentials: define(http.StatusUnauthorized, "invalid-credentials", "The credentials are not valid",
			reply.Header("WWW-Authenticate", challenge+`, error="invalid_token"`)),
		Forbidden: define(http.StatusForbidden, "forbidden", "The credentials do not allow this",
			reply.Header("WWW-Authenticate", challenge+`, error="insufficient_scope"`)),
		UntrustedOrigin:       define(http.StatusForbidden, "untrusted-origin", "Requests from there are not taken"),
		TooManyReadings:       define(http.StatusTooManyRequests, "too-many-readings", "The token's rate is exceeded"),
		TooManyContradictions: define(http.StatusTooManyRequests, "too-many-contradictions", "The reading is not compared with what another gateway has sent"),

		Conflict:          define(http.StatusConflict, "conflict", "The reading contradicts a stored one"),
		Invalid:           define(http.StatusUnprocessableEntity, "invalid-reading", "The reading is not acceptable"),
		ErasureUnfinished: define(http.StatusInternalServerError, "erasure-unfinished", "The erasure is not finished"),
		Busy:              define(http.StatusServiceUnavailable, "busy", "A backup or an erasure is under way"),

		ReadFailed:     define(http.StatusInternalServerError, "read-failed", "The stored readings could not be read"),
		OutcomeUnknown: define(http.StatusInternalServerError, "outcome-unknown", "It is not known whether the readings were stored"),
		Overloaded:     define(http.StatusServiceUnavailable, "overloaded", "The server is overloaded"),
		Draining:       define(http.StatusServiceUnavailable, "draining", "The server is about to stop"),
		DiskLow:        define(http.StatusServiceUnavailable, "disk-low", "The server's disk is nearly full"),
		StoreDamaged:   define(http.StatusServiceUnavailable, "store-damaged", "What is stored at the reading's time cannot be read"),
		StoreFailed:    define(http.StatusServiceUnavailable, "store-failed", "The server cannot store readings"),
	}
}

// WithoutTokens returns the problems of a server that takes no tokens: what is forbidden
// there, no token allows, so that Forbidden challenges nobody to show one.
func (s *Set) WithoutTokens() *Set {
	own := *s
	own.Forbidden = reply.NewProblem(s.Forbidden.Status(), s.Forbidden.Type(), s.Forbidden.Title())
	return &own
}

// All returns the problems in the order of their statuses.
func (s *Set) All() []*reply.Problem {
	return []*reply.Problem{
		s.Malformed, s.BadParameter, s.Unauthorized, s.InvalidCredentials, s.Forbidden, s.UntrustedOrigin, s.NotFound, s.UnknownDevice, s.MethodNotAllowed, s.NotAcceptable,
		s.Timeout, s.Conflict, s.LengthRequired, s.TooLarge, s.UnknownEncoding, s.Invalid, s.TooManyReadings, s.TooManyContradictions,
		s.ReadFailed, s.OutcomeUnknown, s.ErasureUnfinished, s.Busy, s.Overloaded, s.Draining, s.DiskLow, s.StoreDamaged, s.StoreFailed,
	}
}
