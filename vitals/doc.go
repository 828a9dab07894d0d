// Package vitals defines a [Reading], its vital signs with their units and ranges, and
// a strict JSON decoder and encoder.
//
//	rules, err := vitals.NewValidator(vitals.NewSigns().DefaultLimits())
//	// …
//	decoder := vitals.NewDecoder(rules, vitals.DecoderOptions{})
//	var batch vitals.Batch
//	err = decoder.Decode(body, time.Now().UnixMilli(), &batch)
//	// batch.Readings are exactly what was sent, batch.Refused says why others were rejected.
//
// # Promise
//
// A reading accepted by [Decoder.Decode] is exactly what the sender wrote: no value is
// rounded, clamped or guessed, no field is dropped, no unit is changed. Everything else
// is rejected with a [FieldError], which names the field and the rule, but never the
// measured value.
//
// Decoding, validating and encoding do not allocate once their buffers have grown to
// the required size.
//
// # A body
//
// The shape of a body follows from its content alone:
//
//   - an array, even an empty one, is a batch;
//   - one JSON value, with white space around it, is a single reading;
//   - several values, each starting on a new line, are NDJSON. Blank lines and CRLF are
//     allowed, and a value may span several lines. Two values on one line are an error.
//     NDJSON with one value is a single reading.
//
// # Rules of the body
//
// A body that breaks one of these rules is rejected as a whole with a [*SyntaxError].
// It is JSON as defined by RFC 8259, in UTF-8; a byte order mark before it is ignored. No object has
// duplicate names, at any depth. Strings have no lone surrogates. A reading is nested
// at most 10,000 levels deep.
//
// Two further bounds have errors of their own: [ErrTooManyReadings] and
// [ErrReadingTooLong].
//
// # Rules of a reading
//
// A reading that breaks one of these rules is rejected with a [FieldError]; the others
// in its batch are not affected.
//
//   - It is an object ([ErrNotObject]).
//   - Its fields are those of the data model ([ErrUnknownField]), unless
//     [DecoderOptions.IgnoreUnknown] is set. Field names are case-sensitive.
//   - device and time are present ([ErrMissing]), and at least one sign ([ErrEmpty]).
//   - A field of the data model that is null was not measured: it counts as missing.
//   - device and gateway are strings ([ErrType]) and names ([ErrName]).
//   - time is a string in the date-time form of RFC 3339, of at most 64 bytes, or an
//     integer of Unix milliseconds ([ErrType], [ErrTimeFormat]). A string has a zone
//     ([ErrTimeZone]). Lower-case t and z are allowed. Leap seconds, :60, are rejected,
//     because Unix time cannot distinguish them from the next second. An integer has
//     neither a point nor an exponent. The offset from UTC that a string gives is kept as
//     [Reading.UTCOffset].
//   - time is not before 1970 nor before [Limits.OldestUnixMs] ([ErrPast]), not more than
//     [Limits.MaxAge] before the clock ([ErrOld]), if that is set, not after 9999 and not
//     more than [Limits.MaxAhead] ahead of the clock ([ErrFuture]). An integer below 10^11
//     looks like seconds and is rejected ([ErrTimeFormat]). Digits finer than a
//     millisecond are truncated; nothing else of a reading is dropped.
//   - A sign is a JSON number ([ErrType]), in any spelling of RFC 8259, whose value has
//     at most the decimals of its sign ([ErrPrecision]): with two, 97.550 and 9.755e1 are
//     97.55, and 97.555 is rejected. It must be within the sign's range ([ErrRange]); zero
//     outside of the range means that there was no signal ([ErrNoSignal]).
//   - systolic and diastolic are both present or both absent ([ErrPair]), and systolic
//     is higher ([ErrPressureOrder]).
//
// The first broken rule is reported: first rules about one field, in the order of the
// fields in the reading, then missing fields, then rules about several signs.
//
// Apart from these rules, a body is accepted if and only if encoding/json/v2
// (github.com/go-json-experiment/json) unmarshals it into a struct of the same
// fields, and with equal values. FuzzDecode checks it.
//
// # Not here
//
// No I/O, no clock, no HTTP, no storage. The caller provides the current time.
package vitals
