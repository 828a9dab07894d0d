package logbudget

// windowSeconds is the length of a window.
const windowSeconds = 60

// A window is a sliding sum of the amounts of the last minute, with a resolution of one
// second.
//
// It covers 61 seconds, because the newest one is incomplete: the amounts added within
// any 60 s never exceed total.
type window struct {
	amounts [windowSeconds + 1]int64
	newest  int64 // the most recent second
	sum     int64
}

// total returns the sum for the minute that ends in second, which must not decrease
// between calls.
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

// add adds amount to second.
func (w *window) add(second, amount int64) {
	w.total(second)
	w.amounts[w.newest%int64(len(w.amounts))] += amount
	w.sum += amount
}
