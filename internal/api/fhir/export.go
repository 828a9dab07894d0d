package fhir

import (
	"cmp"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Exports
//
// An export follows FHIR Bulk Data Access 2.0 (https://hl7.org/fhir/uv/bulkdata/STU2/export.html), but there is nothing
// to wait for: its files are made from the store while they are read, and its status address has all that the export is
// about, encrypted. The server keeps nothing of an export but that it was deleted, in memory.
//
// So a file has what is stored when it is read, and may have what was changed after transactionTime. This is a time of
// the store: the file has everything that was changed up to then, and an export with it as _since has everything that
// was changed later.
//
// A client with _since applies what was deleted, then what the OperationOutcomes say, and then adds the resources: what
// was stored again after it was removed has changed since, and so is among them.

// ExportKept is for how long the files of an export may be read.
const ExportKept = 24 * time.Hour

// maxExport is the length of the parameters of an export, in a query.
const maxExport = 1024

// A scope is what an export is about, as its address says.
type scope int

const (
	ofSystem scope = iota
	ofPatients
	ofGroup // devices whose names begin with the id, what they have measured, and who wore them
)

// An exporter serves exports.
type exporter struct {
	*Handler
	changes                   storage.Changes // nil means that the store keeps none
	deleted                   deletedExports
	accepted, manifest, lines *reply.Head
}

func newExporter(h *Handler) *exporter {
	head := func(status int, typ string) *reply.Head { return reply.NewHead(status, typ, reply.NoStore()) }
	return &exporter{
		Handler: h, changes: h.opt.Changes,
		accepted: head(http.StatusAccepted, contentType),
		manifest: head(http.StatusOK, mediaTypes[1]), lines: head(http.StatusOK, ndjsonType),
	}
}

// mount routes exports. It comes before the routes of resources, which have ids where these have $export.
func (x *exporter) mount(read, post, remove func(template string, h http.Handler)) {
	starts := [...]string{ofSystem: "/$export", ofPatients: "/Patient/$export", ofGroup: "/Group/{id}/$export"}
	for of, template := range starts {
		start := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { x.start(w, r, scope(of)) })
		read(Path+template, start)
		post(Path+template, start)
	}
	read(Path+"/$export/{job}", http.HandlerFunc(x.status))
	remove(Path+"/$export/{job}", http.HandlerFunc(x.remove))
	read(Path+"/$export/{job}/{file}", http.HandlerFunc(x.file))
}

// A job is an export as it was requested.
type job struct {
	Scope       scope
	Group       string // beginning of the names of its devices
	Path, Query string // to which it was sent, below the base; the query has none if the parameters were in the body
	Params      string // its parameters, as a query
	Lenient     bool   // parameters that are not supported are ignored
	UnixMs      int64  // it has everything that was changed until then
	ExpiresUnix int64  // in s
}

// valid reports whether the server may have made a job that has not expired. A client can make others if the cipher is
// of its credentials. The clock of another server may be ahead by up to an hour.
func (j *job) valid(now time.Time) bool {
	return j.Scope >= ofSystem && j.Scope <= ofGroup && (j.Scope == ofGroup) == (j.Group != "") &&
		len(j.Params) <= maxExport && len(j.Query) <= maxExport && len(j.Path) <= maxExport &&
		j.UnixMs >= 0 && j.UnixMs <= vitals.MaxTimeUnixMs &&
		j.ExpiresUnix > now.Unix() && j.ExpiresUnix <= now.Add(ExportKept+time.Hour).Unix()
}

// key returns the cipher of jobs, and what a job is bound to. Without the store's key, it is one of the client's
// credentials: see pageCipher.
func (x *exporter) key(r *http.Request, access *gate.Access) (key cipher.AEAD, bound []byte, err error) {
	id := access.ID()
	bound = append([]byte("pulsegate fhir export\x00"), id[:]...)
	if x.changes == nil {
		return pageCipher(r), bound, nil
	}
	secret, err := x.changes.CursorKey(r.Context())
	if err != nil {
		return nil, nil, err
	}
	return newCipher(secret), bound, nil
}

// start serves GET and POST of $export.
func (x *exporter) start(w http.ResponseWriter, r *http.Request, of scope) {
	r = query.WithoutCancel(r)
	_, access, leave, ok := x.begin(w, r)
	if !ok {
		return
	}
	defer leave()
	j, err := x.newJob(r, of)
	key, bound, keyErr := x.key(r, &access)
	if err = cmp.Or(err, keyErr); err != nil {
		x.refuse(w, r, &access, err)
		return
	}
	text, err := json.Marshal(j)
	if err != nil {
		panic(err) // the type above can be marshaled
	}
	sealed := base64.RawURLEncoding.EncodeToString(key.Seal(nil, nil, text, bound))
	w.Header().Set("Content-Location", x.base(r)+"/$export/"+sealed)
	_ = x.accepted.Write(w, r, nil) // an error means that the client has disconnected
}

// newJob returns the job that a request asks for.
func (x *exporter) newJob(r *http.Request, of scope) (*job, error) {
	now := time.Now()
	j := &job{
		Scope: of, Path: strings.TrimPrefix(r.URL.EscapedPath(), Path), Query: r.URL.RawQuery,
		Lenient: preference(r, "handling") == "lenient",
		UnixMs:  now.UnixMilli(), ExpiresUnix: now.Add(ExportKept).Unix(),
	}
	if of == ofGroup {
		prefix, ok := parseGroupID(x.opt.Param(r, "id"))
		if !ok {
			return nil, storage.ErrNotFound
		}
		j.Group = prefix.String()
	}
	values, err := exportParameters(r)
	if err != nil {
		return nil, err
	}
	if j.Params = values.Encode(); max(len(j.Params), len(j.Query)) > maxExport {
		return nil, &query.ParamError{Reason: "the parameters are too long"}
	}
	q, err := x.parse(r, j)
	if err != nil || x.changes == nil {
		return j, err
	}
	if !j.Lenient {
		if err := x.known(r, q); err != nil {
			return nil, err
		}
	}
	// What is stored later may have changed at the time of the position, too.
	p, _, err := x.changes.Position(r.Context())
	j.UnixMs = max(p.ChangedUnixMs, 1) - 1
	return j, err
}

// known returns errOldSince if some of what was removed since _since is not known.
func (x *exporter) known(r *http.Request, q *exportQuery) error {
	if !q.incremental() || x.changes == nil {
		return nil
	}
	kept, err := x.changes.KeptSince(r.Context())
	if err == nil && q.sinceUnixMs < kept {
		err = errOldSince
	}
	return err
}

// Errors of exports.
var (
	errNoChanges = errors.New("the store keeps no changes")
	errOldSince  = errors.New("what was removed since then is not known")
	errNoExport  = errors.New("no export")
	errNotParams = errors.New("not a resource Parameters")
)

// refuse answers a request after an error.
func (x *exporter) refuse(w http.ResponseWriter, r *http.Request, access *gate.Access, err error) {
	p := x.opt.Problems
	switch {
	case errors.Is(err, errNoChanges):
		x.reject(w, r, p.NotKept, 0, "Without _since, an export has everything.")
	case errors.Is(err, errOldSince):
		x.reject(w, r, p.CursorUnknown, 0,
			"What was removed since _since is no longer known. Export without it, or with Prefer: handling=lenient.")
	case errors.Is(err, errNoExport):
		x.reject(w, r, p.NotFound, 0, "These credentials have no such export, or it has expired.")
	case errors.Is(err, errNotParams):
		x.reject(w, r, p.Malformed, 0, "The body must be a resource of type Parameters, in JSON.")
	default:
		x.fail(w, r, access, err)
	}
}

// exportParameters returns the parameters of a request, in the query and, with POST, in a resource Parameters.
func exportParameters(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || !utf8.ValidString(r.URL.RawQuery) {
		return nil, &query.ParamError{Reason: "the query is not well formed"}
	}
	if r.Method != http.MethodPost {
		return values, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxFormBytes+1))
	if len(body) == 0 && err == nil {
		return values, nil
	}
	var sent struct {
		ResourceType string                      `json:"resourceType"`
		Parameter    []map[string]jsontext.Value `json:"parameter"`
	}
	if err == nil && len(body) <= maxFormBytes {
		err = json.Unmarshal(body, &sent)
	}
	if err != nil || sent.ResourceType != "Parameters" {
		return nil, errNotParams
	}
	for _, p := range sent.Parameter {
		var name, value string // a value that is no text is that of a parameter that is not supported
		for member, text := range p {
			switch {
			case text.Kind() != '"':
			case member == "name":
				err = json.Unmarshal(text, &name)
			case strings.HasPrefix(member, "value"):
				err = json.Unmarshal(text, &value)
			}
		}
		if values.Add(name, value); err != nil {
			return nil, errNotParams
		}
	}
	return values, nil
}

// exportTypes are the types of the resources of an export. It is never modified.
var exportTypes = []string{"Patient", "Device", "Observation"}

const ndjsonType = "application/fhir+ndjson"

// An exportQuery has the parameters of an export.
type exportQuery struct {
	types       []string
	sinceUnixMs int64     // only what was changed later; -1 means everything
	filters     []*search // an Observation matches one of them; nil means any
	ignored     bool      // some parameters, or parts of their values, are ignored
}

func (q *exportQuery) incremental() bool { return q.sinceUnixMs >= 0 }

// parse parses the parameters of a job.
func (x *exporter) parse(r *http.Request, j *job) (*exportQuery, error) {
	values, err := url.ParseQuery(j.Params)
	if err != nil {
		return nil, err
	}
	q := &exportQuery{sinceUnixMs: -1}
	for name, given := range values {
		for _, value := range given {
			reason := ""
			switch name {
			case formatParam, "_pretty":
			case "_outputFormat":
				typ := strings.ReplaceAll(value, " ", "+") // a + in a query is a space
				if !slices.Contains([]string{ndjsonType, "application/ndjson", "ndjson"}, typ) {
					reason = "not " + ndjsonType
				}
			case "_since":
				if len(given) > 1 {
					return nil, &query.ParamError{Name: name, Reason: "more than one"}
				}
				if q.sinceUnixMs = parseSince(value); q.sinceUnixMs < 0 {
					return nil, &query.ParamError{Name: name, Reason: reasonSince}
				}
			case "_type":
				for typ := range strings.SplitSeq(value, ",") {
					if q.types = append(q.types, typ); !slices.Contains(exportTypes, typ) {
						reason = "not of " + strings.Join(exportTypes, ", ")
					}
				}
			case "_typeFilter":
				for text := range strings.SplitSeq(value, ",") {
					reason = cmp.Or(q.addFilter(text, x.base(r), x.reader.Signs()), reason)
				}
			default:
				name, reason = "", "a parameter is not one of _outputFormat, _since, _type and _typeFilter"
			}
			if q.ignored = q.ignored || reason != ""; reason != "" && !j.Lenient {
				return nil, &query.ParamError{Name: name, Reason: reason}
			}
		}
	}
	if !values.Has("_type") {
		q.types = exportTypes
	}
	if q.incremental() && x.changes == nil {
		return nil, errNoChanges
	}
	return q, nil
}

// addFilter adds a search of Observations. It returns why it does not.
func (q *exportQuery) addFilter(text, base string, signs *vitals.Signs) (reason string) {
	typ, search, _ := strings.Cut(text, "?")
	values, err := url.ParseQuery(search)
	if typ != "Observation" || err != nil {
		return "not searches of Observation such as Observation?code=8867-4, in which a comma is %2C"
	}
	for name := range values {
		if !slices.Contains([]string{"code", "category", "date", "status", "_lastUpdated"}, name) {
			return "a search has another parameter than code, category, date, status and _lastUpdated"
		}
	}
	s, err := parseSelection(values, true, base, signs)
	if err != nil {
		return err.Error()
	}
	q.filters = append(q.filters, s)
	return ""
}

const reasonSince = "not an instant of FHIR such as 2026-11-21T10:00:00.123Z"

// parseSince returns an instant in Unix ms, rounded down, or -1. A date is its beginning.
func parseSince(text string) int64 {
	if ms, _, err := vitals.ParseRFC3339(strings.ReplaceAll(text, " ", "+")); err == nil {
		return max(ms, 0)
	}
	if p, ok := parsePeriod(text); ok && !strings.Contains(text, ".") { // parsePeriod rounds up
		return max(p.fromUnixMs, 0)
	}
	return -1
}

// parseGroupID parses the id of a Group: the beginning of the names of its devices, written like the id of a Device.
func parseGroupID(id string) (prefix vitals.Name, ok bool) {
	prefix, err := vitals.ParseName(unescape.Replace(id))
	if err != nil {
		return prefix, false
	}
	again, _ := appendEscaped(nil, prefix.Bytes(), 64)
	return prefix, string(again) == id
}
