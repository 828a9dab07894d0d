package audit

import (
	"context"
	"encoding/hex"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Refusal is a request that was rejected for its credentials.
type Refusal struct {
	Reason Reason
	Token  [6]byte    // ID of the token in the request, even if it is unknown; zero: no token
	Peer   netip.Addr // address of the client
}

// appendTimeout bounds how long the Log's goroutine waits for other processes.
const appendTimeout = 10 * time.Second

// Refused records a rejected request. It neither blocks nor allocates. The first ones
// of each minute get a record each, written soon afterwards; one record per minute
// counts the others. Requests with a valid token have records of their own: a client
// must not be able to hide its token behind requests without one.
func (l *Log) Refused(r Refusal) {
	if r.Reason == 0 || r.Reason >= numReasons {
		r.Reason = Malformed
	}
	if left := &l.recordsLeft[r.Reason.quota()]; left.Load() > 0 && left.Add(-1) >= 0 {
		select {
		case l.queue <- r:
			return
		default: // the disk is slow
		}
	}
	l.more[r.Reason].Add(1)
}

// refusals is a Log's state about rejected requests.
type refusals struct {
	queue       chan Refusal
	recordsLeft [2]atomic.Int64           // records left in this minute, by Reason.quota
	more        [numReasons]atomic.Uint64 // rejected without a record of their own
	quit        chan struct{}
	stop        sync.Once
	done        sync.WaitGroup
}

func (l *Log) startRefusals() {
	l.queue = make(chan Refusal, len(l.recordsLeft)*l.opt.RefusedPerMinute)
	l.quit = make(chan struct{})
	l.refillQuotas()
	l.done.Go(l.run)
}

func (l *Log) refillQuotas() {
	for i := range l.recordsLeft {
		l.recordsLeft[i].Store(int64(l.opt.RefusedPerMinute))
	}
}

func (l *Log) stopRefusals() {
	l.stop.Do(func() { close(l.quit) })
	l.done.Wait()
}

// run writes refusals, checks the log and signs it, until the log is closed.
func (l *Log) run() {
	minute, check := time.NewTicker(time.Minute), time.NewTicker(l.opt.CheckEvery)
	defer minute.Stop()
	defer check.Stop()
	trouble := ""
	for {
		var err error
		select {
		case <-l.quit:
			l.report(&trouble, l.write(slices.Concat(l.queued(nil), l.counted(), l.exported(true))))
			l.report(&trouble, l.maintain(true))
			return
		case r := <-l.queue:
			err = l.write(l.queued([]Record{r.record()}))
		case <-minute.C:
			if err = l.write(slices.Concat(l.counted(), l.exported(false))); err == nil {
				err = l.maintain(true)
			}
			l.refillQuotas()
		case <-check.C:
			err = l.maintain(false)
		}
		l.report(&trouble, err)
	}
}

// report calls OnTrouble with err, unless the last call had the same text.
func (l *Log) report(last *string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == *last {
		return
	}
	*last = text
	if l.opt.OnTrouble != nil {
		l.opt.OnTrouble(err)
	}
}

// write writes records of events that have already happened.
func (l *Log) write(records []Record) error {
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	err := l.append(ctx, records...)
	if err == nil {
		return nil
	}
	for i := range records { // count them in the next minute's records
		if records[i].Event == AuthRefused {
			l.more[records[i].Reason].Add(1)
		}
		for reason, n := range records[i].counts {
			l.more[reason].Add(n)
		}
		if records[i].Event == ExportedMore {
			l.countMore(records[i].exporter(), records[i].Count)
		}
	}
	return err
}

// queued appends the records that wait in the queue.
func (l *Log) queued(records []Record) []Record {
	for {
		select {
		case r := <-l.queue:
			records = append(records, r.record())
		default:
			return records
		}
	}
}

func (r *Refusal) record() Record {
	rec := Record{Event: AuthRefused, Reason: r.Reason, Peer: r.Peer}
	if r.Token != [6]byte{} {
		rec.Token = hex.EncodeToString(r.Token[:])
	}
	return rec
}

// counted returns a record with the counts of rejected requests without a record of
// their own, and resets them.
func (l *Log) counted() []Record {
	rec := Record{Event: AuthRefusedMore}
	for i := range l.more {
		n := l.more[i].Swap(0)
		rec.counts[i] = n
		rec.Count += int64(n)
	}
	if rec.Count == 0 {
		return nil
	}
	return []Record{rec}
}
