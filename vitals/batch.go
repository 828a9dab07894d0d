package vitals

import "slices"

// A Shape is the form in which readings came.
type Shape uint8

// The shapes. The zero Shape means "nothing decoded".
const (
	Single Shape = 1 + iota // one JSON value
	Array                   // a JSON array of readings
	NDJSON                  // several JSON values, each on lines of its own
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

// A Batch is what one body held. Used again and again, it stops allocating once
// its slices have grown to the size of the bodies; it never shrinks them. The
// zero Batch is ready for use.
//
// Nothing in a Batch refers to the body that it was decoded from.
type Batch struct {
	// Shape is the form of the body.
	Shape Shape

	// Readings are the accepted readings, in the order of the body.
	Readings []Reading

	// Index holds, for each accepted reading, its 0-based position in the body;
	// blank lines of NDJSON do not count.
	Index []int32

	// Refused holds one entry for each refused reading, in the order of the body.
	// Every position of the body is either in Index or here.
	Refused []FieldError
}

// Reset empties b and keeps its memory.
func (b *Batch) Reset() {
	b.Shape = 0
	b.Readings = b.Readings[:0]
	b.Index = b.Index[:0]
	b.Refused = b.Refused[:0]
}

// Len returns how many readings the body held, accepted and refused.
func (b *Batch) Len() int { return len(b.Readings) + len(b.Refused) }

// maxExpected bounds the readings for which room is made before they are seen. A
// body whose first reading is short may hold few others.
const maxExpected = 4096

// expect makes room for n readings more, if they are not too many.
func (b *Batch) expect(n int) {
	n = min(n, maxExpected)
	b.Readings = slices.Grow(b.Readings, n)
	b.Index = slices.Grow(b.Index, n)
}
