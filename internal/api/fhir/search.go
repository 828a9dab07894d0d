package fhir

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// pageParam is the only parameter of a link to the next page: the cursor.
const pageParam = "_page"

// maxFormBytes bounds the body of a search by POST.
const maxFormBytes = 64 << 10

// flushBytes is the amount of text that is buffered before a write.
const flushBytes = 32 << 10

// errNotForm means that the parameters of a search by POST are not in a form.
var errNotForm = errors.New("not a form")

// Search serves GET /fhir/Observation and POST /fhir/Observation/_search.
//
// The search is recorded in the audit log, with each patient whose observations it covers,
// before the first byte of the answer is sent.
func (h *Handler) Search(w http.ResponseWriter, r *http.Request) {
	r = query.WithoutCancel(r)
	head, access, leave, ok := h.begin(w, r)
	if !ok {
		return
	}
	defer leave()
	p, err := h.newPage(r, &access)
	if err != nil {
		h.fail(w, r, &access, err)
		return
	}
	allowed := func() bool {
		access, verdict := h.opt.May(r, token.ReadSubjects)
		return verdict == gate.Allowed && p.plan.readable(&access)
	}
	begin := func() error {
		if r.Method != http.MethodHead {
			if err := h.record(r, &access, p.plan.subjects, p.plan.alone, p.search.measured); err != nil {
				return err
			}
		}
		head.Begin(w)
		return nil
	}
	write := func(out io.Writer) error {
		if r.Method == http.MethodHead {
			return nil
		}
		return p.write(r.Context(), out)
	}
	h.opt.Stream(w, allowed, begin, write, func(err error) { h.fail(w, r, &access, err) })
}

// A page is a page of a searchset.
type page struct {
	search *search
	plan   *plan
	found  *observations
	forms  map[*storage.Assignment]*[numGroups]*form // of what was found, by source
	base   string                                    // URL of the FHIR server
	self   string                                    // URL of the page

	// next returns the URL of the page that continues after a position.
	next func(last position) string
}

// newPage returns the page that a request asks for.
func (h *Handler) newPage(r *http.Request, access *gate.Access) (*page, error) {
	values, err := parameters(r)
	if err != nil {
		return nil, err
	}
	var after *position
	cursor := values.Get(pageParam)
	if cursor != "" {
		for name := range values {
			if name != pageParam && name != formatParam {
				return nil, &query.ParamError{Name: pageParam, Reason: "has all parameters of the search; there must be no others"}
			}
		}
		used, last, ok := open(r, cursor)
		if !ok {
			return nil,
				&query.ParamError{Name: pageParam,
					Reason: "not of a link that was returned with the same credentials; search again"}
		}
		values, after = used, &last
	}
	p := &page{base: h.base(r), forms: map[*storage.Assignment]*[numGroups]*form{}}
	if p.search, err = parseSearch(values, isStrict(r), p.base, h.reader.Signs()); err != nil {
		return nil, err
	}
	if p.plan, err = h.view(access).plan(r.Context(), p.search); err != nil {
		return nil, err
	}
	if after != nil {
		p.plan.notes = nil // the first page has them
	}
	p.found = newObservations(h.reader, h.subjects, p.search, slices.Clone(p.plan.sources), after)
	address := p.base + "/Observation?"
	if p.self = address + p.search.used.Encode(); cursor != "" {
		p.self = address + pageParam + "=" + cursor
	}
	p.next = func(last position) string {
		return address + pageParam + "=" + seal(r, p.search.used, last)
	}
	return p, nil
}

// parameters returns the parameters of a search, in the query and, with POST, in the body.
func parameters(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &query.ParamError{Reason: "the query is not well formed"}
	}
	if r.Method != http.MethodPost {
		return values, nil
	}
	if typ, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); typ != "application/x-www-form-urlencoded" {
		return nil, errNotForm
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxFormBytes+1))
	if err != nil || len(body) > maxFormBytes {
		return nil, &query.ParamError{Reason: "the body could not be read, or has more than " +
			strconv.Itoa(maxFormBytes) + " bytes"}
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, &query.ParamError{Reason: "the body is not well formed"}
	}
	for name, given := range form {
		values[name] = append(values[name], given...)
	}
	return values, nil
}

// isStrict reports whether the client prefers that unknown parameters are rejected.
func isStrict(r *http.Request) bool {
	return preference(r, "handling") == "strict"
}

// preference returns the value of the first preference with a name (RFC 7240), or "".
func preference(r *http.Request, name string) string {
	for item := range strings.FieldsFuncSeq(strings.Join(r.Header["Prefer"], ","), func(c rune) bool {
		return c == ',' ||
			c == ';'
	}) {
		its, value, _ := strings.Cut(item, "=")
		if strings.EqualFold(strings.TrimSpace(its), name) {
			return strings.Trim(value, ` "`)
		}
	}
	return ""
}

// write writes the page as a Bundle.
func (p *page) write(ctx context.Context, w io.Writer) error {
	dst := append(make([]byte, 0, 2*flushBytes), `{"resourceType":"Bundle","type":"searchset"`...)
	if p.search.countOnly {
		total, err := p.count(ctx)
		if err != nil {
			return err
		}
		dst = strconv.AppendInt(append(dst, `,"total":`...), total, 10)
		dst = append(appendLink(append(dst, `,"link":[`...), "self", p.self), "]}\n"...)
		_, err = w.Write(dst)
		return err
	}
	entries, last, more := 0, position{}, false
	separate := func() {
		if entries == 0 {
			dst = append(dst, `,"entry":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, '\n')
		entries++
	}
	for {
		g, ok, err := p.found.next(ctx)
		if err != nil {
			return err
		}
		if more = ok && entries == p.search.count; !ok || more {
			break
		}
		separate()
		dst = p.form(g).appendEntry(dst, p.found.record, p.found.source.ChangedUnixMs)
		last = position{p.found.record.TimeUnixMs, p.found.source.Device, g}
		if len(dst) >= flushBytes {
			if _, err := w.Write(dst); err != nil {
				return err
			}
			dst = dst[:0]
		}
	}
	if len(p.plan.notes) > 0 {
		separate()
		dst = appendNotes(dst, p.plan.notes)
	}
	if entries > 0 {
		dst = append(dst, "\n]"...)
	}
	dst = appendLink(append(dst, `,"link":[`...), "self", p.self)
	if more {
		dst = appendLink(append(dst, ','), "next", p.next(last))
	}
	_, err := w.Write(append(dst, "]}\n"...))
	return err
}

// form returns the form of the Observation of the current record and a group.
func (p *page) form(g group) *form {
	source := p.found.source
	of := p.forms[source]
	if of == nil {
		of = new([numGroups]*form)
		p.forms[source] = of
	}
	if of[g] == nil {
		of[g] = newForm(p.base, p.search.signs, &source.Device, source.Subject, g)
	}
	return of[g]
}

// count returns the number of Observations.
func (p *page) count(ctx context.Context) (total int64, err error) {
	for {
		_, ok, err := p.found.next(ctx)
		if !ok || err != nil {
			return total, err
		}
		total++
	}
}

// appendLink appends a link of a Bundle.
func appendLink(dst []byte, relation, url string) []byte {
	return append(append(append(dst, `{"relation":"`+relation+`","url":`...), quoted(url)...), '}')
}
