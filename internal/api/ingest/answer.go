package ingest

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A kind tells why a request is refused whole.
type kind uint8

// The kinds. The zero kind means that the request is not refused.
const (
	refusedMalformed kind = 1 + iota
	refusedTimeout
	refusedUnauthorized // no credentials
	refusedCredentials  // not valid ones
	refusedForbidden    // valid ones, for something else
	refusedDevice       // a reading of a device that they are not for
	refusedLimited
	refusedNoLength
	refusedTooLarge
	refusedEncoding
	refusedConflict
	refusedInvalid
	refusedUnknown
	refusedOverloaded
	refusedDraining
	refusedDiskLow
	refusedStoreFailed
	numKinds
)

// A refusal is a kind and what is said beside it.
type refusal struct {
	kind          kind
	detail        string
	field, reason string
	retryAfter    time.Duration // of refusedLimited
}

// answers holds everything that can be prepared.
type answers struct {
	stored, duplicate *reply.Answer
	batch, mixed      *reply.Head // 200 and 207

	problems [numKinds]*reply.Problem
	plain    [numKinds]*reply.Answer // without detail, field and reason
}

// retry are the refusals after which a client may try again as it is, with the
// shortest and the longest wait, in seconds. Clients that were refused at one moment
// must not come back at one: each is told a number between the two.
var retry = [numKinds]struct{ least, most int }{
	refusedOverloaded:  {1, 5},
	refusedDraining:    {2, 6},
	refusedDiskLow:     {30, 90},
	refusedStoreFailed: {5, 15},
}

// maxRetryAfter is the longest wait that a client is asked for.
const maxRetryAfter = time.Hour

func newAnswers(set *problem.Set) *answers {
	a := &answers{
		stored:    reply.New(http.StatusOK, "application/json", []byte(`{"status":"stored"}`), reply.NoStore()),
		duplicate: reply.New(http.StatusOK, "application/json", []byte(`{"status":"duplicate"}`), reply.NoStore()),
		batch:     reply.NewHead(http.StatusOK, "application/json", reply.NoStore()),
		mixed:     reply.NewHead(http.StatusMultiStatus, "application/json", reply.NoStore()),
		problems: [numKinds]*reply.Problem{
			refusedMalformed:    set.Malformed,
			refusedTimeout:      set.Timeout,
			refusedUnauthorized: set.Unauthorized,
			refusedCredentials:  set.InvalidCredentials,
			refusedForbidden:    set.Forbidden,
			refusedDevice:       set.Forbidden,
			refusedLimited:      set.TooManyReadings,
			refusedNoLength:     set.LengthRequired,
			refusedTooLarge:     set.TooLarge,
			refusedEncoding:     set.UnknownEncoding,
			refusedConflict:     set.Conflict,
			refusedInvalid:      set.Invalid,
			refusedUnknown:      set.OutcomeUnknown,
			refusedOverloaded:   set.Overloaded,
			refusedDraining:     set.Draining,
			refusedDiskLow:      set.DiskLow,
			refusedStoreFailed:  set.StoreFailed,
		},
	}
	for k, p := range a.problems {
		if p != nil {
			a.plain[k] = p.Answer("", nil)
		}
	}
	return a
}

// An Answer is what a client is told. It is valid until its Job is released.
type Answer struct {
	fixed      *reply.Answer // where nothing varies
	head       *reply.Head   // with body
	body       []byte
	problem    *reply.Problem // with what stands in refusal
	refusal    refusal
	retryAfter time.Duration // 0: none
}

// Status returns the HTTP status.
func (a *Answer) Status() int {
	switch {
	case a.fixed != nil:
		return a.fixed.Status()
	case a.head != nil:
		return a.head.Status()
	}
	return a.problem.Status()
}

// Write sends the answer through net/http. After an error, which means that the
// client has gone, net/http may still be reading the answer's text.
func (a *Answer) Write(w http.ResponseWriter, r *http.Request) error {
	switch {
	case a.fixed != nil && a.retryAfter > 0:
		a.fixed.WriteRetryAfter(w, r, a.retryAfter)
	case a.fixed != nil:
		a.fixed.ServeHTTP(w, r)
	case a.head != nil:
		return a.head.Write(w, r, a.body)
	case a.retryAfter > 0:
		a.problem.WriteRetryAfter(w, r, a.retryAfter, a.refusal.detail)
	case a.refusal.field != "":
		a.problem.Write(w, r, a.refusal.detail, reply.String("field", a.refusal.field), reply.String("reason", a.refusal.reason))
	case a.refusal.reason != "":
		a.problem.Write(w, r, a.refusal.detail, reply.String("reason", a.refusal.reason))
	default:
		a.problem.Write(w, r, a.refusal.detail)
	}
	return nil
}

// appendHTTP1 appends the answer as an HTTP/1.1 message. m says what is not the
// answer's own.
func (a *Answer) appendHTTP1(dst []byte, m reply.HTTP1) []byte {
	m.RetryAfter = a.retryAfter
	switch {
	case a.fixed != nil:
		return a.fixed.AppendHTTP1(dst, m)
	case a.head != nil:
		return a.head.AppendHTTP1(dst, m, a.body)
	case a.refusal.field != "":
		return a.problem.AppendHTTP1(dst, m, a.refusal.detail, reply.String("field", a.refusal.field), reply.String("reason", a.refusal.reason))
	case a.refusal.reason != "":
		return a.problem.AppendHTTP1(dst, m, a.refusal.detail, reply.String("reason", a.refusal.reason))
	}
	return a.problem.AppendHTTP1(dst, m, a.refusal.detail)
}

// answerTo returns the answer for a request that is refused whole.
func (c *Core) answerTo(r refusal) Answer {
	a := Answer{refusal: r}
	if r.detail == "" && r.reason == "" {
		a.fixed = c.answers.plain[r.kind]
	} else {
		a.problem = c.answers.problems[r.kind]
	}
	switch wait := retry[r.kind]; {
	case wait.least > 0:
		a.retryAfter = time.Duration(wait.least+rand.IntN(wait.most-wait.least+1)) * time.Second
	case r.kind == refusedLimited:
		a.retryAfter = min(r.retryAfter+rand.N(r.retryAfter/4+time.Second), maxRetryAfter)
	}
	return a
}

// Answer returns what the client is told. It is called once, after Decode
// returned false or after Commit.
func (j *Job) Answer() Answer {
	c := j.core
	j.noteUncovered()
	if j.refusal.kind != 0 {
		if j.refusal.kind != refusedDevice { // which are counted by reading
			c.counters.refused[j.refusal.kind].Add(1)
		}
		return c.answerTo(j.refusal)
	}
	if j.batch.Shape != vitals.Single {
		return j.batchAnswer()
	}
	switch e := &j.entries[0]; e.Outcome {
	case storage.Stored, storage.Completed:
		c.counters.stored.Add(1)
		return Answer{fixed: c.answers.stored}
	case storage.Duplicate:
		c.counters.duplicate.Add(1)
		return Answer{fixed: c.answers.duplicate}
	default:
		k, field, reason := entryRefusal(e)
		c.counters.refused[k].Add(1)
		return c.answerTo(refusal{kind: k, field: field, reason: reason})
	}
}

// entryRefusal says why the store did not take a reading.
func entryRefusal(e *storage.Entry) (k kind, field, reason string) {
	switch e.Outcome {
	case storage.Conflict:
		return refusedConflict, e.Sign.Field(), "contradicts the stored value"
	case storage.TooManyDevices:
		return refusedInvalid, "device", "the store holds as many devices as it may"
	}
	// Promise: no answer but these two is made from an outcome that the store
	// did not set.
	panic("ingest: the store left an entry without an outcome")
}

// batchAnswer returns the answer to an array or to NDJSON: 200 with the counts,
// or 207 with the refused readings as well.
//
// The refusals of the decoder and those of the store both come in the order of
// the body; they are merged.
func (j *Job) batchAnswer() Answer {
	c := j.core
	stored, duplicate, conflicts := 0, 0, 0
	for i := range j.entries {
		switch j.entries[i].Outcome {
		case storage.Stored, storage.Completed:
			stored++
		case storage.Duplicate:
			duplicate++
		default:
			conflicts++
		}
	}
	c.counters.stored.Add(uint64(stored))
	c.counters.duplicate.Add(uint64(duplicate))
	out := append(j.out[:0], `{"stored":`...)
	out = strconv.AppendInt(out, int64(stored), 10)
	out = append(out, `,"duplicate":`...)
	out = strconv.AppendInt(out, int64(duplicate), 10)
	if conflicts+len(j.batch.Refused) == 0 {
		j.out = append(out, '}')
		return Answer{head: c.answers.batch, body: j.out}
	}
	out = append(out, `,"rejected":[`...)
	n, refused := len(out), j.batch.Refused
	for i := range j.entries {
		e := &j.entries[i]
		if e.Outcome <= storage.Duplicate && e.Outcome != 0 {
			continue
		}
		index := int(j.batch.Index[i])
		for len(refused) > 0 && refused[0].Index < index {
			out = appendRejected(out, refused[0].Index, refused[0].Field, refused[0].Reason(), len(out) == n)
			refused = refused[1:]
		}
		k, field, reason := entryRefusal(e)
		c.counters.refused[k].Add(1)
		out = appendRejected(out, index, field, reason, len(out) == n)
	}
	for i := range refused {
		out = appendRejected(out, refused[i].Index, refused[i].Field, refused[i].Reason(), len(out) == n)
	}
	c.counters.refused[refusedInvalid].Add(uint64(len(j.batch.Refused) - j.uncovered))
	j.out = append(out, "]}"...)
	return Answer{head: c.answers.mixed, body: j.out}
}

// appendRejected appends one element of the list. Package vitals promises that
// neither field nor reason holds what JSON escapes.
func appendRejected(dst []byte, index int, field, reason string, first bool) []byte {
	if !first {
		dst = append(dst, ',')
	}
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	dst = append(append(dst, `,"field":"`...), field...)
	dst = append(append(dst, `","reason":"`...), reason...)
	return append(dst, `"}`...)
}
