package ingest

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Form is another form of a request's readings, and perhaps of the answers, than that of
// POST /v1/readings. Whatever the form, bodies are read, readings admitted and groups committed
// in the same way.
type Form struct {
	// Begin returns the Session of a request.
	Begin func(r *http.Request) Session

	// Refused returns the header and the body of the answer to a request that is rejected as
	// a whole. The status must be that of the problem. Nil: a problem document.
	Refused func(Refusal) (*reply.Head, []byte)
}

// A Session is one request. Only one goroutine at a time uses it.
type Session interface {
	// Decode decodes the decompressed body into in.Batch, as vitals.Decoder does. It must
	// validate the readings, and not retain the body. The error is one of that method, or of
	// Malformed, Invalid or TooLarge.
	Decode(body []byte, in *Intake) error
}

// A Settler is a Session with answers of its own.
type Settler interface {
	// Settled returns the answer to a request that was not rejected as a whole.
	Settled(results iter.Seq[Result]) Reply
}

// A Reply is an answer of a [Settler].
type Reply struct {
	Head       *reply.Head
	Body       []byte
	Location   string        // header field; "": none
	RetryAfter time.Duration // 0: none
}

// An Intake is what a [Session] decodes to.
type Intake struct {
	NowUnixMs   int64 // the server's clock
	Rules       *vitals.Validator
	MaxReadings int // in a body
	MaxUnit     int // readings of a unit

	// Batch gets the readings with their positions. Readings with the same position, which
	// must be adjacent, are a unit: all of them are stored, or none. Positions must not
	// descend. A position may have several readings or be in Refused, but not both.
	Batch *vitals.Batch

	// Covers reports whether the client may write readings of a device; nil: of all devices.
	// Readings that it may not write are refused after Decode. A Session that reads more about
	// devices than their readings must ask first, and may refuse with [ErrNotCovered].
	Covers func(device *vitals.Name) bool

	// Whole makes all readings of the body one unit, which a rejected position prevents.
	Whole bool
}

// A Refusal is the reason for which a request is rejected as a whole.
type Refusal struct {
	Problem               *reply.Problem
	Detail, Field, Reason string // may be empty
}

// Malformed returns an error of [Session.Decode] for a body that is JSON but not of the form.
func Malformed(detail string) error { return &refusal{kind: refusedMalformed, detail: detail} }

// Invalid returns an error of [Session.Decode] for a body whose field breaks a rule.
func Invalid(field, reason string) error {
	return &refusal{kind: refusedInvalid, field: field, reason: reason}
}

// TooLarge returns an error of [Session.Decode] for a body that exceeds a bound.
func TooLarge(detail string) error { return &refusal{kind: refusedTooLarge, detail: detail} }

// Unavailable returns an error of [Session.Decode] for a store that cannot be read.
func Unavailable() error { return &refusal{kind: refusedStoreFailed} }

// A Result is what became of one reading of a request, or of a position without readings.
type Result struct {
	Index   int // position in the body
	Outcome storage.Outcome

	// Problem is why the reading was rejected. It is nil if the reading was stored, or if it
	// was not settled because another one of its unit was rejected: Outcome is 0 then.
	Problem       *reply.Problem
	Field, Reason string
	RetryAfter    time.Duration // with some problems
}

// HandlerOf returns a handler like [Core.Handler] for another form.
func (c *Core) HandlerOf(form Form) http.Handler {
	return &handler{core: c, bodies: bodyReader{core: c}, form: form}
}

// OverloadedOf returns a handler like [Core.Overloaded] for another form.
func (c *Core) OverloadedOf(form Form) http.Handler {
	h := &handler{core: c, form: form}
	return http.HandlerFunc(h.overloaded)
}

// decodeBody decodes the body in the job's form.
func (j *Job) decodeBody(body []byte, nowUnixMs int64) error {
	if j.session == nil {
		return j.decoder.Decode(body, nowUnixMs, &j.batch)
	}
	c := j.core
	in := Intake{NowUnixMs: nowUnixMs, Rules: c.rules, MaxReadings: c.cfg.MaxReadings, MaxUnit: c.cfg.MaxGroup, Batch: &j.batch}
	if c.cfg.Gate != nil {
		in.Covers = j.permitted.access.Covers
	}
	j.batch.Reset()
	j.batch.Shape = vitals.Array
	err := j.session.Decode(body, &in)
	j.whole = in.Whole
	return err
}

// keepUnits drops the readings of units of which a reading was rejected. It reports false if
// a unit is too large to be stored at once.
func (j *Job) keepUnits() bool {
	b := &j.batch
	if j.whole {
		if len(b.Refused) > 0 {
			b.Readings, b.Index = b.Readings[:0], b.Index[:0]
		}
		if len(b.Readings) > j.core.cfg.MaxGroup {
			j.refusal = refusal{kind: refusedTooLarge, detail: fmt.Sprintf("%d readings at most are stored all or not at all.", j.core.cfg.MaxGroup)}
			return false
		}
		return true
	}
	refused, kept := b.Refused, 0
	for i := range b.Readings {
		index := b.Index[i]
		for len(refused) > 0 && refused[0].Index < int(index) {
			refused = refused[1:]
		}
		if len(refused) > 0 && refused[0].Index == int(index) {
			continue
		}
		if kept < i {
			b.Readings[kept], b.Index[kept] = b.Readings[i], index
		}
		kept++
	}
	b.Readings, b.Index = b.Readings[:kept], b.Index[:kept]
	return true
}

// unitAt returns the number of readings of the unit that begins at entry i.
func (j *Job) unitAt(i int) int {
	switch {
	case j.session == nil:
		return 1
	case j.whole:
		return len(j.entries) - i
	}
	n := 1
	for i+n < len(j.entries) && j.batch.Index[i+n] == j.batch.Index[i] {
		n++
	}
	return n
}

// groupAt returns the number of entries from i that are committed together: as many as one group
// takes, but whole units.
func (j *Job) groupAt(i int) int {
	most := min(len(j.entries)-i, j.core.cfg.MaxGroup)
	if j.session == nil {
		return most
	}
	n := 0
	for n < most {
		unit := j.unitAt(i + n)
		if n > 0 && n+unit > most {
			break
		}
		n += unit
	}
	return n
}

// settle returns the answer of a session that was not rejected as a whole.
func (j *Job) settle(s Settler) Answer {
	j.reportUncovered()
	answer := s.Settled(j.results())
	return Answer{head: answer.Head, body: answer.Body, location: answer.Location, retryAfter: answer.RetryAfter}
}

// results returns what became of the readings, by position, and counts them. It may be
// iterated only once.
func (j *Job) results() iter.Seq[Result] {
	return func(yield func(Result) bool) {
		c, withheld := j.core, false
		refused := j.batch.Refused
		c.counters.refused[refusedInvalid].Add(uint64(len(refused) - j.uncovered))
		all := make([]Result, 0, len(j.entries)+len(refused))
		for i := range j.entries {
			e := &j.entries[i]
			r := Result{Index: int(j.batch.Index[i]), Outcome: e.Outcome}
			switch e.Outcome {
			case 0:
			case storage.Stored, storage.Completed:
				c.counters.stored.Add(1)
			case storage.Duplicate:
				c.counters.duplicate.Add(1)
			default:
				var k kind
				k, r.Field, r.Reason = entryRefusal(e)
				c.counters.refused[k].Add(1)
				r.Problem = c.answers.kinds[k].problem
				r.RetryAfter = c.retryAfter(k, 0)
				withheld = withheld || k == refusedWithheld
			}
			all = append(all, r)
		}
		if withheld {
			wait := j.reportWithheld()
			for i := range all {
				if all[i].Outcome == storage.Withheld {
					all[i].RetryAfter = c.retryAfter(refusedWithheld, wait)
				}
			}
		}
		for i := range refused {
			k := refusedInvalid
			if refused[i].Err == ErrNotCovered {
				k = refusedDevice
			}
			all = append(all, Result{Index: refused[i].Index, Problem: c.answers.kinds[k].problem, Field: refused[i].Field, Reason: refused[i].Reason()})
		}
		slices.SortStableFunc(all, func(a, b Result) int { return a.Index - b.Index })
		for _, r := range all {
			if !yield(r) {
				return
			}
		}
	}
}

// restyle gives the answer to a request that is rejected as a whole the form of h.
func (h *handler) restyle(a Answer, why *refusal) Answer {
	if h.form.Refused != nil {
		p := h.core.answers.kinds[why.kind].problem
		a.head, a.body = h.form.Refused(Refusal{Problem: p, Detail: why.detail, Field: why.field, Reason: why.reason})
	}
	return a
}

// answer returns the answer to a job.
func (h *handler) answer(j *Job) Answer {
	if j.refusal.kind != 0 {
		return h.restyle(j.Answer(), &j.refusal)
	}
	if s, ok := j.session.(Settler); ok {
		return j.settle(s)
	}
	return j.Answer()
}
