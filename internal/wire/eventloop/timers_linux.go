package eventloop

import "time"

// timers close the connections of a loop when their deadline has passed. They count time in
// ticks of the loop's clock, and look at all deadlines once in each: they are next to each other in memory.
type timers struct {
	limits
	started   time.Time
	now       int64   // tick
	looked    int64   // tick of the last call of expired
	deadlines []int64 // by slot; never means none
	due       []int32 // scratch of expired
}

// limits are the timeouts of a Config in ticks.
type limits struct {
	tick                                time.Duration
	start, idle, write, linger, crowded int64
}

func newLimits(cfg *Config) limits {
	l := limits{tick: cfg.Tick}
	l.start, l.idle, l.write = l.ticks(cfg.StartTimeout), l.ticks(cfg.IdleTimeout), l.ticks(cfg.WriteTimeout)
	l.linger, l.crowded = l.ticks(cfg.LingerTimeout), l.ticks(cfg.CrowdedTimeout)
	return l
}

// ticks returns d in ticks, rounded up.
func (l *limits) ticks(d time.Duration) int64 { return int64((d + l.tick - 1) / l.tick) }

// update sets now.
func (t *timers) update() { t.now = t.ticks(time.Since(t.started)) }

// set sets the deadline of c.
func (t *timers) set(c *Conn, at int64) {
	for int(c.slot) >= len(t.deadlines) {
		t.deadlines = append(t.deadlines, never)
	}
	t.deadlines[c.slot] = at
}

// schedule sets the deadline of a connection that waits.
func (t *timers) schedule(c *Conn) {
	switch {
	case c.fd < 0:
	case c.lingering, c.out != nil: // set when that began
	case c.owed > 0:
		t.set(c, never)
	case c.paused:
		t.set(c, c.pauseEnd)
	case c.in != nil:
		t.set(c, c.began+c.within)
	case c.fresh:
	case c.expect > 0:
		t.set(c, c.expect)
	default:
		if c.idleEnd == 0 { // since the last message or answer; parts of a TLS record are neither
			c.idleEnd = t.now + t.idleOf(c)
		}
		t.set(c, c.idleEnd)
	}
}

// idleOf returns the ticks that c may have between two messages.
func (t *timers) idleOf(c *Conn) int64 {
	if c.quiet > 0 {
		return c.quiet
	}
	return t.idle
}

// expired returns the slots of the connections whose deadline has passed, and removes their deadlines. It is valid
// until the next call.
func (t *timers) expired() []int32 {
	t.due = t.due[:0]
	if t.looked == t.now {
		return nil
	}
	t.looked = t.now
	for slot, at := range t.deadlines {
		if at <= t.now {
			t.deadlines[slot] = never
			t.due = append(t.due, int32(slot))
		}
	}
	return t.due
}
