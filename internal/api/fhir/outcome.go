package fhir

import (
	"net/http"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/reply"
)

// contentType is the media type of all answers.
const contentType = "application/fhir+json"

// An outcome is a problem as an OperationOutcome, with the header of the problem.
type outcome struct {
	head *reply.Head
	text string // the issue up to the diagnostics
}

// outcomeStart and outcomeEnd are around the issues of an OperationOutcome.
const (
	outcomeStart = `{"resourceType":"OperationOutcome","issue":[`
	outcomeEnd   = "]}\n"
)

// newOutcomes returns the outcome of each problem.
func newOutcomes(problems *problem.Set) map[*reply.Problem]*outcome {
	outcomes := map[*reply.Problem]*outcome{}
	for _, p := range problems.All() {
		system, code, _ := strings.Cut(p.Type(), "#")
		outcomes[p] = &outcome{
			head: reply.NewHead(p.Status(), contentType, problem.Options(p)...),
			text: `{"severity":"error","code":"` + issueType(problems, p) + `","details":{"coding":[{"system":` +
				quoted(system) + `,"code":` + quoted(code) + `}],"text":` + quoted(p.Title()) + `}`,
		}
	}
	return outcomes
}

// information is an issue of an OperationOutcome that is no error, up to the diagnostics.
const information = `{"severity":"information","code":"informational"`

// warning is like information, for an Observation that was left out.
const warning = `{"severity":"warning","code":"business-rule"`

// appendIssue appends an issue, of which text is the beginning. diagnostics explains it to a person;
// it must not contain anything that must not appear in logs. expression is the place of the issue.
// Both may be empty.
func appendIssue(dst []byte, text, diagnostics, expression string) []byte {
	dst = append(dst, text...)
	if diagnostics != "" {
		dst = reply.AppendJSONString(append(dst, `,"diagnostics":`...), diagnostics)
	}
	if expression != "" {
		dst = append(reply.AppendJSONString(append(dst, `,"expression":[`...), expression), ']')
	}
	return append(dst, '}')
}

// outcomeOf returns an OperationOutcome with one issue.
func outcomeOf(text, diagnostics, expression string) []byte {
	return append(appendIssue([]byte(outcomeStart), text, diagnostics, expression), outcomeEnd...)
}

// issueType returns the type of a problem's issue (https://hl7.org/fhir/R4/valueset-issue-type.html).
func issueType(problems *problem.Set, p *reply.Problem) string {
	switch p {
	case problems.Malformed:
		return "structure"
	case problems.BadParameter:
		return "invalid"
	case problems.NotFound, problems.UnknownDevice, problems.CursorUnknown:
		return "not-found"
	case problems.MethodNotAllowed, problems.NotAcceptable, problems.UnsupportedType, problems.UnknownEncoding,
		problems.OldHTTP, problems.NotKept:
		return "not-supported"
	case problems.Timeout:
		return "timeout"
	case problems.LengthRequired:
		return "required"
	case problems.TooLarge:
		return "too-long"
	case problems.Unauthorized, problems.InvalidCredentials:
		return "login"
	case problems.Forbidden, problems.UntrustedOrigin:
		return "forbidden"
	case problems.TooManyReadings, problems.TooManyContradictions, problems.Overloaded:
		return "throttled"
	case problems.Conflict:
		return "conflict"
	case problems.Invalid:
		return "value"
	case problems.Busy, problems.Draining, problems.Unreadable:
		return "transient"
	case problems.DiskLow, problems.StoreDamaged, problems.TooManyDevices, problems.StoreFailed:
		return "no-store"
	}
	return "exception" // ReadFailed, OutcomeUnknown, ErasureUnfinished
}

// reject answers a request with a problem as an OperationOutcome and, if after is positive, with a Retry-After.
// diagnostics is as in appendIssue.
func (h *Handler) reject(w http.ResponseWriter, r *http.Request, p *reply.Problem, after time.Duration,
	diagnostics string) {
	o := h.outcomes[p]
	answer := ingest.Answer{Head: o.head, Body: outcomeOf(o.text, diagnostics, ""), RetryAfter: after}
	_ = answer.Write(w, r) // an error means that the client has disconnected
}

// Reject returns a handler that answers every request with a problem as an OperationOutcome.
func (h *Handler) Reject(p *reply.Problem, diagnostics string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.reject(w, r, p, 0, diagnostics) })
}

// appendNotes appends an entry of a searchset with notes about the search.
func appendNotes(dst []byte, notes []string) []byte {
	dst = append(dst, `{"resource":`+outcomeStart...)
	for i, note := range notes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendIssue(dst, information, note, "")
	}
	return append(dst, `]},"search":{"mode":"outcome"}}`...)
}
