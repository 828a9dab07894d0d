package vitals

import "slices"

// A Shape is the form of a body.
type Shape uint8

// The shapes. The zero Shape means that nothing was decoded.
const (
	Single Shape = 1 + iota // one JSON value
	Array                   // a JSON array of readings
	NDJSON                  // several JSON values, each starting on a new line
)

// String returns the name of the shape.
func (s Shape) String() string {
	switch s {
	case Single:
		return "single"
	case Array:
		return "array"
	case NDJSON:
		return "ndjson"
	default:
		return "none"
	}
}

// A Batch is the content of one decoded body. When it is reused, it stops allocating
// once its slices have grown to the size of the bodies; it never shrinks them. The zero
// Batch is ready for use.
//
// A Batch does not refer to the body from which it was decoded.
type Batch struct {
	// Shape is the form of the body.
	Shape Shape

	// Readings are the accepted readings, in the order of the body.
	Readings []Reading

	// Index has the 0-based position of each accepted reading in the body; blank lines
	// of NDJSON do not count.
	Index []int32

	// Refused has one entry for each rejected reading, in the order of the body. Every
	// position in the body is either in Index or in Refused.
	Refused []FieldError
}

// Reset empties b and keeps its memory.
func (b *Batch) Reset() {
	b.Shape = 0
	b.Readings = b.Readings[:0]
	b.Index = b.Index[:0]
	b.Refused = b.Refused[:0]
}

// Len returns the number of readings in the body, accepted and rejected.
func (b *Batch) Len() int { return len(b.Readings) + len(b.Refused) }

// maxExpected bounds the number of readings for which memory is reserved before they
// are decoded. A body whose first reading is short may have few others.
const maxExpected = 4096

// expect reserves memory for n more readings, at most maxExpected.
func (b *Batch) expect(n int) {
	n = min(n, maxExpected)
	b.Readings = slices.Grow(b.Readings, n)
	b.Index = slices.Grow(b.Index, n)
}
