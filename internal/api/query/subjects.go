package query

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// SubjectsPath is what the addresses of the readings of subjects begin with.
const SubjectsPath = "/v1/subjects"

// SubjectFormats is the number of formats of the readings of a subject. Data points of Open mHealth are only of
// devices.
const SubjectFormats = OMH

// Subjects serves what was measured of a subject, on all devices that were assigned to it, while they were. Its methods
// are http.HandlerFuncs for POST: the subject is in the body, because addresses are logged, here and by proxies.
//
// A request needs [token.ReadSubjects], in which a token may be bound to subjects, and must be one that
// [gate.Access.MayReadSubject] allows. It is recorded in the audit log before the first byte of the answer is sent.
type Subjects struct {
	h     *Handler
	store SubjectAssigner
}

// NewSubjects returns Subjects of the handler's store, whose assignments store has.
func NewSubjects(h *Handler, store SubjectAssigner) *Subjects { return &Subjects{h, store} }

// Mount routes the requests. post routes POST of an address, for requests that no page of another site makes.
func (s *Subjects) Mount(post func(template string, h http.Handler)) {
	post(SubjectsPath+"/readings", http.HandlerFunc(s.Readings))
	post(SubjectsPath+"/aggregates", http.HandlerFunc(s.Aggregates))
	post(SubjectsPath+"/latest", http.HandlerFunc(s.Latest))
}

// Readings serves POST /v1/subjects/readings, by time and then by device. The parameters are those of
// [Handler.Readings], with the cursor in the body.
func (s *Subjects) Readings(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, SubjectFormats, new(Selection))
}

// Aggregates serves POST /v1/subjects/aggregates: the buckets have the values of all devices. The parameters are those
// of [Handler.Aggregates], with the cursor in the body.
func (s *Subjects) Aggregates(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, TextFormats, new(Aggregation))
}

// stream answers a request for a page in one of the first formats.
func (s *Subjects) stream(w http.ResponseWriter, r *http.Request, formats Format, p page) {
	r = WithoutCancel(r)
	access, of, leave, ok := s.admit(w, r, true)
	if !ok {
		return
	}
	defer leave()
	p.selection().of(of)
	subject, devices := of.subject, devicesOf(of.all)
	s.h.answer(w, r, formats, p, asked{
		access: &access, export: gate.Export{Subject: string(subject)}, recorded: true,
		allowed: func() bool { return s.mayStill(r, subject, devices) },
		find:    func(context.Context) error { return p.selection().checkWorn() },
	})
}

// may returns what a request may read now. A session of the page may be used.
func (s *Subjects) may(r *http.Request) (gate.Access, gate.Verdict) {
	v := gate.CredentialsOf(r)
	v.SubjectsInSession = true
	access, verdict, _ := s.h.opt.Gate.Authorize(v, token.ReadSubjects, time.Now())
	return access, verdict
}

// mayStill reports whether a request may still read a subject, to whom devices were assigned.
func (s *Subjects) mayStill(r *http.Request, subject storage.Subject, devices []vitals.Name) bool {
	access, verdict := s.may(r)
	return verdict == gate.Allowed && access.MayReadSubject(string(subject), devices)
}

// admit authorizes and admits a request, and reads its subject, or answers it. If ok is true, the caller must call
// leave at the end of the request.
func (s *Subjects) admit(
	w http.ResponseWriter, r *http.Request, paged bool,
) (access gate.Access, of *worn, leave func(), ok bool) {
	o := &s.h.opt
	access, verdict := s.may(r)
	if o.Refuse(w, r, verdict, "A token with the read right is needed.") {
		return access, nil, nil, false
	}
	body, err := readSubject(w, r, paged)
	if err != nil {
		detail := "The body must be an object with the member subject, and for a further page cursor."
		if !paged {
			detail = malformedSubject
		}
		o.Problems.Malformed.Write(w, r, detail)
		return access, nil, nil, false
	}
	if leave, ok = o.Enter(w, r, &access, o.Bound); !ok {
		return access, nil, nil, false
	}
	of = &worn{subject: storage.Subject(body.Subject), store: s.store, cursor: body.Cursor}
	if ok = s.find(w, r, &access, of); !ok {
		leave()
	}
	return access, of, leave, ok
}

// find sets the assignments of a subject if a request may read what was measured during them, or answers it.
func (s *Subjects) find(w http.ResponseWriter, r *http.Request, access *gate.Access, of *worn) (ok bool) {
	o := &s.h.opt
	all, ok, err := AssignmentsOf(r.Context(), s.store, access, of.subject)
	of.all = all
	switch {
	case err != nil:
		o.Fail(w, r, err)
		return false
	case !ok:
		o.Gate.NotCovered(access, gate.PeerOf(r))
		o.Problems.Forbidden.Write(w, r, "The credentials are not for this patient.")
	}
	return ok
}

// A SubjectList is an admitted request for a list of what concerns a subject.
type SubjectList struct {
	Subject     storage.Subject
	Assignments []storage.Assignment // of the subject, by device

	subjects *Subjects
	request  *http.Request
	access   *gate.Access
}

// AdmitList admits a request for a list of what concerns a subject, with the parameters limit and those of l.Times, or
// answers it. It sets the fields of l but Devices. If ok is true, the caller must call leave at the end of the request,
// [SubjectList.Record] before it reads, and [SubjectList.Verify] before it answers.
func (s *Subjects) AdmitList(w http.ResponseWriter, r *http.Request, l *List) (of *SubjectList, leave func(), ok bool) {
	access, worn, leave, ok := s.admit(w, r, false)
	if !ok {
		return nil, nil, false
	}
	if err := l.parse(r); err != nil {
		s.h.opt.Fail(w, r, err)
		leave()
		return nil, nil, false
	}
	l.Access = access
	return &SubjectList{worn.subject, worn.all, s, r, &l.Access}, leave, true
}

// sameSpan reports whether two assignments of a subject are the same span of the same device.
func sameSpan(a, b storage.Assignment) bool {
	return a.Device == b.Device && a.FromUnixMs == b.FromUnixMs && a.ToUnixMs == b.ToUnixMs
}

// Record records the request in the audit log, with the times of its list.
func (of *SubjectList) Record(l *List) error {
	e := gate.Export{Subject: string(of.Subject)}
	return of.subjects.h.opt.Record(of.request, of.access, e, l.FromUnixMs, l.ToUnixMs)
}

// Verify returns nil if the request may still read the subject, which still has the same assignments.
func (of *SubjectList) Verify(ctx context.Context) error {
	all, may, err := AssignmentsOf(ctx, of.subjects.store, of.access, of.Subject)
	switch {
	case err != nil:
		return err
	case !may || !of.subjects.mayStill(of.request, of.Subject, devicesOf(all)):
		return ErrRevoked
	case !slices.EqualFunc(all, of.Assignments, sameSpan):
		return ErrReassigned
	}
	return nil
}

// Latest serves POST /v1/subjects/latest: the newest value of each sign, with its time and device, and the assignments
// of the subject. It has no parameters.
func (s *Subjects) Latest(w http.ResponseWriter, r *http.Request) {
	r = WithoutCancel(r)
	access, of, leave, ok := s.admit(w, r, false)
	if !ok {
		return
	}
	defer leave()
	o := &s.h.opt
	err := ReadParams(r.URL.RawQuery, nil).Err
	if err == nil {
		err = o.Record(r, &access, gate.Export{Subject: string(of.subject)}, 0, storage.OpenEnd)
	}
	devices := devicesOf(of.all)
	newest := newestWorn{goesOn: func() error { // many readings may have to be read, before anything is written
		if !s.mayStill(r, of.subject, devices) {
			return ErrRevoked
		}
		return nil
	}}
	if err == nil {
		err = newest.find(r.Context(), s.h.reader, of.all)
	}
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	if !s.find(w, r, &access, of) { // they may have been changed since
		return
	}
	if devices = devicesOf(of.all); !s.mayStill(r, of.subject, devices) {
		o.Fail(w, r, ErrRevoked)
		return
	}
	if !newest.within(of.all) {
		o.Fail(w, r, ErrReassigned)
		return
	}
	WriteObject(w, r, newest.appendTo(nil, of, s.h.flagger()))
}
