package ingest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A kind is the reason for which a request is rejected as a whole.
type kind uint8

// The kinds. The zero kind means that the request is not rejected.
const (
	refusedMalformed kind = 1 + iota
	refusedTimeout
	refusedUnauthorized // no credentials
	refusedCredentials  // invalid credentials
	refusedForbidden    // valid credentials without the right
	refusedDevice       // a device that the credentials do not cover
	refusedKeyUnknown   // credentials that cannot be checked yet
	refusedUndecided    // credentials that are being checked; the front for HTTP waits
	refusedLimited
	refusedNoLength
	refusedTooLarge
	refusedEncoding
	refusedConflict
	refusedWithheld // not compared with another gateway's record
	refusedInvalid
	refusedUnknown
	refusedOverloaded
	refusedDraining
	refusedDiskLow
	refusedStoreFailed
	refusedUnreadable
	refusedUnavailable // readings of its time cannot be stored now
	refusedUnrecorded  // an assignment cannot be recorded now
	refusedFull        // a new device, or gateway, beyond what the store may hold
	numKinds
)

// A refusal is a kind with details for the client. It is also the error of a body that cannot
// be read.
type refusal struct {
	kind          kind
	detail        string
	field, reason string
	retryAfter    time.Duration // of refusedLimited and refusedWithheld
	misnamed      bool          // another gateway is named
}

func (r *refusal) Error() string { return r.detail }

// A kindInfo holds what all refusals of a kind have in common.
type kindInfo struct {
	problem *reply.Problem

	// The label under which it is counted: readings by outcome, or requests by reason. A
	// kind without either is counted with another kind.
	outcome, reason string

	// least and most bound the Retry-After, in seconds, of refusals after which a client may
	// send the same request again. Each client gets a random number between the two, so that
	// clients that were rejected together do not retry together.
	least, most int

	plain []byte // the problem without detail, field and reason
}

// maxJitter bounds the random time that is added to the Retry-After of a rate limit.
const maxJitter = 5 * time.Minute

// answers holds the prepared parts of answers.
type answers struct {
	whole, mixed *reply.Head // 200 and 207
	kinds        [numKinds]kindInfo
	signs        *vitals.Signs

	tooLargeSingle, tooMany string   // details with a limit
	errTooLarge             *refusal // of a batch's body
}

// The bodies of the usual answers. They must not be modified.
var (
	storedBody    = []byte(`{"status":"stored"}` + "\n")
	duplicateBody = []byte(`{"status":"duplicate"}` + "\n")
	leftOutBody   = []byte(`{"status":"left_out"}` + "\n")
)

func newAnswers(set *problem.Set, cfg *Config) *answers {
	a := &answers{
		signs:          cfg.Limits.Signs,
		tooLargeSingle: fmt.Sprintf("A reading may have %d bytes.", cfg.MaxSingleBytes),
		tooMany:        fmt.Sprintf("A batch may have %d readings.", cfg.MaxReadings),
		errTooLarge: &refusal{
			kind:   refusedTooLarge,
			detail: fmt.Sprintf("A batch may have %d bytes, decompressed.", cfg.MaxBatchBytes),
		},
		whole: reply.NewHead(http.StatusOK, "application/json", reply.NoStore()),
		mixed: reply.NewHead(http.StatusMultiStatus, "application/json", reply.NoStore()),
		kinds: [numKinds]kindInfo{
			refusedMalformed:    {problem: set.Malformed, reason: "malformed"},
			refusedTimeout:      {problem: set.Timeout, reason: "timeout"},
			refusedUnauthorized: {problem: set.Unauthorized, reason: "unauthorized"},
			refusedCredentials:  {problem: set.InvalidCredentials}, // unauthorized
			refusedForbidden:    {problem: set.Forbidden, reason: "no_right"},
			refusedDevice:       {problem: set.Forbidden, outcome: "forbidden"},
			refusedKeyUnknown:   {problem: set.KeysUnknown, reason: "keys_unknown", least: 1, most: 3},
			refusedLimited:      {problem: set.TooManyReadings, reason: "too_many_readings"},
			refusedNoLength:     {problem: set.LengthRequired, reason: "no_length"},
			refusedTooLarge:     {problem: set.TooLarge, reason: "too_large"},
			refusedEncoding:     {problem: set.UnknownEncoding, reason: "unknown_encoding"},
			refusedConflict:     {problem: set.Conflict, outcome: "conflict"},
			refusedWithheld:     {problem: set.TooManyContradictions, outcome: "withheld"},
			refusedInvalid:      {problem: set.Invalid, outcome: "invalid"},
			refusedUnknown:      {problem: set.OutcomeUnknown, reason: "outcome_unknown"},
			refusedOverloaded:   {problem: set.Overloaded, reason: "overloaded", least: 1, most: 5},
			refusedDraining:     {problem: set.Draining, reason: "draining", least: 2, most: 6},
			refusedDiskLow:      {problem: set.DiskLow, reason: "disk_low", least: 30, most: 90},
			refusedUnreadable:   {problem: set.StoreDamaged, outcome: "unreadable", least: 60, most: 180},
			refusedFull:         {problem: set.TooManyDevices, outcome: "too_many_devices", least: 60, most: 180},
			refusedStoreFailed:  {problem: set.StoreFailed, reason: "store_failed", least: 5, most: 15},
			refusedUnavailable:  {problem: set.StoreFailed, outcome: "unavailable", least: 5, most: 15},
			refusedUnrecorded:   {problem: set.StoreFailed, outcome: "unrecorded", least: 60, most: 180},
		},
	}
	for k := range a.kinds {
		if info := &a.kinds[k]; info.problem != nil {
			info.plain = reply.AppendProblem(nil, info.problem, "")
		}
	}
	return a
}

// RetryAfterSeconds returns the least and the greatest Retry-After of a problem; 0 and 0 if
// it depends on the client, or if there is none.
func RetryAfterSeconds(set *problem.Set, p *reply.Problem) (least, most int) {
	kinds := &newAnswers(set, new(Config)).kinds
	for k := range kinds {
		if kinds[k].problem == p {
			return kinds[k].least, kinds[k].most
		}
	}
	return 0, 0
}

// An Answer is the response to a request. It is valid until its Job is released.
type Answer struct {
	Head       *reply.Head
	Body       []byte
	Location   string        // header field; may be empty
	RetryAfter time.Duration // 0 if there is no such field
}

// Status returns the HTTP status.
func (a *Answer) Status() int { return a.Head.Status() }

// Write sends the answer through net/http. After an error, which means that the client has
// disconnected, net/http may still be reading the answer's text.
func (a *Answer) Write(w http.ResponseWriter, r *http.Request) error {
	if a.Location != "" {
		w.Header().Set("Location", a.Location)
	}
	if a.RetryAfter > 0 {
		return a.Head.WriteRetryAfter(w, r, a.RetryAfter, a.Body)
	}
	return a.Head.Write(w, r, a.Body)
}

// to returns the answer to a request that is rejected as a whole. Details are written
// to text; the answer is valid until text is modified.
func (p *answers) to(r *refusal, text *[]byte) Answer {
	in := &p.kinds[r.kind]
	a := Answer{Head: in.problem.Head(), Body: in.plain}
	if r.detail != "" || r.reason != "" {
		switch dst := (*text)[:0]; {
		case r.field != "":
			*text = reply.AppendProblem(dst, in.problem, r.detail, reply.String("field", r.field),
				reply.String("reason", r.reason))
		case r.reason != "":
			*text = reply.AppendProblem(dst, in.problem, r.detail, reply.String("reason", r.reason))
		default:
			*text = reply.AppendProblem(dst, in.problem, r.detail)
		}
		a.Body = *text
	}
	a.RetryAfter = p.retryAfter(r.kind, r.retryAfter)
	return a
}

// retryAfter returns the Retry-After of a refusal, or 0. wait is how long to wait at least, if
// that depends on the client.
func (p *answers) retryAfter(k kind, wait time.Duration) time.Duration {
	in := &p.kinds[k]
	switch {
	case in.least > 0:
		return time.Duration(in.least+rand.IntN(in.most-in.least+1)) * time.Second
	case k == refusedLimited, k == refusedWithheld:
		return wait + rand.N(min(wait/4, maxJitter)+time.Second)
	}
	return 0
}

// refusalOf returns the refusal for an error of the decoder.
func (p *answers) refusalOf(err error) refusal {
	if own, ok := errors.AsType[*refusal](err); ok {
		return *own
	}
	if syntax, ok := errors.AsType[*vitals.SyntaxError](err); ok {
		return refusal{kind: refusedMalformed, detail: fmt.Sprintf("byte %d: %s", syntax.Offset, syntax.Reason)}
	}
	if errors.Is(err, vitals.ErrTooManyReadings) {
		return refusal{kind: refusedTooLarge, detail: p.tooMany}
	}
	if errors.Is(err, vitals.ErrReadingTooLong) {
		return refusal{kind: refusedTooLarge, detail: p.tooLargeSingle}
	}
	panic("ingest: the decoder returned an error that it does not document: " + err.Error())
}

// Answer returns the response of POST /v1/readings, or of the job's [Responder]. It must be called
// once, after Decode returned false or after Commit.
func (j *Job) Answer() Answer {
	c, o := j.core, j.Outcome()
	if r, ok := j.input.(Responder); ok {
		return r.Respond(o)
	}
	switch {
	case j.refusal.kind != 0:
		return c.answers.to(&j.refusal, &j.out)
	case j.batch.Shape != vitals.Single:
		return j.batchAnswer(o)
	case !o.AllStored():
		why := entryRefusal(j, 0)
		if why.kind == refusedWithheld { // the withholding ends
			why = refusal{kind: refusedWithheld, retryAfter: j.auth.reportWithheld()}
		}
		c.refused(why.kind)
		return c.answers.to(&why, &j.out)
	case len(j.entries) == 0:
		return Answer{Head: c.answers.whole, Body: leftOutBody}
	case j.entries[0].Outcome == storage.Duplicate && !relaysBlindly(j):
		return Answer{Head: c.answers.whole, Body: duplicateBody}
	}
	return Answer{Head: c.answers.whole, Body: storedBody}
}

// refused counts a reading that the store did not accept.
func (c *Core) refused(k kind) {
	c.counters.refused[k].Add(1)
	if k == refusedFull && c.cfg.OnFull != nil {
		c.cfg.OnFull()
	}
}

// entryRefusal returns the refusal of an entry that the store did not accept.
func entryRefusal(j *Job, i int) refusal {
	why := j.core.answers.entryRefusal(&j.entries[i])
	if why.kind == refusedConflict && relaysBlindly(j) {
		why.field = "time" // not the sign
	}
	return why
}

// entryRefusal returns the refusal of a reading that the store did not accept.
func (p *answers) entryRefusal(e *storage.Entry) refusal {
	switch e.Outcome {
	case storage.Conflict:
		return refusal{kind: refusedConflict, field: p.signs.Field(e.Sign), reason: "contradicts the stored value"}
	case storage.AwkwardName:
		return refusal{kind: refusedInvalid, field: "device",
			reason: "a new device may be named neither . nor .., nor begin with -"}
	case storage.TooManyDevices:
		return refusal{kind: refusedFull, field: "device",
			reason: "the store has its maximum number of devices or gateways; send it again later"}
	case storage.Withheld:
		return refusal{kind: refusedWithheld, field: "gateway",
			reason: "not compared, because too many readings contradicted those of other gateways; send it again later"}
	case storage.Unreadable:
		return refusal{kind: refusedUnreadable, field: "time",
			reason: "the stored reading of this time cannot be read; send this one again after the store is repaired"}
	case storage.Unavailable:
		return refusal{kind: refusedUnavailable, field: "time",
			reason: "readings of this time cannot be stored now; send this one again later"}
	case storage.OtherSubject:
		return refusal{kind: refusedInvalid, field: "subject",
			reason: "not the patient to whom the device was assigned at that time"}
	case storage.TooManyAssignments:
		return refusal{kind: refusedInvalid, field: "subject", reason: "the device has as many assignments as it may have"}
	case storage.Unrecorded:
		return refusal{kind: refusedUnrecorded, field: "subject",
			reason: "the change of an assignment cannot be recorded now; send it again later"}
	}
	// Promise: every answer is made from an outcome that the store has set.
	panic("ingest: the store left an entry without an outcome")
}

// batchAnswer returns the answer to an array or to NDJSON: 200 with the counts, or 207 with
// the rejected readings too.
func (j *Job) batchAnswer(o *Outcome) Answer {
	stored, duplicate, _ := count(j.entries)
	if relaysBlindly(j) {
		stored, duplicate = stored+duplicate, 0
	}
	out := strconv.AppendInt(append(j.out[:0], `{"stored":`...), int64(stored), 10)
	out = strconv.AppendInt(append(out, `,"duplicate":`...), int64(duplicate), 10)
	leftOut, last := 0, -1
	for _, l := range j.batch.intake.LeftOut {
		if l.Index != last {
			leftOut, last = leftOut+1, l.Index
		}
	}
	if n := leftOut; n > 0 {
		out = strconv.AppendInt(append(out, `,"left_out":`...), int64(n), 10)
	}
	if o.AllStored() {
		j.out = append(out, "}\n"...)
		return Answer{Head: j.core.answers.whole, Body: j.out}
	}
	out = append(out, `,"rejected":[`...)
	n := len(out)
	for r := range o.Results() {
		if r.Problem != nil {
			out = appendRejected(out, r.Index, r.Field, r.Reason, len(out) == n)
		}
	}
	j.out = append(out, "]}\n"...)
	return Answer{Head: j.core.answers.mixed, Body: j.out}
}

// appendRejected appends one element of the list of rejected readings. Package vitals
// guarantees that field and reason contain no characters that JSON escapes.
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
