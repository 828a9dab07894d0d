package audit

import (
	"context"
	"encoding/hex"
	"net/netip"
	"time"
)

// A Refusal is a request that was refused for its credentials.
type Refusal struct {
	Reason Reason
	Token  [6]byte    // the ID of the token that was shown, also of one that is not known; zero: none
	Peer   netip.Addr // where it came from
}

// appendTimeout bounds the wait of the Log's goroutine for other processes.
const appendTimeout = 10 * time.Second

// Refused notes a refused request. It neither waits nor allocates. The first ones
// of each minute have a record each, which is written soon after; of the others
// one record in each minute says how many they were.
func (l *Log) Refused(r Refusal) {
	if r.Reason == 0 || r.Reason >= numReasons {
		r.Reason = Malformed
	}
	if l.room.Load() > 0 && l.room.Add(-1) >= 0 {
		select {
		case l.queue <- r:
			return
		default: // the disk is slow
		}
	}
	l.more[r.Reason].Add(1)
}

func (l *Log) startRefusals() {
	l.queue = make(chan Refusal, l.opt.RefusedPerMinute)
	l.quit = make(chan struct{})
	l.room.Store(int64(l.opt.RefusedPerMinute))
	l.done.Go(l.run)
}

func (l *Log) stopRefusals() {
	l.stop.Do(func() { close(l.quit) })
	l.done.Wait()
}

// run writes what Refused was told until the Log is closed.
func (l *Log) run() {
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	for {
		select {
		case <-l.quit:
			l.write(append(l.queued(nil), l.counted()...))
			return
		case r := <-l.queue:
			l.write(l.queued([]Record{r.record()}))
		case <-minute.C:
			l.write(l.counted())
			l.room.Store(int64(l.opt.RefusedPerMinute))
		}
	}
}

func (l *Log) write(records []Record) {
	if len(records) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	err := l.append(ctx, records...)
	if err == nil {
		return
	}
	for i := range records { // they are counted in the next minute's record
		if records[i].Event == AuthRefused {
			l.more[records[i].Reason].Add(1)
		}
		for reason, n := range records[i].counts {
			l.more[reason].Add(n)
		}
	}
	if l.opt.Failed != nil {
		l.opt.Failed(err)
	}
}

// queued appends what waits in the queue.
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

// counted takes the counts of those without a record of their own.
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
