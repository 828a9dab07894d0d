package logbudget

// windowSeconds is the length of a window.
const windowSeconds = 60

// A window adds up amounts by the second, for as long as they are part of the last
// minute.
//
// It holds one second more than a minute has, because the newest one is not over:
// what add was told in any 60 s is never more than total has said.
type window struct {
	amounts [windowSeconds + 1]int64
	newest  int64 // the second that was added to last
	sum     int64
}

// total returns the amount of the minute that ends in a second. Seconds do not
// run backwards.
func (w *window) total(second int64) int64 {
	if second-w.newest > windowSeconds {
		*w = window{newest: second}
	}
	for w.newest < second {
		w.newest++
		slot := &w.amounts[w.newest%int64(len(w.amounts))]
		w.sum -= *slot
		*slot = 0
	}
	return w.sum
}

// add adds an amount to a second.
func (w *window) add(second, amount int64) {
	w.total(second)
	w.amounts[w.newest%int64(len(w.amounts))] += amount
	w.sum += amount
}
