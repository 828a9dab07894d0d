package ingest

// Counters are the counters that tests compare and wait for.
type Counters struct {
	Stored, Conflict, Withheld, Invalid, Forbidden     uint64 // readings
	Unauthorized, NoRight, TooManyReadings, Overloaded uint64 // requests

	Queued, BodyBytes int64 // current values
}

// Counters returns the counters of c.
func (c *Core) Counters() Counters {
	refused := func(k kind) uint64 { return c.counters.refused[k].Load() }
	return Counters{
		Stored:          c.Stored(),
		Conflict:        refused(refusedConflict),
		Withheld:        refused(refusedWithheld),
		Invalid:         refused(refusedInvalid),
		Forbidden:       refused(refusedDevice),
		Unauthorized:    refused(refusedUnauthorized) + refused(refusedCredentials),
		NoRight:         refused(refusedForbidden),
		TooManyReadings: refused(refusedLimited),
		Overloaded:      refused(refusedOverloaded),
		Queued:          c.queue.queued.Load(),
		BodyBytes:       c.memory.held.Load(),
	}
}
