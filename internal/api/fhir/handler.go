package fhir

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// Path is the path of the FHIR server.
const Path = "/fhir"

// Options configure a [Handler].
type Options struct {
	query.Service
	Version string // of the program

	// Base is the URL of the FHIR server in links, in fullUrl and in absolute references, without
	// a slash at its end.
	// If empty, it is made from the host to which a request was sent.
	Base string

	PulseAsHeartRate bool // see [codes.Table]

	// Changes are those of the store. If nil, exports are complete only: they have no _since.
	Changes storage.Changes

	// Erase erases values for a client that may, and records it. It is one of [storage.Remover.EraseValues] in all other
	// respects. If nil, Observations are not erased.
	Erase func(r *http.Request, by *gate.Access, e storage.Erasure) (storage.Erasure, error)
}

// A Handler serves FHIR. Its methods are http.HandlerFuncs, or forms of sent readings.
type Handler struct {
	reader   Reader
	subjects Subjects
	opt      Options
	outcomes map[*reply.Problem]*outcome
	heads    map[string]*reply.Head // of 200, by media type
	created  *reply.Head            // 201
	started  time.Time
}

// New returns a Handler that reads from reader and subjects.
func New(reader Reader, subjects Subjects, opt Options) *Handler {
	opt.SetDefaults()
	h := &Handler{
		reader: reader, subjects: subjects, opt: opt, outcomes: newOutcomes(opt.Problems), heads: map[string]*reply.Head{},
		created: reply.NewHead(http.StatusCreated, contentType, reply.NoStore()), started: time.Now(),
	}
	h.opt.Service.Reject = h.reject
	for _, typ := range mediaTypes {
		h.heads[typ] = reply.NewHead(http.StatusOK, typ, reply.NoStore())
	}
	return h
}

// Mount routes the FHIR server. read routes GET and HEAD of an address, search and post POST, put PUT and remove
// DELETE; receive returns the handler of a form, without cross-site requests.
func (h *Handler) Mount(
	read, search, post, put, remove func(template string, h http.Handler), receive func(ingest.Form) http.Handler,
) {
	bundles := h.JSON(receive(h.BundleForm))
	newExporter(h).mount(read, post, remove) // before {id}, which also matches $export
	read(Path+"/metadata", http.HandlerFunc(h.Metadata))
	read(Path+"/Observation", http.HandlerFunc(h.Search))
	search(Path+"/Observation/_search", http.HandlerFunc(h.Search)) // before {id}, which also matches its OPTIONS
	read(Path+"/Observation/{id}", http.HandlerFunc(h.Observation))
	read(Path+"/Device/{id}", http.HandlerFunc(h.Device))
	read(Path+"/Patient/{id}", http.HandlerFunc(h.Patient))
	post(Path+"/Observation", h.JSON(receive(h.ObservationForm)))
	put(Path+"/Observation/{id}", h.JSON(corrector{h}.before(receive(h.UpdateForm))))
	post(Path, bundles)
	post(Path+"/", bundles) // to which some clients send Bundles
}

// base returns the URL of the FHIR server: the configured one or, if that is empty, the one by
// which a request names it.
func (h *Handler) base(r *http.Request) string {
	switch {
	case h.opt.Base != "":
		return h.opt.Base
	case r.TLS != nil:
		return "https://" + r.Host + Path
	}
	return "http://" + r.Host + Path
}

// relative returns a reference to a resource of this server without its base. A reference to
// another server stays absolute, and names nothing here.
func relative(reference, base string) string { return strings.TrimPrefix(reference, base+"/") }

// begin negotiates the form of the answer to a request, authorizes it and admits it, or answers
// it. If ok is true, the caller must call leave at the end of the request.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request) (head *reply.Head, access gate.Access,
	leave func(), ok bool) {
	access, verdict := h.opt.May(r, token.ReadSubjects)
	if h.opt.Refuse(w, r, verdict, "A token with the read right is needed.") {
		return nil, access, nil, false
	}
	if head, ok = h.negotiate(w, r); !ok {
		return nil, access, nil, false
	}
	leave, ok = h.opt.Enter(w, r, &access, h.opt.Bound)
	return head, access, leave, ok
}

// negotiate returns the head of a 200 in a form that the client accepts, or answers the
// request.
func (h *Handler) negotiate(w http.ResponseWriter, r *http.Request) (*reply.Head, bool) {
	w.Header().Add("Vary", "Accept")
	typ, ok := negotiate(r.URL.RawQuery, r.Header["Accept"])
	if !ok {
		h.reject(w, r, h.opt.Problems.NotAcceptable, 0,
			"Resources are served as application/fhir+json, FHIR version 4.0. XML is not supported.")
		return nil, false
	}
	return h.heads[typ], true
}

// fail answers a request after an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, access *gate.Access, err error) {
	problems := h.opt.Problems
	var param *query.ParamError
	switch {
	case errors.As(err, &param):
		h.reject(w, r, problems.BadParameter, 0, param.Error())
	case errors.Is(err, errNotForm):
		h.reject(w, r, problems.UnsupportedType, 0,
			"The parameters of a search by POST must be of type application/x-www-form-urlencoded.")
	case errors.Is(err, errForbidden):
		h.opt.Gate.NotCovered(access, gate.PeerOf(r))
		h.reject(w, r, problems.Forbidden, 0, "The credentials are not for these patients or devices.")
	case errors.Is(err, storage.ErrNotFound):
		h.reject(w, r, problems.NotFound, 0, "")
	default:
		h.opt.Fail(w, r, err)
	}
}

// record records in the audit log that observations of subjects are about to be read.
func (h *Handler) record(r *http.Request, access *gate.Access, subjects []storage.Subject, device vitals.Name,
	measured span) error {
	for _, subject := range subjects {
		if err := h.opt.Record(r, access, gate.Export{Subject: string(subject), Device: device}, measured.fromUnixMs,
			measured.toUnixMs); err != nil {
			return err
		}
	}
	return nil
}
