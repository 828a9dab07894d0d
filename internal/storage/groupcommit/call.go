package groupcommit

import "context"

// A call is the Waiter of one Commit.
type call struct {
	// answer has room for the one answer, so that Done never blocks, not even
	// when nobody waits any more.
	answer chan error
}

func newCall() *call { return &call{answer: make(chan error, 1)} }

// Done hands the answer to wait.
func (w *call) Done(err error) { w.answer <- err }

// wait returns the answer, or ctx's error when ctx ends first. Only when it was
// answered may w be used again.
func (w *call) wait(ctx context.Context) (answered bool, err error) {
	ended := ctx.Done()
	if ended == nil {
		return true, <-w.answer
	}
	select {
	case err := <-w.answer:
		return true, err
	case <-ended:
	}
	// Both may have happened. The answer says more.
	select {
	case err := <-w.answer:
		return true, err
	default:
		return false, ctx.Err()
	}
}
