package groupcommit

import (
	"errors"
	"fmt"
	"runtime"
)

// Errors of a rejected call. Compare with errors.Is.
var (
	// ErrNotWritten is wrapped by every error after which no item of the call
	// was or will be passed to the flush function.
	ErrNotWritten = errors.New("nothing was written")

	// ErrClosed means that Close was called before the call was admitted. It
	// wraps ErrNotWritten.
	ErrClosed = fmt.Errorf("%w: the committer is closed", ErrNotWritten)

	// ErrTooLarge means that the call has more items than a group may hold. It
	// wraps ErrNotWritten. The caller splits its items into several calls.
	ErrTooLarge = fmt.Errorf("%w: more items than one group holds", ErrNotWritten)
)

// A PanicError reports that the flush function panicked, or ended its goroutine
// with [runtime.Goexit]. Find it with errors.AsType.
//
// Its text contains the panic's value only if that is a [runtime.Error]; of any
// other value it contains the type. A value may hold the data to be written, and
// error texts reach logs.
//
// A value that is an error is not unwrapped: it describes the cause of the panic, not
// the outcome of the group, and must not be mistaken for [ErrNotWritten].
type PanicError struct {
	Value any    // what recover returned; nil after runtime.Goexit
	Stack []byte // stack of the flush at the panic, as debug.Stack formats it
}

// Error returns the text that the type's comment describes.
func (e *PanicError) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return "groupcommit: flush ended its goroutine"
	case runtime.Error:
		return "groupcommit: flush panicked: " + v.Error()
	default:
		return fmt.Sprintf("groupcommit: flush panicked with a value of type %T", v)
	}
}
