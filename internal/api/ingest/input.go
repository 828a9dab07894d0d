package ingest

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// An Input decodes one message of a gateway, such as the body of a request. It knows nothing of
// connections, tokens and stores: the Core authorizes, admits, commits and counts the readings of
// all inputs in the same way. Only one goroutine at a time uses an Input.
//
// A front receives messages of a protocol, passes them to the Core with an Input, and writes the
// protocol's acknowledgement from the [Outcome]. [Core.Handler] is the front for HTTP. Others call
// [Core.Receive].
type Input interface {
	// Decode decodes a message, decompressed, into in.Batch. It must validate the readings
	// with in.Rules, and not retain the message or in. The error is one of vitals.Decoder.Decode, or
	// of Malformed, Invalid, TooLarge or Unavailable.
	Decode(message []byte, in *Intake) error
}

// An Intake is what an [Input] decodes to.
type Intake struct {
	NowUnixMs   int64 // the server's clock
	Rules       *vitals.Validator
	Origin      *vitals.Origin // what is known of the message's sender; nil means nothing
	MaxReadings int            // in a message
	MaxUnit     int            // readings of a unit

	// Batch gets the readings with their positions, which must not descend. It is empty, and
	// its shape an array, when Decode is called. A position may have several readings, which
	// must be adjacent, or be in Refused, but not both. With Claim, it may also have readings without values: see
	// [storage.Claim].
	Batch *vitals.Batch

	// Units makes the readings with the same position a unit: all of them are stored, or
	// none. Without it, a position has one reading.
	Units bool

	// Whole makes all readings of the message one unit, which a rejected position prevents.
	Whole bool

	// LeftOut gets the values that their devices disown (see LeavesOut), and those of further sources of a sign (see
	// [codes.LeaveOut]). They are counted, and neither stored nor rejected: a position may have nothing else.
	LeftOut []LeftOut

	// Rounded is the number of values that a mapping has rounded.
	Rounded int

	// Claim says who wears the devices of all readings. If nil, nothing is known. It cannot be combined with Units or
	// Whole.
	Claim *storage.Claim

	// Record records changes of assignments before Claim makes them, or, if failed is set, recorded changes that were
	// not made. An assignment begins at FromUnixMs or later; without a Subject, the assignment of that time ends. Record
	// returns how many of the first changes are recorded durably. Readings that need the others are rejected for later.
	// It is called without a decoding slot, and may wait. If nil, nothing is recorded.
	Record func(ctx context.Context, changes []storage.Assignment, failed bool) (recorded int)

	access            *gate.Access // nil means access to all devices
	slot              *slot        // nil means that decoding is not limited
	storeQuestionable bool
}

// Await calls wait, which waits for a store, during Decode. If there is memory for another message, Await releases
// the decoding slot until wait returns.
func (in *Intake) Await(wait func() error) error {
	if in.slot != nil && in.slot.leave() {
		defer in.slot.enter()
	}
	return wait()
}

// A slot is the decoding slot of a large message.
type slot struct {
	core   *Core
	holder *share.Holder
	bytes  int // of memory that decoding takes and that is not reserved
}

// slotFor waits for a decoding slot. It returns nil for a message that is too short to need one.
func slotFor(c *Core, messageBytes int) *slot {
	if messageBytes <= largeBodyBytes {
		return nil
	}
	c.decoding <- struct{}{}
	return &slot{core: c, bytes: 5 * messageBytes}
}

// leave releases the slot, unless there is no memory for another message: slots bound that memory, too.
func (s *slot) leave() bool {
	if !s.core.memory.ReserveFor(s.holder, s.bytes, s.bytes) {
		return false
	}
	<-s.core.decoding
	return true
}

func (s *slot) enter() {
	s.core.decoding <- struct{}{}
	s.core.memory.Release(s.holder, s.bytes)
}

func (s *slot) close() {
	if s != nil {
		<-s.core.decoding
	}
}

// A LeftOut is a value that is neither stored nor an error.
type LeftOut struct {
	Index  int // position in the message
	Source Source
	Device vitals.Name // zero if it is not known
	Field  string      // of its sign
	Why    codes.Doubt // 0 means that another source of the sign comes first
	More   int         // further values of the same reading that are left out likewise

	Ignored bool // no value: a mapping says that what it fits is not stored
}

// A Source is an input that knows what devices disown.
type Source uint8

// The sources.
const (
	HL7 Source = iota
	FHIR
	Mapping
	numSources
)

// String returns the name of a source in lists and metrics.
func (s Source) String() string { return [...]string{"hl7", "fhir", "mapping"}[s] }

// LeavesOut reports whether a value with a doubt is left out. Config.StoreQuestionable stores questionable ones.
func (in *Intake) LeavesOut(d codes.Doubt) bool {
	return d > codes.Questionable || d == codes.Questionable && !in.storeQuestionable
}

// Access returns what the client may do; without a [Config.Gate], everything.
func (in *Intake) Access() gate.Access {
	if in.access == nil {
		return gate.Access{Principal: token.Unlimited(token.Read | token.Write)}
	}
	return *in.access
}

// Covers reports whether the client may write readings of a device. Readings that it may not write
// are rejected after Decode. An Input that reads more about devices than their readings must ask
// first, and may reject with [ErrNotCovered].
func (in *Intake) Covers(device *vitals.Name) bool {
	return in.access == nil || in.access.Covers(device)
}

// Malformed returns an error of [Input.Decode] for a message that is not of its form.
func Malformed(detail string) error { return &refusal{kind: refusedMalformed, detail: detail} }

// Invalid returns an error of [Input.Decode] for a message whose field breaks a rule.
func Invalid(field, reason string) error {
	return &refusal{kind: refusedInvalid, field: field, reason: reason}
}

// OtherGateway returns an error of [Input.Decode] for a message whose field names another gateway than the client.
func OtherGateway(field, reason string) error {
	return &refusal{kind: refusedInvalid, field: field, reason: reason, misnamed: true}
}

// TooLarge returns an error of [Input.Decode] for a message that exceeds a bound.
func TooLarge(detail string) error { return &refusal{kind: refusedTooLarge, detail: detail} }

// Unavailable returns an error of [Input.Decode] for a store that cannot be read.
func Unavailable() error { return &refusal{kind: refusedStoreFailed} }

// A jsonInput is the Input of POST /v1/readings: an object, an array or NDJSON.
type jsonInput struct{ decoder *vitals.Decoder }

func (i jsonInput) Decode(message []byte, in *Intake) error {
	if in.Origin != nil {
		return i.decoder.DecodeFrom(message, in.NowUnixMs, *in.Origin, in.Batch)
	}
	return i.decoder.Decode(message, in.NowUnixMs, in.Batch)
}

// decodeMessage decodes a message with the job's input.
func (j *Job) decodeMessage(message []byte, nowUnixMs int64) error {
	c := j.core
	if j.slot != nil {
		j.slot.holder = j.holder
	}
	j.batch.intake = Intake{slot: j.slot, NowUnixMs: nowUnixMs, Rules: c.rules, MaxReadings: c.cfg.MaxReadings,
		MaxUnit: c.cfg.MaxGroup, Batch: &j.batch.Batch, storeQuestionable: c.cfg.StoreQuestionable}
	if j.origin != (vitals.Origin{}) {
		j.batch.intake.Origin = &j.origin
	}
	if c.cfg.Gate != nil {
		j.batch.intake.access = &j.auth.access
	}
	j.batch.Reset()
	j.batch.Shape = vitals.Array
	return j.input.Decode(message, &j.batch.intake)
}

// A Delivery is a message and what a front knows of it.
type Delivery struct {
	From    gate.Credentials
	Input   Input         // nil means JSON
	Origin  vitals.Origin // of the readings, as far as the message need not tell it
	Message []byte

	Method, Route string // of its span, which it has if Outcome.Traced is called

	since time.Time          // when it was delivered first; zero means now
	hold  func(Refusal) bool // see Hold
}

// Receive authorizes a client, decodes its message, makes the
// readings durable, and calls answer with the outcome, which is valid until answer returns. It waits for the commit
// until ctx ends; readings that were admitted by then may still be stored. The memory of the message is the caller's to
// bound, and may be reused once Receive has returned.
func (c *Core) Receive(ctx context.Context, d *Delivery, answer func(*Outcome)) {
	job := c.Job()
	d.to(job)
	job.trace = newTrace(c, d.since)
	job.trace.begins(tracing.Decode, c.cfg.Now)
	more := job.receive(d.From, d.Message)
	job.trace.ends(tracing.Decode, c.cfg.Now)
	defer c.cfg.Holders.Put(job.holder)
	defer job.Release()
	if more {
		job.Commit(ctx)
	}
	if why, rejected := job.Refused(); rejected && d.hold != nil && d.hold(why) {
		return
	}
	answer(job.Outcome())
	job.trace.record(c, d)
}

// to sets how a job decodes the message.
func (d *Delivery) to(j *Job) {
	if d.Input != nil {
		j.input = d.Input
	}
	j.origin = d.Origin
}

// receive authorizes a client and decodes its message. It reports whether there is something to
// commit.
func (j *Job) receive(from gate.Credentials, message []byte) bool {
	c := j.core
	j.slot = slotFor(c, len(message))
	defer j.slot.close()
	j.auth, j.refusal = c.enter(from, c.cfg.Now())
	switch {
	case j.refusal.kind != 0:
		return false
	case c.full():
		j.refusal = *errOverloaded
		return false
	}
	j.holder = j.auth.access.Holder(c.cfg.Holders, from.Peer)
	return j.Decode(message)
}

// An Outcome is what became of a message.
type Outcome struct {
	core    *Core
	job     *Job     // nil if the message was rejected before it was decoded
	refusal *refusal // kind 0 if it was not rejected as a whole
}

// Outcome returns what became of a job's message, after Decode returned false or after Commit. It must be
// called once.
func (j *Job) Outcome() *Outcome {
	j.reportIdentity()
	if k := j.refusal.kind; k != 0 && k != refusedDevice { // the latter is counted by reportIdentity
		j.core.counters.refused[k].Add(1)
	} else if k == 0 {
		reportLeftOut(j)
	}
	j.settled = Outcome{j.core, j, &j.refusal}
	return &j.settled
}

// reportLeftOut counts what was left out and what was rounded, and lists what devices disown.
func reportLeftOut(j *Job) {
	in := &j.batch.intake
	j.core.counters.rounded.Add(uint64(in.Rounded))
	for i := range in.LeftOut {
		l := &in.LeftOut[i]
		if l.Ignored {
			j.core.counters.ignored.Add(1)
			continue
		}
		j.core.counters.leftOut[l.Source][l.Why].Add(uint64(1 + l.More))
		if report := j.core.cfg.OnLeftOut; report != nil && l.Why != 0 && i < ListedPerMessage {
			report(l, j.origin.Gateway, in.Covers(&l.Device))
		}
	}
}

// ListedPerMessage bounds the calls of OnLeftOut for one message.
const ListedPerMessage = 100

// Origin returns the origin with which the message was delivered.
func (o *Outcome) Origin() vitals.Origin { return o.job.origin }

// Covers reports whether the credentials of the client cover a device. They may be unknown, and then cover none.
func (o *Outcome) Covers(device *vitals.Name) bool { return o.job.auth.access.Covers(device) }

// Traced sets the status of the message's span, in terms of HTTP.
func (o *Outcome) Traced(status int) {
	if o.job != nil && o.job.trace != nil {
		o.job.trace.Status = status
	}
}

// Admitted reports whether the message has readings that were passed to the store without failing there.
func (o *Outcome) Admitted() bool { return o.job != nil && o.job.Admitted() }

// AllStored reports whether every reading is stored. If so, it counts them; otherwise Refusal or Results
// does.
func (o *Outcome) AllStored() bool {
	if o.refusal.kind != 0 || len(o.job.batch.Refused) > 0 {
		return false
	}
	stored, duplicate, empty := count(o.job.entries)
	if stored+duplicate+empty < len(o.job.entries) {
		return false
	}
	o.core.counters.stored.Add(uint64(stored))
	o.core.counters.duplicate.Add(uint64(duplicate))
	return true
}

// count returns how many readings are stored now, how many were before, and how many settled claims have no values.
func count(entries []storage.Entry) (stored, duplicate, empty int) {
	for i := range entries {
		switch e := &entries[i]; {
		case e.Outcome == storage.Stored, e.Outcome == storage.Completed:
			stored++
		case e.Outcome == storage.Duplicate && e.Reading.Values.IsZero():
			empty++
		case e.Outcome == storage.Duplicate:
			duplicate++
		}
	}
	return stored, duplicate, empty
}

// A Refusal is why a message is rejected as a whole: none of its readings is known to be stored.
type Refusal struct {
	Problem               *reply.Problem
	Detail, Field, Reason string        // may be empty
	RetryAfter            time.Duration // 0 means the client need not try again
	Transient             bool          // there may be room in a few seconds: see Hold
}

// Refusal returns why the message was rejected as a whole. It returns false if it was not: then
// Results has the readings.
func (o *Outcome) Refusal() (why Refusal, rejected bool) {
	return o.core.answers.refusal(o.refusal)
}

// Refused returns why a job's message was rejected as a whole, if it was, and counts nothing: for a front
// that keeps the message to deliver it again.
func (j *Job) Refused() (why Refusal, rejected bool) { return j.core.answers.refusal(&j.refusal) }

func (p *answers) refusal(r *refusal) (why Refusal, rejected bool) {
	if r.kind == 0 {
		return Refusal{}, false
	}
	return Refusal{
		Problem: p.kinds[r.kind].problem, Detail: r.detail, Field: r.field, Reason: r.reason,
		RetryAfter: p.retryAfter(r.kind, r.retryAfter), Transient: r.kind == refusedOverloaded || r.kind == refusedLimited,
	}, true
}

// A Result is what became of one reading of a message, or of a position without readings.
type Result struct {
	Index   int         // position in the message
	Device  vitals.Name // zero if it is not known
	Outcome storage.Outcome

	ReceivedUnixMs int64 // when the store says that the reading arrived, if it is storage.Stored

	// Problem is why the reading was rejected. It is nil if the reading was stored, or if it
	// was not settled because another one of its unit was rejected: Outcome is 0 then.
	Problem       *reply.Problem
	Field, Reason string
	RetryAfter    time.Duration // with some problems
}

// Results returns what became of the readings, by position, and counts them. It must be iterated once, to its
// end. The refusals of the decoder and those of the store are both in the order of the message; they are merged.
func (o *Outcome) Results() iter.Seq[Result] {
	return func(yield func(Result) bool) {
		j, refused := o.job, o.job.batch.Refused
		var wait time.Duration
		if slices.ContainsFunc(j.entries, func(e storage.Entry) bool { return e.Outcome == storage.Withheld }) {
			wait = j.auth.reportWithheld()
		}
		o.core.counters.refused[refusedInvalid].Add(uint64(len(refused) - j.uncovered))
		for i := range j.entries {
			r := o.result(i, wait)
			for ; len(refused) > 0 && refused[0].Index < r.Index; refused = refused[1:] {
				if !yield(o.rejected(&refused[0])) {
					return
				}
			}
			if !yield(r) {
				return
			}
		}
		for i := range refused {
			if !yield(o.rejected(&refused[i])) {
				return
			}
		}
	}
}

// result returns what became of an entry, and counts it. wait is the Retry-After of one that is withheld.
func (o *Outcome) result(i int, wait time.Duration) Result {
	j, c := o.job, o.core
	e := &j.entries[i]
	r := Result{Index: int(j.batch.Index[i]), Device: e.Reading.Device, Outcome: e.Outcome,
		ReceivedUnixMs: e.ReceivedUnixMs}
	switch {
	case e.Outcome == 0 && j.batch.hasUnits():
	case e.Outcome == storage.Stored, e.Outcome == storage.Completed:
		c.counters.stored.Add(1)
	case e.Outcome == storage.Duplicate:
		if !e.Reading.Values.IsZero() {
			c.counters.duplicate.Add(1)
		}
	default:
		why := entryRefusal(j, i)
		c.refused(why.kind)
		r.Problem, r.Field, r.Reason = c.answers.kinds[why.kind].problem, why.field, why.reason
		r.RetryAfter = c.answers.retryAfter(why.kind, wait)
	}
	return r
}

// rejected returns what became of a reading that was rejected before it was stored.
func (o *Outcome) rejected(why *vitals.FieldError) Result {
	k := refusedInvalid
	if why.Err == ErrNotCovered {
		k = refusedDevice
	}
	return Result{Index: why.Index, Device: o.job.origin.Device, Problem: o.core.answers.kinds[k].problem,
		Field: why.Field, Reason: why.Reason()}
}
