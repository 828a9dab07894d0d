package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net/http"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// An assignment is an assignment in a body. Subjects are in bodies and never in a query, because
// addresses are logged, here and by proxies.
type assignment struct {
	Device  string `json:"device"`
	Subject string `json:"subject,omitzero"`
	From    string `json:"from"`        // RFC 3339
	To      string `json:"to,omitzero"` // RFC 3339; empty means not ended
	By      string `json:"by,omitzero"` // in answers: hand or hl7
}

func assignmentOf(a *storage.Assignment) assignment {
	text := assignment{Device: a.Device.String(), Subject: string(a.Subject), From: formatTime(a.FromUnixMs),
		By: a.By.String()}
	if a.ToUnixMs != storage.OpenEnd {
		text.To = formatTime(a.ToUnixMs)
	}
	return text
}

func formatTime(unixMs int64) string {
	return time.UnixMilli(unixMs).UTC().Format("2006-01-02T15:04:05.000Z")
}

// badField answers a request with a field that is not valid.
func (h *Handler) badField(w http.ResponseWriter, r *http.Request, field, reason string) {
	h.opt.Problems.BadParameter.Write(w, r, "", reply.String("field", field), reply.String("reason", reason))
}

// subject parses a subject, or answers the request.
func (h *Handler) subject(w http.ResponseWriter, r *http.Request, text string) (storage.Subject, bool) {
	subject, err := storage.ParseSubject(text)
	if err != nil {
		h.badField(w, r, "subject", "it is not 1 to 64 of A-Z, a-z, 0-9, hyphen and dot")
	}
	return subject, err == nil
}

// parse parses the fields of an assignment but the subject, or answers the request.
func (h *Handler) parse(w http.ResponseWriter, r *http.Request, asked *assignment) (a storage.Assignment, ok bool) {
	var err error
	if asked.By != "" {
		h.badField(w, r, "by", "only answers have it")
		return a, false
	}
	if a.Device, err = vitals.ParseName(asked.Device); err != nil {
		h.badField(w, r, "device", "it is not a valid name")
		return a, false
	}
	if a.FromUnixMs, _, err = vitals.ParseRFC3339(asked.From); err != nil || a.FromUnixMs < 0 {
		h.badField(w, r, "from", "it is not a time after 1970 in RFC 3339 with a zone")
		return a, false
	}
	a.FromUnixMs = localtime.Bound(asked.From, a.FromUnixMs)
	if a.ToUnixMs = storage.OpenEnd; asked.To == "" {
		return a, true
	}
	if a.ToUnixMs, _, err = vitals.ParseRFC3339(asked.To); err != nil {
		h.badField(w, r, "to", "it is not a time in RFC 3339 with a zone")
		return a, false
	}
	a.ToUnixMs = localtime.Bound(asked.To, a.ToUnixMs)
	if a.ToUnixMs <= a.FromUnixMs {
		h.badField(w, r, "to", "it is not after the beginning")
		return a, false
	}
	return a, true
}

// Assign assigns a device to a subject, as the body says:
//
//	{"device":"ppg-000123","subject":"P-17","from":"2026-11-21T08:00:00Z","to":"2026-11-28T08:00:00Z"}
//
// Without "to" the assignment has not ended. The answer is the assignment. A request may be
// repeated.
func (h *Handler) Assign(w http.ResponseWriter, r *http.Request) {
	var asked assignment
	if !h.read(w, r, &asked, `{"device":"...","subject":"...","from":"...","to":"..."}`) {
		return
	}
	a, ok := h.parse(w, r, &asked)
	if !ok {
		return
	}
	if a.Subject, ok = h.subject(w, r, asked.Subject); !ok {
		return
	}
	h.change(w, r, audit.SubjectAssigned, a, h.opt.Subjects.Assign)
}

// End sets the end of the assignment of a device that begins at a time, as the body says:
//
//	{"device":"ppg-000123","from":"2026-11-21T08:00:00Z","to":"2026-11-28T08:00:00Z"}
//
// The answer is the assignment. An end may be set again.
func (h *Handler) End(w http.ResponseWriter, r *http.Request) {
	var asked assignment
	if !h.read(w, r, &asked, `{"device":"...","from":"...","to":"..."}`) {
		return
	}
	a, ok := h.parse(w, r, &asked)
	switch {
	case !ok:
		return
	case asked.To == "":
		h.badField(w, r, "to", "it is missing")
		return
	case asked.Subject != "":
		h.badField(w, r, "subject", "an end has none")
		return
	}
	// The record names the subject. If another request assigns the device to another subject
	// before the end is stored, there is nothing to end.
	all, err := h.opt.Subjects.DeviceAssignments(r.Context(), a.Device)
	if err == nil {
		if i := slices.IndexFunc(all, func(known storage.Assignment) bool { return known.FromUnixMs == a.FromUnixMs }); i >=
			0 {
			a.Subject = all[i].Subject
		}
		err = a.AdmitEnd(all)
	}
	if err != nil {
		h.refuse(w, r, "end of an assignment", err)
		return
	}
	h.change(w, r, audit.SubjectEnded, a, h.opt.Subjects.EndAssignment)
}

// change makes a change of an assignment, and answers with the assignment.
func (h *Handler) change(w http.ResponseWriter, r *http.Request, event audit.Event, a storage.Assignment,
	do func(context.Context, storage.Assignment) error) {
	record := audit.Record{Event: event, Actor: h.opt.Actor(r.Context()), Peer: gate.PeerOf(r).PeerAddr()}
	err := Change(h.opt.Record, h.opt.Log, record, a, func() error {
		a.ChangedUnixMs = time.Now().UnixMilli()
		return do(context.WithoutCancel(r.Context()), a) // a client that disconnects does not undo it
	})
	switch {
	case errors.Is(err, ErrNotRecorded):
		h.opt.Problems.ReadFailed.Write(w, r, "The change could not be recorded in the audit log. Nothing was changed.")
	case err != nil:
		h.refuse(w, r, "change of an assignment", err)
	default:
		h.answer(w, assignmentOf(&a))
	}
}

// ErrNotRecorded means that an assignment was not changed, because the change could not be recorded.
var ErrNotRecorded = errors.New("the change cannot be recorded in the audit log")

// Change records a change of an assignment and calls do to make it. The record comes first, so that no change is
// without one; a change that then fails is recorded as failed. r has the event, the actor and the peer.
func Change(record func(audit.Record) error, log *slog.Logger, r audit.Record, a storage.Assignment,
	do func() error) error {
	r = AssignmentRecord(r, &a)
	if err := record(r); err != nil {
		log.Error("a change of an assignment cannot be recorded in the audit log", "device", a.Device, "error", err)
		return ErrNotRecorded
	}
	err := do()
	if err != nil {
		r.Event = audit.SubjectFailed
		if err := record(r); err != nil {
			log.Error("the failure of a change of an assignment cannot be recorded in the audit log", "device", a.Device,
				"error", err)
		}
	}
	return err
}

// AssignmentRecord returns r with the device, the subject and the times of an assignment.
func AssignmentRecord(r audit.Record, a *storage.Assignment) audit.Record {
	r.Device, r.Subject, r.From = a.Device, string(a.Subject), time.UnixMilli(a.FromUnixMs)
	if a.ToUnixMs != storage.OpenEnd {
		r.To = time.UnixMilli(a.ToUnixMs)
	}
	return r
}

// pageAssignments is the number of assignments in an answer.
const pageAssignments = 1000

// A listRequest is the body of a request for assignments: those of a device, of a subject, or all.
type listRequest struct {
	Device  string `json:"device"`
	Subject string `json:"subject"`

	// After is the last assignment of the previous page, of which device and from count.
	After assignment `json:"after"`
}

// A listAnswer is a page of assignments. If More is true, there are further ones, after the last.
type listAnswer struct {
	Assignments []assignment `json:"assignments"`
	More        bool         `json:"more"`
}

// List answers with assignments, by device and beginning.
func (h *Handler) List(w http.ResponseWriter, r *http.Request) {
	var asked listRequest
	if !h.read(w, r, &asked,
		`{"device":"..."}, {"subject":"..."} or {}, with "after":{"device":"...","from":"..."} for a further page`) {
		return
	}
	var after storage.AssignmentKey
	if asked.After.Device != "" {
		asked.After.By = "" // it may be as in the page before
		a, ok := h.parse(w, r, &asked.After)
		if !ok {
			return
		}
		after = a.Key()
	}
	var all []storage.Assignment
	var err error
	switch {
	case asked.Device != "" && asked.Subject != "":
		h.opt.Problems.BadParameter.Write(w, r, "Name a device or a subject, not both.")
		return
	case asked.Device != "":
		device, nameErr := vitals.ParseName(asked.Device)
		if nameErr != nil {
			h.badField(w, r, "device", "it is not a valid name")
			return
		}
		all, err = h.opt.Subjects.DeviceAssignments(r.Context(), device)
	case asked.Subject != "":
		subject, ok := h.subject(w, r, asked.Subject)
		if !ok {
			return
		}
		all, err = h.opt.Subjects.SubjectAssignments(r.Context(), subject)
	default:
		all, err = h.assignments(r.Context(), after)
	}
	if err != nil {
		h.refuse(w, r, "list of assignments", err)
		return
	}
	page := listAnswer{Assignments: []assignment{}}
	for i := range all {
		if k := all[i].Key(); k.Compare(&after) <= 0 {
			continue
		}
		if page.More = len(page.Assignments) == pageAssignments; page.More {
			break
		}
		page.Assignments = append(page.Assignments, assignmentOf(&all[i]))
	}
	h.answer(w, page)
}

// assignments returns the assignments of subjects after a key, more than a page if there are so many.
func (h *Handler) assignments(ctx context.Context, after storage.AssignmentKey) (all []storage.Assignment, err error) {
	for len(all) <= pageAssignments {
		page := make([]storage.Assignment, pageAssignments+1)
		n, err := h.opt.Subjects.Assignments(ctx, after, page)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			after = page[n-1].Key()
		}
		if all = append(all, storage.Worn(page[:n])...); n < len(page) {
			break
		}
	}
	return all, nil
}

// eraseSubject erases the assignments of a subject, one after the other, with what was measured
// during them.
func (h *Handler) eraseSubject(w http.ResponseWriter, r *http.Request, subject storage.Subject) {
	ctx := context.WithoutCancel(r.Context()) // it continues if the client disconnects
	record := audit.Record{Event: audit.Erased, Subject: string(subject), Actor: h.opt.Actor(ctx),
		Peer: gate.PeerOf(r).PeerAddr()}
	answer := eraseAnswer{Subject: string(subject)}
	begun := time.Now()
	recorded := func(e storage.Erasure) error { return h.opt.Record(ErasedRecord(e, h.opt.Signs, record)) }
	// This also erases assignments that a repair brings back later: see storage.Remover.
	if _, err := h.opt.EraseAssignment(storage.Assignment{Subject: subject}, recorded); err != nil &&
		!errors.Is(err, storage.ErrNotAssigned) {
		h.refuse(w, r, "erasure of a subject", err)
		return
	}
	for {
		all, err := h.opt.Subjects.SubjectAssignments(ctx, subject)
		if err == nil && len(all) == 0 && answer.Assignments == 0 {
			err = storage.ErrNotAssigned
		}
		if err != nil {
			h.refuse(w, r, "erasure of a subject", err)
			return
		}
		if len(all) == 0 {
			break
		}
		for i := range all {
			e, err := h.opt.EraseAssignment(all[i], recorded)
			switch {
			case errors.Is(err, storage.ErrNotAssigned): // another request has erased it
			case errors.Is(err, storage.ErrUnfinished):
				h.opt.Log.Error("an erasure is not finished", "error", err)
				h.opt.Problems.ErasureUnfinished.Write(w, r,
					"Repeat the request for the assignments that are left. It also finishes the one that was begun.")
				return
			case err != nil:
				h.refuse(w, r, "erasure of a subject", err)
				return
			default:
				answer.Assignments++
				answer.Erased += e.Readings
			}
		}
	}
	h.opt.Log.Info("subject erased", "assignments", answer.Assignments, "readings", answer.Erased, "took",
		time.Since(begun))
	h.answer(w, answer)
}

// ErasedRecord returns record as that of an erasure. signs are those of the store, nil if it is not open yet.
func ErasedRecord(e storage.Erasure, signs *vitals.Signs, record audit.Record) audit.Record {
	record.Event, record.Device, record.Subject, record.Count = audit.Erased, e.Device, string(e.Subject), e.Readings
	if e.ToUnixMs == 0 {
		return record
	}
	record.Gateway, record.Signs, record.Shared = e.Gateway, signNames(e.Signs, signs), e.Shared
	return AssignmentRecord(record, &storage.Assignment{Device: e.Device, Subject: e.Subject, FromUnixMs: e.FromUnixMs,
		ToUnixMs: e.ToUnixMs})
}

// signNames returns the fields of signs as an audit.Record has them: those that do not fit are counted.
func signNames(some uint32, signs *vitals.Signs) (text string) {
	if signs == nil {
		signs = vitals.NewSigns()
	}
	for s := range vitals.InOrder(some) {
		field := cmp.Or(signs.Field(s), fmt.Sprintf("sign-%d", s))
		if left := bits.OnesCount32(some); len(text)+len(field)+len(",+32") > audit.MaxSignsBytes {
			return fmt.Sprintf("%s,+%d", text, left)
		}
		if text != "" {
			text += ","
		}
		text += field
		some &^= 1 << s
	}
	return text
}
