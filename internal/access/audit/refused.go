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

// refusals are what a Log knows of refused requests.
type refusals struct {
	queue chan Refusal
	room  atomic.Int64              // records left in this minute
	more  [numReasons]atomic.Uint64 // refused without a record of their own
	quit  chan struct{}
	stop  sync.Once
	done  sync.WaitGroup
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

// run writes the refusals, and checks and signs the log, until it is closed.
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
			l.report(&trouble, l.tend(true))
			return
		case r := <-l.queue:
			err = l.write(l.queued([]Record{r.record()}))
		case <-minute.C:
			if err = l.write(slices.Concat(l.counted(), l.exported(false))); err == nil {
				err = l.tend(true)
			}
			l.room.Store(int64(l.opt.RefusedPerMinute))
		case <-check.C:
			err = l.tend(false)
		}
		l.report(&trouble, err)
	}
}

// report calls OnTrouble with err, unless the last call had the same.
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

// write writes records of events that have happened already.
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
	for i := range records { // they are counted in the next minute's records
		if records[i].Event == AuthRefused {
			l.more[records[i].Reason].Add(1)
		}
		for reason, n := range records[i].counts {
			l.more[reason].Add(n)
		}
		if records[i].Event == ExportedMore {
			l.countAgain(&records[i])
		}
	}
	return err
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
