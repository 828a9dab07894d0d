package vitals

import (
	"errors"
	"fmt"
	"strings"
)

// The rules that a reading may break. A [FieldError] wraps one of them; compare
// with errors.Is. [FieldError.Reason] gives the text that a client is told.
var (
	// ErrNotObject means that a JSON object was wanted and something else came.
	ErrNotObject error = &rule{reason: "not a JSON object"}

	// ErrUnknownField means that a reading has a field that is not of the data
	// model. It must not vanish silently: it may be a misspelt one.
	ErrUnknownField error = &rule{reason: "unknown field"}

	// ErrType means that a field's value has the wrong JSON type. A null is one:
	// what was not measured is left out.
	ErrType error = &rule{reason: "wrong type"}

	// ErrMissing means that a required field was not given.
	ErrMissing error = &rule{reason: "missing"}

	// ErrEmpty means that a reading holds no vital sign.
	ErrEmpty error = &rule{reason: "no vital sign given"}

	// ErrName means that a device's or gateway's name breaks the rules of [Name].
	ErrName error = &rule{reason: "not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"}

	// ErrTimeFormat means that a text is not a time.
	ErrTimeFormat error = &rule{reason: "neither an RFC 3339 time nor integer Unix milliseconds"}

	// ErrTimeZone means that a time has no zone. Nobody can tell when it was.
	ErrTimeZone error = &rule{reason: "no time zone"}

	// ErrPast means that a time lies before 1970, or before [Limits.OldestUnixMs].
	ErrPast error = &rule{reason: "before 1970"}

	// ErrOld means that a time lies further back than the server keeps readings.
	ErrOld error = &rule{reason: "older than this server keeps"}

	// ErrFuture means that a time lies too far ahead of the server's clock.
	ErrFuture error = &rule{reason: "too far ahead of the server's clock"}

	// ErrNumber means that a text is not a decimal number as JSON spells it.
	ErrNumber error = &rule{reason: "not a number"}

	// ErrPrecision means that a value has more than two decimals. Rounding it
	// would alter it.
	ErrPrecision error = &rule{reason: "more than two decimals"}

	// ErrRange means that a value lies outside the accepted range of its sign.
	ErrRange error = &rule{reason: "outside the accepted range"}

	// ErrNoSignal means that a value is zero, which most monitors send when a
	// sensor is off.
	ErrNoSignal error = &rule{reason: "no signal"}

	// ErrPair means that one of systolic and diastolic came without the other.
	ErrPair error = &rule{reason: "systolic and diastolic go together"}

	// ErrPressureOrder means that systolic was not above diastolic.
	ErrPressureOrder error = &rule{reason: "systolic is not above diastolic"}
)

// Errors of a whole body. Nothing of the body was used.
var (
	// ErrSyntax is wrapped by every [SyntaxError].
	ErrSyntax = errors.New("vitals: not valid JSON")

	// ErrTooManyReadings means that a body holds more readings than the decoder
	// takes at once.
	ErrTooManyReadings = errors.New("vitals: too many readings in one body")

	// ErrReadingTooLong means that one reading of a body has more bytes than the
	// decoder takes.
	ErrReadingTooLong = errors.New("vitals: reading too long")
)

// The ways in which ErrType and ErrNumber come about.
var (
	errNull      = &rule{reason: "null: leave out what was not measured", of: ErrType}
	errNotString = &rule{reason: "not a string", of: ErrType}
	errNotNumber = &rule{reason: "not a number", of: ErrType}
	errNotTime   = &rule{reason: "neither a string nor an integer", of: ErrType}
)

// errSeconds is the ErrTimeFormat of an integer that is too small to be milliseconds.
var errSeconds = &rule{reason: "looks like seconds; send milliseconds", of: ErrTimeFormat}

// A rule is an error whose text was made beforehand, so that refusing a reading
// does not allocate. It is never written to.
type rule struct {
	reason string // for clients: no package name, no measured value, nothing to escape in JSON
	of     error  // the sentinel that the rule belongs to; nil for a sentinel
}

// Error returns the reason behind the package's name.
func (r *rule) Error() string { return "vitals: " + r.reason }

// Unwrap returns the sentinel that the rule belongs to.
func (r *rule) Unwrap() error { return r.of }

// A FieldError reports the first rule that a reading broke.
//
// Its text names the place, never the measured value or the patient: error
// texts reach logs, and logs must not hold health data.
type FieldError struct {
	// Index is the 0-based position of the reading in its body; blank lines of
	// NDJSON do not count.
	Index int

	// Field is the JSON name of the field, such as "spo2_pct". It is "" when the
	// rule is not about one field, and for an unknown field whose name is not
	// made of 1 to 64 bytes of A–Z a–z 0–9 . _ and -.
	Field string

	// Err is the rule: one of this package's sentinels or an error that wraps it.
	Err error
}

// Error returns a text such as
// "vitals: reading 3: spo2_pct: outside the accepted range 1 to 100 %".
func (e *FieldError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("vitals: reading %d: %s", e.Index, e.Reason())
	}
	return fmt.Sprintf("vitals: reading %d: %s: %s", e.Index, e.Field, e.Reason())
}

// Unwrap returns the rule.
func (e *FieldError) Unwrap() error { return e.Err }

// Reason returns the rule in words for the client, such as "no signal". The
// words of a rule are stable, and neither they nor Field hold a byte that JSON
// would escape. It does not allocate for the rules of this package.
func (e *FieldError) Reason() string {
	switch err := e.Err.(type) {
	case nil:
		return ""
	case *rule:
		return err.reason
	default:
		return strings.TrimPrefix(err.Error(), "vitals: ")
	}
}

// A SyntaxError reports that a body is not JSON, or not JSON of which the
// meaning is certain: cut off, with trailing data, with a name twice in one
// object, with invalid UTF-8 or a lone surrogate, or nested too deeply. It wraps
// [ErrSyntax].
//
// Its text quotes nothing of the body.
type SyntaxError struct {
	Offset int64  // the first wrong byte, or one at the start of what is wrong, 0-based
	Reason string // in words for the client; nothing in it needs escaping in JSON
}

// Error returns a text such as "vitals: byte 17: cut off".
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("vitals: byte %d: %s", e.Offset, e.Reason)
}

// Unwrap returns [ErrSyntax].
func (e *SyntaxError) Unwrap() error { return ErrSyntax }
