package ingest

import (
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// counters count what became of readings and of requests.
type counters struct {
	stored    atomic.Uint64
	duplicate atomic.Uint64
	refused   [numKinds]atomic.Uint64
}

// Counters tell what became of readings and of requests since the start.
type Counters struct {
	Stored    uint64 // readings that were new, or completed a stored one
	Duplicate uint64 // readings that were stored already
	Conflict  uint64 // readings that contradicted a stored one
	Invalid   uint64 // readings that broke a rule
	Forbidden uint64 // readings of devices that their token is not for

	// Requests that were refused whole: for who sent them, for their form, or for the
	// server's state.
	Unauthorized, NoRight, TooManyReadings                     uint64
	Malformed, TooLarge, Timeout, NoLength, UnknownEncoding    uint64
	Overloaded, Draining, DiskLow, StoreFailed, OutcomeUnknown uint64

	Queued    int64 // readings admitted and not yet answered, now
	BodyBytes int64 // memory of bodies that are being read, now
}

// Counters returns the counters. It does not allocate. Each is exact; together
// they are not of one moment.
func (c *Core) Counters() Counters {
	refused := func(k kind) uint64 { return c.counters.refused[k].Load() }
	return Counters{
		Stored:          c.counters.stored.Load(),
		Duplicate:       c.counters.duplicate.Load(),
		Conflict:        refused(refusedConflict),
		Invalid:         refused(refusedInvalid),
		Forbidden:       refused(refusedDevice),
		Unauthorized:    refused(refusedUnauthorized) + refused(refusedCredentials),
		NoRight:         refused(refusedForbidden),
		TooManyReadings: refused(refusedLimited),
		Malformed:       refused(refusedMalformed),
		TooLarge:        refused(refusedTooLarge),
		Timeout:         refused(refusedTimeout),
		NoLength:        refused(refusedNoLength),
		UnknownEncoding: refused(refusedEncoding),
		Overloaded:      refused(refusedOverloaded),
		Draining:        refused(refusedDraining),
		DiskLow:         refused(refusedDiskLow),
		StoreFailed:     refused(refusedStoreFailed),
		OutcomeUnknown:  refused(refusedUnknown),
		Queued:          c.room.queued.Load(),
		BodyBytes:       c.bodyBytes.Load(),
	}
}

// Commits returns the counters of the group commit, and its queue now. It does
// not allocate.
func (c *Core) Commits() groupcommit.Stats { return c.committer.Stats() }
