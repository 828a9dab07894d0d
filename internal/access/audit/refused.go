package audit

import (
	"encoding/hex"
	"net/netip"
	"sync/atomic"
)

// A Refusal is a request that was rejected for its credentials.
type Refusal struct {
	Reason Reason
	Token  [6]byte    // ID of the token in the request, even if it is unknown; zero means no token
	Actor  string     // instead of Token: whom an OpenID Connect provider vouches for; see Record
	Peer   netip.Addr // address of the client
}

func (r *Refusal) record() Record {
	rec := Record{Event: AuthRefused, Reason: r.Reason, Peer: r.Peer, Actor: r.Actor}
	if r.Token != [6]byte{} {
		rec.Token = hex.EncodeToString(r.Token[:])
	}
	return rec
}

// Refused records a rejected request. It neither blocks nor allocates. The first ones
// of each minute get a record each, written soon afterwards; one record per minute
// counts the others. Requests with a valid token have records of their own: a client
// must not be able to hide its token behind requests without one.
func (l *Log) Refused(r Refusal) { l.refusals.add(r) }

// refusedPerMinute bounds the rejected requests with a record of their own, those with a
// valid token and the others.
const refusedPerMinute = 10

// refusals are the rejected requests that are not recorded yet. It is safe for
// concurrent use.
type refusals struct {
	queue chan Refusal
	left  [2]atomic.Int64           // records left in this minute, by Reason.quota
	more  [NumReasons]atomic.Uint64 // rejected without a record of their own
}

func (s *refusals) add(r Refusal) {
	if r.Reason == 0 || r.Reason >= NumReasons {
		r.Reason = Malformed
	}
	if left := &s.left[r.Reason.quota()]; left.Load() > 0 && left.Add(-1) >= 0 {
		select {
		case s.queue <- r:
			return
		default: // the disk is slow
		}
	}
	s.more[r.Reason].Add(1)
}

// refill begins another minute.
func (s *refusals) refill() {
	for i := range s.left {
		s.left[i].Store(refusedPerMinute)
	}
}

// queued appends the records that wait in the queue.
func (s *refusals) queued(records []Record) []Record {
	for {
		select {
		case r := <-s.queue:
			records = append(records, r.record())
		default:
			return records
		}
	}
}

// counted returns a record with the counts of rejected requests without a record of
// their own, and resets them.
func (s *refusals) counted() []Record {
	rec := Record{Event: AuthRefusedMore}
	for i := range s.more {
		n := s.more[i].Swap(0)
		rec.counts[i] = n
		rec.Count += int64(n)
	}
	if rec.Count == 0 {
		return nil
	}
	return []Record{rec}
}

// putBack counts the requests of a record that was not written.
func (s *refusals) putBack(r *Record) {
	if r.Event == AuthRefused {
		s.more[r.Reason].Add(1)
	}
	for reason, n := range r.counts {
		s.more[reason].Add(n)
	}
}
