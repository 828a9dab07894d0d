package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Job processes the readings of one request, from its body to the answer. Borrow it with
// [Core.Job] and return it with [Job.Release]. Only one goroutine at a time may use it.
type Job struct {
	core        *Core
	decoder     *vitals.Decoder
	ownsDecoder bool // decoder is not shared
	input       Input
	origin      vitals.Origin // of the message

	// batch holds the decoded readings; entries refer to them.
	//
	// Ownership: from the call of Commit until the group is answered, both belong to the
	// committer. A Job whose group may still be in progress is never reused (see lost).
	batch   batch
	entries []storage.Entry
	refs    []*storage.Entry // pointers to the entries of one committer call

	auth      authorization
	uncovered int    // readings of devices that the token does not cover
	trace     *trace // nil means not recorded
	slot      *slot  // while a large message is decoded

	refusal refusal // set if the request is rejected as a whole
	settled Outcome // see outcome
	lost    bool    // the committer may still hold entries

	// reserved is the memory, out of Config.MaxBodyBytes, that this Job has reserved for a
	// batch and its answer. It is reserved until the client has read the answer.
	reserved int
	holder   *share.Holder // to which reserved is charged; nil means no shares

	out []byte // text of an answer that is not prepared
}

// A batch holds the decoded readings of a request, those that are not rejected.
type batch struct {
	vitals.Batch
	intake Intake  // of the last call of an input
	order  []int32 // used by refuseContradictions
}

// Job borrows a Job.
func (c *Core) Job() *Job {
	c.jobsMu.Lock()
	j := c.jobs.get()
	c.jobsMu.Unlock()
	if j == nil {
		j = newJob(c, c.newDecoder())
		j.ownsDecoder = true
	}
	return j
}

// newJob returns a Job that decodes JSON, unless its input is replaced.
func newJob(c *Core, decoder *vitals.Decoder) *Job {
	return &Job{core: c, decoder: decoder, input: jsonInput{decoder}}
}

func (c *Core) newDecoder() *vitals.Decoder {
	return vitals.NewDecoder(c.rules, vitals.DecoderOptions{
		IgnoreUnknown:   c.cfg.IgnoreUnknown,
		MaxReadings:     c.cfg.MaxReadings,
		MaxReadingBytes: c.cfg.MaxSingleBytes,
	})
}

// Bounds of what a pooled Job may keep. A larger one is left to the garbage collector, so that
// one large batch does not hold its memory forever.
const (
	maxKeptReadings = 4096
	maxKeptOut      = 64 << 10
)

// Release returns j to the Core. The Answer is no longer valid.
func (j *Job) Release() {
	if j.reset() && j.decoder != nil { // after releaseBuffers, nothing worth keeping is left
		j.core.jobsMu.Lock()
		defer j.core.jobsMu.Unlock()
		j.core.jobs.put(j)
	}
}

// reset prepares j for another request. It returns false if j must not be reused.
func (j *Job) reset() bool {
	j.core.memory.Release(j.holder, j.reserved)
	j.holder, j.reserved = nil, 0
	if j.lost || cap(j.batch.Readings) > maxKeptReadings || cap(j.batch.Refused) > maxKeptReadings ||
		cap(j.out) > maxKeptOut {
		return false
	}
	j.batch.Reset()
	clear(j.entries)
	clear(j.refs)
	j.entries, j.refs, j.out = j.entries[:0], j.refs[:0], j.out[:0]
	j.refusal = refusal{}
	j.auth, j.uncovered, j.trace, j.slot = authorization{}, 0, nil, nil
	j.origin = vitals.Origin{}
	j.input, j.batch.intake, j.settled = jsonInput{j.decoder}, Intake{}, Outcome{}
	return true
}

// Decode decodes the decompressed body of a request. It reports whether there is something to
// commit; if not, the answer is final. It does not retain body.
func (j *Job) Decode(body []byte) bool {
	return j.decodeAt(body, j.core.cfg.Now())
}

// decodeAt is Decode with the server's current time.
func (j *Job) decodeAt(body []byte, now time.Time) bool {
	j.auth.began = now
	more := j.decode(body)
	if !more && j.core.answers.kinds[j.refusal.kind].least == 0 {
		if why := j.auth.charge(j.batch.Len()); why.kind != 0 {
			j.refusal = why
		}
	}
	return more
}

func (j *Job) decode(body []byte) bool {
	c, nowUnixMs := j.core, j.auth.began.UnixMilli()
	if c.draining.Load() {
		j.refusal = refusal{kind: refusedDraining}
		return false
	}
	if err := j.decodeMessage(body, nowUnixMs); err != nil {
		j.batch.Reset() // it is charged like one reading, however many an input has decoded before the error
		j.refusal = c.answers.refusalOf(err)
		return false
	}
	var guard storage.Guard // nil means that the readings need none
	relays := relays(j)
	if c.cfg.Gate != nil {
		j.uncovered = j.batch.keepAuthorized(&j.auth.access, relays)
		if !j.auth.access.MayRead() {
			guard = &j.auth
		}
	}
	if guard != nil && j.batch.Shape != vitals.Single {
		j.batch.refuseContradictions(j.core.cfg.Limits.Signs)
	}
	if j.batch.hasUnits() {
		j.batch.keepUnits()
		if j.batch.intake.Whole && len(j.batch.Readings) > c.cfg.MaxGroup {
			j.refusal = refusal{kind: refusedTooLarge, detail: fmt.Sprintf("%d readings at most are stored all or not at all.",
				c.cfg.MaxGroup)}
			return false
		}
	}
	switch {
	case j.batch.Shape == vitals.Single && len(body) > c.cfg.MaxSingleBytes:
		j.refusal = refusal{kind: refusedTooLarge, detail: c.answers.tooLargeSingle}
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
		j.entries[i] = storage.Entry{Reading: &j.batch.Readings[i], ReceivedUnixMs: nowUnixMs, Guard: guard,
			Claim: j.batch.intake.Claim, Relayed: relays}
	}
	if j.batch.hasUnits() {
		j.batch.markUnits(j.entries)
	}
	return accepted > 0
}

// relays reports whether the readings are handed over by another server, which names their gateways. Only JSON names
// them as they are stored.
func relays(j *Job) bool {
	_, isJSON := j.input.(jsonInput)
	return isJSON && j.core.cfg.Gate != nil && j.auth.access.Has(token.Relay)
}

// relaysBlindly reports whether relays does, and the client must not learn what is stored. See guess.go.
func relaysBlindly(j *Job) bool { return relays(j) && !j.auth.access.MayRead() }

// Memory of a batch for each of its readings. TestSizes checks the sizes of the types.
const (
	acceptedBytes = 272 + 56 + 4 + 8 + 4 // vitals.Reading, storage.Entry, index, ref and order
	refusedBytes  = 40                   // vitals.FieldError
	rejectedBytes = 112                  // of the answer: index, field and reason
)

// reserve reserves memory for the decoded batch and the longest answer that it may get, and
// reports whether it was available.
func (j *Job) reserve() bool {
	accepted, refused := len(j.batch.Readings), len(j.batch.Refused)
	n := accepted*acceptedBytes + refused*refusedBytes + (accepted+refused)*rejectedBytes
	if !j.core.memory.ReserveFor(j.holder, n, n) {
		j.batch.Batch = vitals.Batch{}
		return false
	}
	j.reserved = n
	return true
}

// releaseBuffers releases everything but the answer's text for reuse, before that text is sent to a
// client that may read slowly.
func (j *Job) releaseBuffers() {
	if j.lost || j.reserved <= maxKeptOut {
		return
	}
	next := newJob(j.core, j.decoder)
	next.ownsDecoder, next.batch, next.entries, next.refs = j.ownsDecoder, j.batch, j.entries, j.refs
	next.holder, next.reserved = j.holder, j.reserved-cap(j.out)
	j.decoder, j.batch, j.entries, j.refs, j.reserved = nil, batch{}, nil, nil, cap(j.out)
	next.Release()
}

// admit adds n of the decoded readings to the queue, and charges the request for all of its
// readings. It returns false if the queue or the rate does not allow it; the answer is then
// final.
func (j *Job) admit(n int) bool {
	if !j.core.queue.enter(n) {
		j.refusal = refusal{kind: refusedOverloaded}
		return false
	}
	if why := j.auth.charge(j.batch.Len()); why.kind != 0 {
		j.refusal = why
		j.core.queue.leave(n)
		return false
	}
	return true
}

// Admitted reports whether j's readings were passed to the committer. It may be called before
// the outcome is known.
func (j *Job) Admitted() bool { return j.refusal.kind == 0 && len(j.entries) > 0 }

// Commit makes the decoded readings durable, and waits until they are or ctx ends. They join one
// group; a batch larger than the limit of a group is committed in several, one after another.
// Answer returns the result.
func (j *Job) Commit(ctx context.Context) {
	c := j.core
	n := min(len(j.entries), c.cfg.MaxGroup) // at most that many are in the queue at a time
	if !j.admit(n) {
		return
	}
	defer c.queue.leave(n)
	j.trace.begins(tracing.Queue, c.cfg.Now)
	for done := 0; done < len(j.entries); done += len(j.refs) {
		n := groupOf(j.entries[done:], c.cfg.MaxGroup)
		j.refs = appendRefs(j.refs[:0], j.entries[done:done+n])
		flush, err := c.committer.Commit(ctx, j.refs)
		j.trace.flushed(flush, len(j.refs))
		if err != nil {
			j.refuse(err, done > 0)
			return
		}
	}
	if j.batch.intake.Claim != nil {
		j.commitClaims(ctx)
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

// refuse sets the refusal for an error of the committer or the store. partly means that
// readings of the request were stored before.
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
		// ctx may have ended while the group was in progress: the committer then still holds
		// the entries.
		j.lost = true
		return
	}
	if partly {
		j.refusal.detail = "A part of the batch was stored. Send the batch again: that part is then answered as duplicate."
	}
}
