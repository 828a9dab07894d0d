package sim

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/reply"
)

// A verdict classifies an answer to a POST of readings.
type verdict uint8

const (
	accepted     verdict = 1 + iota // stored, except those listed as rejected
	refusedWhole                    // must not be retried unchanged; nothing was stored
	refusedNow                      // 503 or 429: to be retried; nothing was stored
	uncertain                       // to be retried; it may be stored
	undocumented                    // not an answer of the contract
	unconfirmed                     // MQTT with QoS 0: sent, and never answered
)

// An answer is a parsed response.
type answer struct {
	verdict           verdict
	status            int
	stored, duplicate int
	rejected          []int         // positions in ascending order
	part              bool          // with refusedWhole: some readings may be stored nevertheless
	problem           string        // name of the problem type; "" if there is none
	retryAfter        time.Duration // with refusedNow
	fault             string        // what is wrong with an undocumented answer; contains no values
}

// A judge checks answers against the contract. It is safe for concurrent use.
type judge struct {
	problems map[string]int // status by type
	influx   bool           // the requests are of InfluxDB's API
	mllp     bool           // the requests are messages of HL7 v2
}

// newJudge returns a judge for answers to a POST of readings. It accepts all problems of
// package problem, except those that only a GET, a wrong URL or the admin listener can
// cause.
func newJudge(opt *Options) *judge {
	s := problem.New()
	j := &judge{problems: map[string]int{}, influx: opt.Influx, mllp: opt.MLLP != nil}
	for _, p := range []*reply.Problem{
		s.Malformed, s.Timeout, s.LengthRequired, s.TooLarge, s.UnknownEncoding,
		s.Unauthorized, s.InvalidCredentials, s.Forbidden, s.UntrustedOrigin, s.TooManyReadings, s.TooManyContradictions,
		s.Conflict, s.Invalid,
		s.OutcomeUnknown, s.Overloaded, s.Draining, s.DiskLow, s.StoreDamaged, s.TooManyDevices, s.StoreFailed, s.KeysUnknown,
	} {
		j.problems[p.Type()] = p.Status()
	}
	return j
}

// judge classifies the response to the request of c. now is needed for a Retry-After with a date.
func (j *judge) judge(r *response, c *connection, now time.Time) answer {
	var (
		a   answer
		err error
	)
	n, single := len(c.request.samples), c.request.kind != batchRequest
	switch {
	case j.mllp:
		return judgeAck(r.body, c.number, n)
	case j.influx:
		a, err = judgeLines(r, n, now)
	case r.status == http.StatusOK && single:
		a, err = judgeSingle(r.body)
	case r.status == http.StatusOK || r.status == http.StatusMultiStatus && !single:
		a, err = judgeBatch(r, n)
	case r.status >= 400:
		a, err = j.judgeProblem(r, now)
	default:
		err = errors.New("not a status of the contract")
	}
	if err != nil {
		a = answer{verdict: undocumented, fault: fmt.Sprintf("status %d: %v", r.status, err)}
	}
	a.status = r.status
	return a
}

// judgeLines parses an answer of InfluxDB's API. After 400, some of the readings are stored.
func judgeLines(r *response, n int, now time.Time) (answer, error) {
	if r.status == http.StatusNoContent {
		return answer{verdict: accepted, stored: n}, nil
	}
	var doc struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	codes := []string{"invalid", "unauthorized", "forbidden", "request too large", "too many requests", "internal error",
		"unavailable"}
	if r.status < 400 || json.Unmarshal(r.body, &doc) != nil || doc.Message == "" || !slices.Contains(codes, doc.Code) {
		return answer{}, errors.New("not an answer of InfluxDB's API")
	}
	a := answer{verdict: refusedWhole, part: true, problem: doc.Code}
	if !a.retry(r, now) {
		a.verdict = uncertain // the request arrived too slowly
	}
	return a, nil
}

// retry sets the verdict if a status means that the request is to be retried. It returns false if that lacks a
// Retry-After.
func (a *answer) retry(r *response, now time.Time) (ok bool) {
	switch r.status {
	case http.StatusRequestTimeout, http.StatusInternalServerError:
		a.verdict = uncertain
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		a.verdict = refusedNow
		a.retryAfter, ok = parseRetryAfter(r.retryAfter, now)
		return ok
	}
	return true
}

// judgeSingle parses {"status":"stored"} and {"status":"duplicate"}.
func judgeSingle(body []byte) (answer, error) {
	if string(body) == `{"status":"stored"}`+"\n" { // fast path for the usual spelling
		return answer{verdict: accepted, stored: 1}, nil
	}
	var doc struct {
		Status string `json:"status"`
	}
	switch err := json.Unmarshal(body, &doc); {
	case err == nil && doc.Status == "stored":
		return answer{verdict: accepted, stored: 1}, nil
	case err == nil && doc.Status == "duplicate":
		return answer{verdict: accepted, duplicate: 1}, nil
	}
	return answer{}, errors.New("the body is not the answer to a single reading")
}

// judgeBatch parses {"stored":n,"duplicate":m}, with or without "rejected".
func judgeBatch(r *response, n int) (answer, error) {
	batch, err := transfer.ParseAnswer(r.body, n)
	if err == nil && (r.status == http.StatusMultiStatus) != (len(batch.Rejected) > 0) {
		err = errors.New("the status does not match the rejected readings")
	}
	a := answer{verdict: accepted, stored: batch.Stored, duplicate: batch.Duplicate}
	for _, rejected := range batch.Rejected {
		a.rejected = append(a.rejected, rejected.Index)
	}
	return a, err
}

// judgeProblem parses an RFC 9457 problem.
func (j *judge) judgeProblem(r *response, now time.Time) (answer, error) {
	mediaType, _, err := mime.ParseMediaType(r.contentType)
	if err != nil || mediaType != "application/problem+json" {
		return answer{}, errors.New("not a problem document")
	}
	var doc struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(r.body, &doc) != nil {
		return answer{}, errors.New("the problem document is not JSON")
	}
	// A report never quotes a server's text, only known types.
	status, known := j.problems[doc.Type]
	if !known {
		return answer{}, errors.New("the problem type is not an answer to a POST of readings")
	}
	_, name, _ := strings.Cut(doc.Type, "#")
	a := answer{verdict: refusedWhole, problem: name}
	if status != r.status {
		return a, fmt.Errorf("type %s belongs to status %d", a.problem, status)
	}
	if !a.retry(r, now) {
		return a, errors.New("no Retry-After")
	}
	return a, nil
}

// parseRetryAfter parses a Retry-After value: seconds or a date (RFC 9110, section
// 10.2.3).
func parseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(value, 10, 30); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}
