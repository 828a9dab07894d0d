package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Service is what the packages that serve stored readings share: how they authorize, admit and
// reject requests.
type Service struct {
	Problems *problem.Set

	// Param returns a variable in the request's path, such as "device".
	Param func(r *http.Request, name string) string

	// Subjects, if not nil, knows to which subjects devices are assigned.
	Subjects Assigner

	// Roster, if not nil, has the labels and groups of devices, and usual ranges of some.
	Roster *roster.Book

	// Gate authorizes requests. If nil, every request may read everything.
	Gate *gate.Gate

	// PieceTimeout is how long a client may take to read one piece of a response, about
	// 64 KiB. It replaces the server's WriteTimeout, so that a long response as a whole
	// has no limit. Default 30 s.
	PieceTimeout time.Duration

	// Bound bounds the number of concurrent authorized requests; nil means no bound. Holders
	// divide it among clients; nil means it is not divided.
	Bound   *Bound
	Holders *share.Holders

	// OnError, if not nil, is called with errors of the store and of the audit log. It must be safe
	// for concurrent use.
	OnError func(error)

	// Reject answers a request with a problem in another form than its own, and with a Retry-After if after is positive.
	Reject func(w http.ResponseWriter, r *http.Request, p *reply.Problem, after time.Duration, detail string)
}

// SetDefaults sets the fields that have defaults.
func (s *Service) SetDefaults() {
	if s.PieceTimeout <= 0 {
		s.PieceTimeout = 30 * time.Second
	}
	if s.Gate == nil {
		s.Gate = &gate.Gate{}
	}
}

// reject answers a request with a problem and, if after is positive, with a Retry-After.
func (s *Service) reject(w http.ResponseWriter, r *http.Request, p *reply.Problem, after time.Duration, detail string) {
	switch {
	case s.Reject != nil:
		s.Reject(w, r, p, after, detail)
	case after > 0:
		p.WriteRetryAfter(w, r, after, detail)
	default:
		p.Write(w, r, detail)
	}
}

// object is the head of a 200 with a complete JSON body.
var object = reply.NewHead(http.StatusOK, JSON.ContentType(), reply.NoStore())

// WriteObject answers a request with JSON.
func WriteObject(w http.ResponseWriter, r *http.Request, text []byte) {
	_ = object.Write(w, r, text) // an error means that the client has disconnected
}

// WriteJSON answers a request with v as JSON.
func WriteJSON(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // no type that is answered has this error
	}
	WriteObject(w, r, append(text, '\n'))
}

// Refuse answers a request with a verdict, and reports whether the verdict is other than gate.Allowed. whyForbidden is
// the detail of gate.Forbidden.
func (s *Service) Refuse(w http.ResponseWriter, r *http.Request, v gate.Verdict, whyForbidden string) (refused bool) {
	switch p := s.Problems; v {
	case gate.Allowed:
		return false
	case gate.NoCredentials:
		s.reject(w, r, p.Unauthorized, 0, "")
	case gate.BadCredentials:
		s.reject(w, r, p.InvalidCredentials, 0, "")
	case gate.Unavailable:
		s.reject(w, r, p.KeysUnknown, time.Second, "")
	default:
		s.reject(w, r, p.Forbidden, 0, whyForbidden)
	}
	return true
}

// May returns what a request with a right may read now.
func (s *Service) May(r *http.Request, right token.Rights) (gate.Access, gate.Verdict) {
	access, verdict, _ := s.Gate.Authorize(gate.CredentialsOf(r), right, time.Now())
	return access, verdict
}

// Authorize authorizes a request for readings, or answers it.
func (s *Service) Authorize(w http.ResponseWriter, r *http.Request) (access gate.Access, ok bool) {
	access, verdict := s.May(r, token.Read)
	return access, !s.Refuse(w, r, verdict, access.WhyNotRead())
}

// Admit authorizes and admits a request for readings, or answers it. If ok is true, the caller must
// call leave at the end of the request.
//
// The gate comes before the bound, so that unauthorized clients take no places.
func (s *Service) Admit(w http.ResponseWriter, r *http.Request) (access gate.Access, leave func(), ok bool) {
	if access, ok = s.Authorize(w, r); !ok {
		return access, nil, false
	}
	leave, ok = s.Enter(w, r, &access, s.Bound)
	return access, leave, ok
}

// A List is a request for a list of what concerns devices.
type List struct {
	DefaultLimit, MaxLimit int

	// Times, if not nil, reads the parameters from, to and tz of a request, which has no others than device and limit.
	Times *Times

	// What AdmitList sets: who asks; the devices, none of which mean all that the token covers; the number of things;
	// and the times, which are 0 and [storage.OpenEnd] if they are missing, and whether there is a parameter of Times.
	Access               gate.Access
	Devices              []vitals.Name
	Limit                int
	FromUnixMs, ToUnixMs int64
	Timed                bool
}

// AdmitList admits a request for a list with the parameters device, which may be repeated, and limit, or answers it.
// If ok is true, the caller must call leave at the end of the request.
func (s *Service) AdmitList(w http.ResponseWriter, r *http.Request, l *List) (leave func(), ok bool) {
	if l.Access, leave, ok = s.Admit(w, r); !ok {
		return nil, false
	}
	err := l.parse(r, "device")
	if ok = err == nil; !ok {
		s.Fail(w, r, err)
	}
	for i := 0; i < len(l.Devices) && ok; i++ {
		ok = s.Covers(w, r, &l.Access, &l.Devices[i])
	}
	if !ok {
		leave()
	}
	return leave, ok
}

// parse reads the parameters of a request for a list, among them those that may be repeated.
func (l *List) parse(r *http.Request, repeated ...string) error {
	known := []string{"limit"}
	if l.Times != nil {
		known = []string{"from", "to", "tz", "limit"}
	}
	p := ReadParams(r.URL.RawQuery, repeated, known...)
	if l.Devices, l.Limit = p.Names("device"), p.Limit(l.DefaultLimit, l.MaxLimit); p.Count("device") > MaxListed {
		p.fail("device", fmt.Sprintf("given more than %d times", MaxListed))
	}
	if l.Times != nil {
		l.Timed = p.Count("from")+p.Count("to")+p.Count("tz") > 0
		l.FromUnixMs, l.ToUnixMs = newTimeReader(p, l.Times.NowUnixMs, l.Times.Limits).span(p)
	}
	return p.Err
}

// Enter takes a place of a Bound, or answers the request.
func (s *Service) Enter(w http.ResponseWriter, r *http.Request, access *gate.Access, bound *Bound) (leave func(),
	ok bool) {
	if leave, ok = bound.Admit(r, access, s.Holders); !ok {
		s.reject(w, r, s.Problems.Overloaded, BusyFor(), "Too many read requests are in progress.")
	}
	return leave, ok
}

// Covers reports whether access covers a device. If not, it answers the request, with
// the same text whether the device exists or not.
func (s *Service) Covers(w http.ResponseWriter, r *http.Request, access *gate.Access, device *vitals.Name) bool {
	if access.Covers(device) {
		return true
	}
	s.Gate.NotCovered(access, gate.PeerOf(r))
	s.Problems.Forbidden.Write(w, r, "The token is not for this device.")
	return false
}

// ErrNotRecorded means that an export was not started, because it could not be recorded.
var ErrNotRecorded = errors.New("the export could not be recorded")

// Record records an export in the audit log. It is called before the first byte is sent. If
// fromUnixMs is 0, the export begins with the first reading, and if toUnixMs is [storage.OpenEnd],
// it ends with the last one.
func (s *Service) Record(r *http.Request, access *gate.Access, e gate.Export, fromUnixMs, toUnixMs int64) error {
	if fromUnixMs > 0 {
		e.From = time.UnixMilli(fromUnixMs)
	}
	if toUnixMs < storage.OpenEnd {
		e.To = time.UnixMilli(toUnixMs)
	}
	if err := s.Gate.Exporting(r.Context(), access, gate.PeerOf(r), e); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRecorded, err) // one line of the log
	}
	return nil
}

// A ParamError reports which parameter is invalid and why. Its text does not contain
// the value sent by the client.
type ParamError struct {
	Name   string // "" for the query as a whole
	Reason string
}

func (e *ParamError) Error() string {
	if e.Name == "" {
		return e.Reason
	}
	return e.Name + ": " + e.Reason
}

// Fail answers a request after an error: a [ParamError], or one of the store.
func (s *Service) Fail(w http.ResponseWriter, r *http.Request, err error) {
	p := s.Problems
	var param *ParamError
	switch {
	case errors.As(err, &param) && param.Name == "":
		p.BadParameter.Write(w, r, "", reply.String("reason", param.Reason))
	case param != nil:
		p.BadParameter.Write(w, r, "", reply.String("field", param.Name), reply.String("reason", param.Reason))
	case errors.Is(err, ErrRevoked):
		s.reject(w, r, p.InvalidCredentials, 0, "")
	case errors.Is(err, storage.ErrNotFound):
		p.UnknownDevice.Write(w, r, "")
	case errors.Is(err, storage.ErrClosed):
		s.reject(w, r, p.Draining, time.Duration(2+rand.IntN(5))*time.Second, "") // jittered, as in package ingest
	case errors.Is(err, storage.ErrUnknownPosition):
		s.reject(w, r, p.CursorUnknown, 0, "")
	case errors.Is(err, storage.ErrRemoved):
		s.reject(w, r, p.ReadFailed, 0, "Readings were removed while they were read.")
	case errors.Is(err, ErrReassigned):
		s.reject(w, r, p.Overloaded, time.Second, "A device was assigned to another patient during the request.")
	case errors.Is(err, storage.ErrUnavailable):
		s.Report(err)
		s.reject(w, r, p.Unreadable, time.Duration(5+rand.IntN(11))*time.Second, "")
	case errors.Is(err, ErrNotRecorded):
		s.Report(err)
		s.reject(w, r, p.ReadFailed, 0, "The access could not be recorded in the audit log.")
	default:
		s.Report(err)
		s.reject(w, r, p.ReadFailed, 0, "")
	}
}

// Report passes an error to OnError, unless it means that the client has disconnected
// or may no longer read, or that what was read was changed meanwhile.
func (s *Service) Report(err error) {
	for _, expected := range []error{context.Canceled, ErrClientGone, ErrRevoked, storage.ErrRemoved, ErrReassigned} {
		if errors.Is(err, expected) {
			return
		}
	}
	if s.OnError != nil {
		s.OnError(err)
	}
}

// WithoutCancel returns r with a context that is not canceled. net/http cancels the context
// if a client closes its sending side, although the client may still read the response. If
// the client has disconnected, a write fails.
func WithoutCancel(r *http.Request) *http.Request {
	return r.WithContext(context.WithoutCancel(r.Context()))
}

// Stream sends a response in pieces. begin sends the header, before the first piece; if it returns
// an error, it must have sent nothing. write writes the body. allowed reports whether the client may
// still read: a blocked write fails soon after it no longer does. An error before the header is
// answered with fail; after a later one, the connection is closed, which is the only way to signal
// that the response is incomplete.
func (s *Service) Stream(w http.ResponseWriter, allowed func() bool, begin func() error, write func(io.Writer) error,
	fail func(error)) {
	out := &pieceWriter{w: w, rc: http.NewResponseController(w), timeout: s.PieceTimeout, allowed: allowed, begin: begin}
	defer out.watch()()
	err := write(out)
	if err == nil { // a response without readings may have no text
		err = out.start()
	}
	switch {
	case err != nil && !out.begun:
		fail(err)
	case err != nil:
		s.Report(err)
		panic(http.ErrAbortHandler)
	}
}
