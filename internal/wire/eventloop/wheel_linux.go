package eventloop

// A wheel determines which of many numbered timers are due. It has no clock: times are
// ticks, counted by the caller. Setting and stopping take constant time; advancing by
// a tick takes time proportional to the timers in its slot.
//
// A timer is in the slot of its tick modulo the number of slots. One that is more than
// a round away is skipped once in each round.
//
// Invariant: advance returns a timer exactly once, in the first call with a tick not
// before the timer's, unless it was set again or stopped in between.
// TestWheelModel checks it.
type wheel struct {
	slots  []int32 // first timer of each slot, or none
	timers []timer // by number
	now    int64   // tick of the last advance
	count  int     // timers that are set
}

type timer struct {
	at         int64 // tick; 0 means not set
	next, prev int32 // in its slot, or none
}

const none int32 = -1

// newWheel returns a wheel at tick now, which is at least 0.
func newWheel(slots int, now int64) *wheel {
	w := &wheel{slots: make([]int32, slots), now: now}
	for i := range w.slots {
		w.slots[i] = none
	}
	return w
}

// set makes timer id due at tick at, or at the next tick if at has passed.
func (w *wheel) set(id int32, at int64) {
	for int(id) >= len(w.timers) {
		w.timers = append(w.timers, timer{})
	}
	w.stop(id)
	at = max(at, w.now+1)
	slot := &w.slots[at%int64(len(w.slots))]
	w.timers[id] = timer{at: at, next: *slot, prev: none}
	if *slot != none {
		w.timers[*slot].prev = id
	}
	*slot = id
	w.count++
}

// stop stops timer id.
func (w *wheel) stop(id int32) {
	if int(id) >= len(w.timers) || w.timers[id].at == 0 {
		return
	}
	t := &w.timers[id]
	if t.prev == none {
		w.slots[t.at%int64(len(w.slots))] = t.next
	} else {
		w.timers[t.prev].next = t.next
	}
	if t.next != none {
		w.timers[t.next].prev = t.prev
	}
	t.at = 0
	w.count--
}

// advance moves the wheel to tick now and appends the timers that are due to due. They
// are then stopped.
func (w *wheel) advance(now int64, due []int32) []int32 {
	steps := min(now-w.now, int64(len(w.slots)))
	for i := range max(steps, 0) {
		for id := w.slots[(now-i)%int64(len(w.slots))]; id != none; {
			t := &w.timers[id]
			next := t.next
			if t.at <= now {
				w.stop(id)
				due = append(due, id)
			}
			id = next
		}
	}
	w.now = max(w.now, now)
	return due
}
