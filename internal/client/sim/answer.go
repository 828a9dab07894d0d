package sim

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// problemBase is what the types of all problems start with.
const problemBase = "https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#"

// A verdict is what an answer to a POST of readings means.
type verdict uint8

const (
	accepted     verdict = 1 + iota // safe, all but those listed as rejected
	refusedWhole                    // never to be sent again as it is; nothing was stored
	refusedNow                      // 503 or 429: to be sent again
	uncertain                       // to be sent again; it may be stored
	undocumented                    // none of the answers that the contract knows
)

// writeProblems are the problems that may answer a POST of readings, by type,
// with their status. TestProblems holds them to the list of package problem.
var writeProblems = []struct {
	status  int
	name    string
	verdict verdict
}{
	{http.StatusBadRequest, "malformed-body", refusedWhole},
	{http.StatusUnauthorized, "unauthorized", refusedWhole},
	{http.StatusUnauthorized, "invalid-credentials", refusedWhole},
	{http.StatusForbidden, "forbidden", refusedWhole},
	{http.StatusRequestTimeout, "timeout", uncertain},
	{http.StatusConflict, "conflict", refusedWhole},
	{http.StatusLengthRequired, "length-required", refusedWhole},
	{http.StatusRequestEntityTooLarge, "too-large", refusedWhole},
	{http.StatusUnsupportedMediaType, "unknown-encoding", refusedWhole},
	{http.StatusUnprocessableEntity, "invalid-reading", refusedWhole},
	{http.StatusTooManyRequests, "too-many-readings", refusedNow},
	{http.StatusInternalServerError, "outcome-unknown", uncertain},
	{http.StatusServiceUnavailable, "overloaded", refusedNow},
	{http.StatusServiceUnavailable, "draining", refusedNow},
	{http.StatusServiceUnavailable, "disk-low", refusedNow},
	{http.StatusServiceUnavailable, "store-failed", refusedNow},
}

// An answer is a response that was understood.
type answer struct {
	verdict           verdict
	stored, duplicate int
	rejected          []int32       // positions, rising; valid until the next judgement
	problem           string        // name of the type, "" where there is none
	retryAfter        time.Duration // of refusedNow
	fault             string        // what is wrong with an undocumented answer; names no value
}

// A judge holds answers against the contract. It is used by one goroutine at a
// time.
type judge struct {
	rejected []int32
	names    map[string]string // names of types that were seen; bounded by maxProblemNames
}

// maxProblemNames bounds how many types a server can make us remember.
const maxProblemNames = 64

func newJudge() *judge { return &judge{names: map[string]string{}} }

// judge tells what a response means to a request of n readings. single tells
// whether it was sent as a single reading. now is for a Retry-After that names a
// date.
func (j *judge) judge(r *response, single bool, n int, now time.Time) answer {
	var (
		a   answer
		err error
	)
	switch {
	case r.status == http.StatusOK && single:
		a, err = judgeSingle(r)
	case r.status == http.StatusOK || r.status == http.StatusMultiStatus && !single:
		a, err = j.judgeBatch(r, n)
	case r.status >= 400:
		a, err = j.judgeProblem(r, now)
	default:
		err = errors.New("not a status that the contract has")
	}
	if err != nil {
		return answer{verdict: undocumented, fault: fmt.Sprintf("status %d: %v", r.status, err)}
	}
	return a
}

// judgeSingle reads {"status":"stored"} and {"status":"duplicate"}.
func judgeSingle(r *response) (answer, error) {
	switch {
	case bytes.Equal(r.body, []byte(`{"status":"stored"}`)):
		return answer{verdict: accepted, stored: 1}, nil
	case bytes.Equal(r.body, []byte(`{"status":"duplicate"}`)):
		return answer{verdict: accepted, duplicate: 1}, nil
	}
	// Other spellings of the same JSON are as good.
	var body struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(r.body, &body) == nil {
		switch body.Status {
		case "stored":
			return answer{verdict: accepted, stored: 1}, nil
		case "duplicate":
			return answer{verdict: accepted, duplicate: 1}, nil
		}
	}
	return answer{}, errors.New("the body is not the answer to a single reading")
}

// judgeBatch reads {"stored":n,"duplicate":m} and the same with "rejected".
func (j *judge) judgeBatch(r *response, n int) (answer, error) {
	a := answer{verdict: accepted}
	if r.status == http.StatusOK && scanCounts(r.body, &a) {
		if a.stored+a.duplicate != n {
			return a, errors.New("the counts are not those of the batch")
		}
		return a, nil
	}
	var body struct {
		Stored    *int `json:"stored"`
		Duplicate *int `json:"duplicate"`
		Rejected  []struct {
			Index  *int    `json:"index"`
			Field  *string `json:"field"`
			Reason string  `json:"reason"`
		} `json:"rejected"`
	}
	if json.Unmarshal(r.body, &body) != nil || body.Stored == nil || body.Duplicate == nil {
		return a, errors.New("the body is not the answer to a batch")
	}
	a.stored, a.duplicate = *body.Stored, *body.Duplicate
	j.rejected = j.rejected[:0]
	last := -1
	for _, rej := range body.Rejected {
		if rej.Index == nil || rej.Field == nil || rej.Reason == "" {
			return a, errors.New("a rejected reading without index, field or reason")
		}
		if *rej.Index <= last || *rej.Index >= n {
			return a, errors.New("the rejected readings are not positions of the batch in their order")
		}
		last = *rej.Index
		j.rejected = append(j.rejected, int32(last))
	}
	a.rejected = j.rejected
	switch {
	case a.stored < 0 || a.duplicate < 0 || a.stored+a.duplicate+len(a.rejected) != n:
		return a, errors.New("the counts are not those of the batch")
	case (r.status == http.StatusMultiStatus) != (len(a.rejected) > 0):
		return a, errors.New("the status does not tell whether readings were rejected")
	}
	return a, nil
}

// scanCounts reads the usual spelling of the answer to a batch.
func scanCounts(body []byte, a *answer) bool {
	rest, ok := bytes.CutPrefix(body, []byte(`{"stored":`))
	if !ok {
		return false
	}
	first, rest, ok := bytes.Cut(rest, []byte(`,"duplicate":`))
	if !ok {
		return false
	}
	second, ok := bytes.CutSuffix(rest, []byte(`}`))
	if !ok {
		return false
	}
	stored, ok1 := decimal(first)
	duplicate, ok2 := decimal(second)
	a.stored, a.duplicate = int(stored), int(duplicate)
	return ok1 && ok2 && stored <= 1<<30 && duplicate <= 1<<30
}

// judgeProblem reads an RFC 9457 problem.
func (j *judge) judgeProblem(r *response, now time.Time) (answer, error) {
	mediaType, _, _ := bytes.Cut(r.contentType, []byte(";"))
	if !equalFold(bytes.TrimSpace(mediaType), "application/problem+json") {
		return answer{}, errors.New("not a problem document")
	}
	name, err := j.problemName(r.body)
	if err != nil {
		return answer{}, err
	}
	a := answer{problem: name}
	for _, p := range writeProblems {
		if p.name != name {
			continue
		}
		if p.status != r.status {
			return a, fmt.Errorf("type %s belongs to status %d", name, p.status)
		}
		a.verdict = p.verdict
	}
	if a.verdict == 0 {
		return a, fmt.Errorf("type %s is no answer to readings", name)
	}
	if a.verdict == refusedNow {
		wait, ok := parseRetryAfter(r.retryAfter, now)
		if !ok {
			return a, errors.New("no Retry-After")
		}
		a.retryAfter = wait
	}
	return a, nil
}

// problemName returns the name in a problem's type.
func (j *judge) problemName(body []byte) (string, error) {
	var doc struct {
		Type string         `json:"type"`
		Rest jsontext.Value `json:",unknown"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return "", errors.New("the problem document is not JSON")
	}
	name, ok := strings.CutPrefix(doc.Type, problemBase)
	if !ok || name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", errors.New("the problem's type is none of Pulsegate's")
	}
	if known, ok := j.names[name]; ok {
		return known, nil
	}
	if len(j.names) == maxProblemNames {
		return "", errors.New("too many types of problems")
	}
	j.names[name] = name
	return name, nil
}

// parseRetryAfter returns the wait that a Retry-After asks for: seconds or a
// date (RFC 9110, section 10.2.3).
func parseRetryAfter(value []byte, now time.Time) (time.Duration, bool) {
	if seconds, ok := decimal(value); ok {
		return time.Duration(min(seconds, 1<<31)) * time.Second, true
	}
	at, err := http.ParseTime(string(value))
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}
