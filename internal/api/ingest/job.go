package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Job takes the readings of one request from its body to the answer. Borrow
// one with [Core.Job] and give it back with [Job.Release]. It is used by one
// goroutine at a time.
type Job struct {
	core        *Core
	decoder     *vitals.Decoder
	ownsDecoder bool // no other Job has it

	// batch holds the decoded readings; entries refer to them.
	//
	// Ownership: from Commit's call until the group is answered the two belong to
	// the committer. A Job whose group may still be under way is never used again
	// (see lost).
	batch   vitals.Batch
	entries []storage.Entry
	refs    []*storage.Entry // of entries, those of one call of the committer
	order   []int32          // of keepFirst

	permitted permit
	began     time.Time // when the request was there
	uncovered int       // readings that the permit does not cover
	trace     *trace    // nil: nobody records

	refusal refusal // why the request is refused whole
	lost    bool    // the committer may still hold entries

	// reserved is the memory that this Job has taken of Config.MaxBodyBytes, for
	// what a batch holds and for its answer. A client that does not read its answer
	// keeps it for as long.
	reserved int
	holder   *share.Holder // of reserved; nil: it is not divided

	out []byte // the text of the answer, where it is not prepared
}

// Job borrows a Job.
func (c *Core) Job() *Job {
	c.jobsMu.Lock()
	j := c.jobs.get()
	c.jobsMu.Unlock()
	if j == nil {
		j = &Job{core: c, decoder: c.newDecoder(), ownsDecoder: true}
	}
	return j
}

func (c *Core) newDecoder() *vitals.Decoder {
	return vitals.NewDecoder(c.rules, vitals.DecoderOptions{
		IgnoreUnknown:   c.cfg.IgnoreUnknown,
		MaxReadings:     c.cfg.MaxReadings,
		MaxReadingBytes: c.cfg.MaxSingleBytes,
	})
}

// What a pooled Job may keep. A larger one is left to the garbage collector, so
// that one large batch does not hold its memory for ever.
const (
	maxKeptReadings = 4096
	maxKeptOut      = 64 << 10
)

// Release gives j back. What Answer returned must not be used any more.
func (j *Job) Release() {
	if j.reset() && j.decoder != nil { // slim has given away what is worth keeping
		j.core.jobsMu.Lock()
		defer j.core.jobsMu.Unlock()
		j.core.jobs.put(j)
	}
}

// reset makes j ready for another request, or reports that it is not to be used
// for one.
func (j *Job) reset() bool {
	j.core.free(j.holder, j.reserved)
	j.holder, j.reserved = nil, 0
	if j.lost || cap(j.batch.Readings) > maxKeptReadings || cap(j.batch.Refused) > maxKeptReadings || cap(j.out) > maxKeptOut {
		return false
	}
	j.batch.Reset()
	clear(j.entries)
	clear(j.refs)
	j.entries, j.refs, j.out = j.entries[:0], j.refs[:0], j.out[:0]
	j.refusal = refusal{}
	j.permitted, j.uncovered, j.trace = permit{}, 0, nil
	return true
}

// Decode reads the body, decompressed, of a request. It reports whether there is
// something to commit; otherwise the answer is known already. It retains nothing
// of body.
func (j *Job) Decode(body []byte) bool {
	return j.decodeAt(body, j.core.cfg.Now())
}

// decodeAt is Decode for a caller that knows the server's clock.
func (j *Job) decodeAt(body []byte, now time.Time) bool {
	j.began = now
	more := j.decode(body)
	if !more && j.core.answers.kinds[j.refusal.kind].least == 0 {
		j.charge()
	}
	return more
}

func (j *Job) decode(body []byte) bool {
	c, nowUnixMs := j.core, j.began.UnixMilli()
	if c.draining.Load() {
		j.refusal = refusal{kind: refusedDraining}
		return false
	}
	if err := j.decoder.Decode(body, nowUnixMs, &j.batch); err != nil {
		j.refusal = c.refusalOf(err)
		return false
	}
	j.keepPermitted()
	guard := j.guard()
	if guard != nil && j.batch.Shape != vitals.Single {
		j.keepFirst()
	}
	switch {
	case j.batch.Shape == vitals.Single && len(body) > c.cfg.MaxSingleBytes:
		j.refusal = refusal{kind: refusedTooLarge, detail: c.tooLargeSingle}
		return false
	case j.batch.Shape == vitals.Single && len(j.batch.Refused) > 0:
		refused := &j.batch.Refused[0]
		j.refusal = refusal{kind: refusedInvalid, field: refused.Field, reason: refused.Reason()}
		if j.uncovered > 0 {
			j.refusal.kind = refusedDevice
		}
		return false
	}
	if j.batch.Shape != vitals.Single && !j.reserve() {
		j.refusal = refusal{kind: refusedOverloaded}
		return false
	}
	accepted := len(j.batch.Readings)
	j.entries = slices.Grow(j.entries[:0], accepted)[:accepted]
	for i := range j.entries {
		j.entries[i] = storage.Entry{Reading: &j.batch.Readings[i], ReceivedUnixMs: nowUnixMs, Guard: guard}
	}
	return accepted > 0
}

// What a batch takes in memory, for each of its readings.
// TestSizes holds the sizes of the types.
const (
	acceptedBytes = 152 + 40 + 4 + 8 + 4 // vitals.Reading, storage.Entry, index, ref and order
	refusedBytes  = 40                   // vitals.FieldError
	rejectedBytes = 112                  // of the answer: index, field and reason
)

// reserve takes the memory of the decoded batch, and of the longest answer that
// it may get, and reports whether it was there.
func (j *Job) reserve() bool {
	accepted, refused := len(j.batch.Readings), len(j.batch.Refused)
	n := accepted*acceptedBytes + refused*refusedBytes + (accepted+refused)*rejectedBytes
	if !j.core.reserveFor(j.holder, n, n) {
		j.batch = vitals.Batch{}
		return false
	}
	j.reserved = n
	return true
}

// slim gives everything but the answer's text to the next request, before that
// text is sent to a client that may take its time.
func (j *Job) slim() {
	if j.lost || j.reserved <= maxKeptOut {
		return
	}
	next := &Job{
		core: j.core, decoder: j.decoder, ownsDecoder: j.ownsDecoder, batch: j.batch, entries: j.entries, refs: j.refs,
		order: j.order, holder: j.holder,
		reserved: j.reserved - cap(j.out),
	}
	j.decoder, j.batch, j.entries, j.refs, j.order, j.reserved = nil, vitals.Batch{}, nil, nil, nil, cap(j.out)
	next.Release()
}

// refusalOf says why the decoder took nothing of a body.
func (c *Core) refusalOf(err error) refusal {
	if syntax, ok := errors.AsType[*vitals.SyntaxError](err); ok {
		return refusal{kind: refusedMalformed, detail: fmt.Sprintf("byte %d: %s", syntax.Offset, syntax.Reason)}
	}
	if errors.Is(err, vitals.ErrTooManyReadings) {
		return refusal{kind: refusedTooLarge, detail: c.tooMany}
	}
	if errors.Is(err, vitals.ErrReadingTooLong) {
		return refusal{kind: refusedTooLarge, detail: c.tooLargeSingle}
	}
	panic("ingest: the decoder returned an error that it does not document: " + err.Error())
}

// admit takes n of the decoded readings into the queue, and charges the request for
// all. It reports whether there was room for both; otherwise the answer is known.
func (j *Job) admit(n int) bool {
	if !j.core.queue.enter(n) {
		j.refusal = refusal{kind: refusedOverloaded}
		return false
	}
	if !j.charge() {
		j.core.queue.leave(n)
		return false
	}
	return true
}

// admitted reports whether j's readings were handed to the committer, for a front
// that asks before it looks at how that ended.
func (j *Job) admitted() bool { return j.refusal.kind == 0 && len(j.entries) > 0 }

// Commit makes the decoded readings durable and waits for it, or for the end of
// ctx. It enters one group with all of them; a batch larger than a group's limit
// goes in several, one after another. Answer tells how it ended.
func (j *Job) Commit(ctx context.Context) {
	c := j.core
	n := min(len(j.entries), c.cfg.MaxGroup) // no more than that are in the queue at a time
	if !j.admit(n) {
		return
	}
	defer c.queue.leave(n)
	j.trace.begins(tracing.Queue, c.cfg.Now)
	for rest := j.entries; len(rest) > 0; rest = rest[len(j.refs):] {
		j.refs = appendRefs(j.refs[:0], rest[:min(len(rest), c.cfg.MaxGroup)])
		flush, err := c.committer.Commit(ctx, j.refs)
		j.trace.flushed(flush, len(j.refs))
		if err != nil {
			j.refuse(err, len(rest) < len(j.entries))
			return
		}
	}
}

// appendRefs appends pointers to entries.
func appendRefs(refs []*storage.Entry, entries []storage.Entry) []*storage.Entry {
	refs = slices.Grow(refs, len(entries))
	for i := range entries {
		refs = append(refs, &entries[i])
	}
	return refs
}

// refuse takes an error of the committer or the store. partly says that readings of
// the request were stored before.
func (j *Job) refuse(err error, partly bool) {
	notWritten := errors.Is(err, groupcommit.ErrNotWritten) || errors.Is(err, storage.ErrNotWritten)
	switch {
	case errors.Is(err, storage.ErrDiskLow):
		j.refusal.kind = refusedDiskLow
	case errors.Is(err, groupcommit.ErrClosed), errors.Is(err, storage.ErrClosed),
		notWritten && errors.Is(err, context.Canceled), notWritten && errors.Is(err, context.DeadlineExceeded):
		j.refusal.kind = refusedDraining
	case notWritten:
		j.refusal.kind = refusedStoreFailed
	default:
		j.refusal.kind = refusedUnknown
		// ctx may have ended while the group was under way: the committer then
		// still holds the entries.
		j.lost = true
		return
	}
	if partly {
		j.refusal.detail = "A part of the batch was stored. Send the batch again: that part is then answered as duplicate."
	}
}
