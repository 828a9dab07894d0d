package vitals

import (
	"errors"
	"fmt"
)

// The rules that a reading may break. A [FieldError] wraps one of them; compare with
// errors.Is. [FieldError.Reason] returns the text for clients.
var (
	// ErrNotObject means that a reading is not a JSON object.
	ErrNotObject error = &rule{reason: "not a JSON object"}

	// ErrUnknownField means that a reading has a field that is not in the data model.
	// It must not be dropped silently, because it may be misspelt.
	ErrUnknownField error = &rule{reason: "unknown field"}

	// ErrType means that a field's value has the wrong JSON type.
	ErrType error = &rule{reason: "wrong type"}

	// ErrMissing means that a required field is missing.
	ErrMissing error = &rule{reason: "missing"}

	// ErrEmpty means that a reading has no vital sign.
	ErrEmpty error = &rule{reason: "no vital sign given"}

	// ErrName means that a device's or gateway's name breaks the rules of [Name].
	ErrName error = &rule{reason: "not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"}

	// ErrOrigin means that a device or gateway is not the one of the body's [Origin].
	ErrOrigin error = &rule{reason: "not the one of the topic or of the credentials"}

	// ErrTimeFormat means that a text is not a time.
	ErrTimeFormat error = &rule{reason: "neither an RFC 3339 time nor integer Unix milliseconds"}

	// ErrTimeZone means that a time has no zone, so it is ambiguous.
	ErrTimeZone error = &rule{reason: "no time zone"}

	// ErrPast means that a time is before 1970, or before [Limits.OldestUnixMs].
	ErrPast error = &rule{reason: "before 1970"}

	// ErrOld means that a time is older than the server keeps readings.
	ErrOld error = &rule{reason: "older than this server keeps"}

	// ErrFuture means that a time is too far ahead of the server's clock.
	ErrFuture error = &rule{reason: "too far ahead of the server's clock"}

	// ErrNumber means that a text is not a JSON number.
	ErrNumber error = &rule{reason: "not a number"}

	// ErrPrecision means that a value has more decimals than its sign and cannot be kept
	// without rounding.
	ErrPrecision error = &rule{reason: "more than two decimals"}

	// ErrRange means that a value is outside the accepted range of its sign.
	ErrRange error = &rule{reason: "outside the accepted range"}

	// ErrNoSignal means that a value is zero, which most monitors send when a sensor is
	// detached.
	ErrNoSignal error = &rule{reason: "no signal"}

	// ErrPair means that systolic or diastolic is present without the other.
	ErrPair error = &rule{reason: "systolic and diastolic go together"}

	// ErrPressureOrder means that systolic is not above diastolic.
	ErrPressureOrder error = &rule{reason: "systolic is not above diastolic"}
)

// Errors about a whole body. No reading of the body was used.
var (
	// ErrSyntax is wrapped by every [SyntaxError].
	ErrSyntax = errors.New("not valid JSON")

	// ErrTooManyReadings means that a body has more than [DecoderOptions.MaxReadings]
	// readings.
	ErrTooManyReadings = errors.New("too many readings in one body")

	// ErrReadingTooLong means that a reading in a body has more than
	// [DecoderOptions.MaxReadingBytes] bytes.
	ErrReadingTooLong = errors.New("reading too long")
)

// Variants of ErrType.
var (
	errNotString = &rule{reason: "not a string", of: ErrType}
	errNotNumber = &rule{reason: "not a number", of: ErrType}
	errNotTime   = &rule{reason: "neither a string nor an integer", of: ErrType}
)

// precisionRules has ErrPrecision and its variants, by the number of decimals. It is never modified.
var precisionRules = [MaxDecimals + 1]error{
	&rule{reason: "not a whole number", of: ErrPrecision},
	&rule{reason: "more than one decimal", of: ErrPrecision},
	ErrPrecision,
	&rule{reason: "more than three decimals", of: ErrPrecision},
}

// isFraction ends the reason for rejecting an SpO2 that looks like a fraction.
const isFraction = "; a fraction? send per cent"

var errFraction = &rule{reason: "more than two decimals" + isFraction, of: ErrPrecision}

// ErrSeconds is the variant of [ErrTimeFormat] for an integer that is too small to be
// milliseconds.
var ErrSeconds error = &rule{reason: "looks like seconds; send milliseconds", of: ErrTimeFormat}

// ErrFiner is the variant of [ErrFuture] for an integer that is too large to be milliseconds.
var ErrFiner error = &rule{reason: "looks like microseconds or nanoseconds; send milliseconds", of: ErrFuture}

// A rule is an error with a precomputed text, so that rejecting a reading does not
// allocate. It is never modified.
type rule struct {
	reason string // for clients: no package name, no measured value, nothing to escape in JSON
	of     error  // the sentinel that the rule belongs to; nil for a sentinel
}

// Error returns the reason.
func (r *rule) Error() string { return r.reason }

// Unwrap returns the sentinel that the rule belongs to.
func (r *rule) Unwrap() error { return r.of }

// A FieldError reports the first rule that a reading broke.
//
// Its text names the place, never the measured value or the patient: error texts reach
// logs, and logs must not contain health data.
type FieldError struct {
	// Index is the 0-based position of the reading in its body; blank lines of
	// NDJSON do not count.
	Index int

	// Field is the JSON name of the field, such as "spo2_pct". It is "" if the rule is
	// not about one field, and for an unknown field whose name does not consist of 1 to
	// 64 bytes of A–Z a–z 0–9 . _ and -.
	Field string

	// Err is the broken rule: one of this package's sentinels or an error that wraps
	// one.
	Err error
}

// Error returns a text such as
// "reading 3: spo2_pct: outside the accepted range 2 to 100 %".
func (e *FieldError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("reading %d: %s", e.Index, e.Reason())
	}
	return fmt.Sprintf("reading %d: %s: %s", e.Index, e.Field, e.Reason())
}

// Unwrap returns the rule.
func (e *FieldError) Unwrap() error { return e.Err }

// Reason returns a description of the rule for the client, such as "no signal". The
// text of a rule is stable, and neither it nor Field needs escapes in JSON. Reason does
// not allocate for the rules of this package.
func (e *FieldError) Reason() string {
	switch err := e.Err.(type) {
	case nil:
		return ""
	case *rule:
		return err.reason
	default:
		return err.Error()
	}
}

// A SyntaxError reports that a body is not valid JSON or is ambiguous: it is cut off,
// has trailing data, duplicate names, invalid UTF-8 or a lone surrogate, or is nested
// too deeply. It wraps [ErrSyntax].
//
// Its text does not quote the body.
type SyntaxError struct {
	Offset int64  // 0-based offset of the first invalid byte, or of the start of the invalid part
	Reason string // description for the client; needs no escapes in JSON
}

// Error returns a text such as "byte 17: cut off".
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("byte %d: %s", e.Offset, e.Reason)
}

// Unwrap returns [ErrSyntax].
func (e *SyntaxError) Unwrap() error { return ErrSyntax }
