// Package vitals is the vocabulary of Pulsegate: a [Reading], its signs with
// their units and ranges, and strict JSON in and out.
//
// # Promise
//
// What [Decoder.Decode] accepts is exactly what the sender wrote: no value is
// rounded, clamped or guessed, no field is dropped, no unit is changed. What
// cannot be kept that way is refused with a [FieldError], which names the field
// and the rule and never the measured value.
//
// Decoding, validating and encoding do not allocate once their buffers have
// grown to the size of the work.
//
// # A body
//
// A body is told apart by its content alone:
//
//   - an array is a batch, and so is an empty one;
//   - one JSON value, with white space around it, is a single reading;
//   - several values of which each begins on a new line are NDJSON. Blank lines
//     and CRLF are fine, and a value may go over several lines. Two values on one
//     line are trailing data. NDJSON of one line is a single reading.
//
// # Rules of the body
//
// A body that breaks one of these is refused whole, with a [*SyntaxError]. It is
// JSON as RFC 8259 defines it, in UTF-8 without a byte order mark. No object
// gives a name twice, at any depth. Strings hold no lone surrogates. A reading
// is not nested more than 10,000 deep.
//
// Two more bounds have their own errors: [ErrTooManyReadings] and
// [ErrReadingTooLong].
//
// # Rules of a reading
//
// A reading that breaks one of these is refused, with a [FieldError]; the others
// of its batch are not touched.
//
//   - It is an object ([ErrNotObject]).
//   - Its fields are those of the data model ([ErrUnknownField]), unless
//     [DecoderOptions.IgnoreUnknown] is set. Their names are case-sensitive.
//   - device and time are given ([ErrMissing]), and at least one sign
//     ([ErrEmpty]).
//   - No field of the data model is null ([ErrType]): a field that was not
//     measured is left out, so that there is one way to say so.
//   - device and gateway are strings ([ErrType]) and names ([ErrName]).
//   - time is a string in the date-time form of RFC 3339, of at most 64 bytes, or
//     an integer of Unix milliseconds ([ErrType], [ErrTimeFormat]). A string has a
//     zone ([ErrTimeZone]). Lower-case t and z are fine. Leap seconds, :60, are
//     refused: Unix time cannot tell them from the next second. An integer has no
//     point and no exponent, whatever its value.
//   - time is not before 1970 nor before [Limits.OldestUnixMs] ([ErrPast]), not more
//     than [Limits.MaxAge] before the clock ([ErrOld]), if that is set, not after 9999
//     and not more than [Limits.MaxAhead] ahead of the clock ([ErrFuture]). An integer
//     below 10^11 looks like seconds and is refused ([ErrTimeFormat]). Digits finer than a
//     millisecond are cut; they are the only part of a reading that is not kept.
//   - A sign is a JSON number ([ErrType]), in any spelling of RFC 8259, of which
//     the value is a whole number of hundredths ([ErrPrecision]): 97.550 and
//     9.755e1 are 97.55, and 97.555 is refused. Zero means that there was no
//     signal ([ErrNoSignal]). Everything else outside the sign's range is refused
//     too ([ErrRange]).
//   - systolic and diastolic come both or not at all ([ErrPair]), and systolic is
//     the higher one ([ErrPressureOrder]).
//
// The first rule broken is reported: those about one field in the order in which
// the fields stand in the reading, then what is missing, then those about several
// signs.
//
// Apart from these rules, a body is accepted if and only if encoding/json/v2
// (github.com/go-json-experiment/json) unmarshals it into a struct of the same
// fields, and with equal values. FuzzDecode checks it.
//
// # Not here
//
// No I/O, no clock, no HTTP, no storage. The caller says what time it is.
package vitals
