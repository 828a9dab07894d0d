package docs_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// registerTexts makes openapi3filter accept answers that are not JSON.
func registerTexts() {
	// Files, and texts whose lines are described by contentSchema, see checkLines.
	for _, mediaType := range []string{
		"application/x-ndjson", "text/event-stream", "text/csv", "text/html", "text/css", "text/javascript", "image/svg+xml",
		"application/vnd.apache.parquet",
	} {
		openapi3filter.RegisterBodyDecoder(mediaType, func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef,
			_ openapi3filter.EncodingFn) (any, error) {
			text, err := io.ReadAll(body)
			return string(text), err
		})
	}
}

// framing are the header fields of HTTP itself, which OpenAPI leaves out.
var framing = []string{"Connection", "Content-Length", "Content-Type", "Date", "Trailer", "Transfer-Encoding"}

// A description is the OpenAPI document of a server. As an http.RoundTripper it sends
// requests to the server, and compares them and their answers with the document.
type description struct {
	t      testing.TB
	url    string
	text   []byte
	doc    *openapi3.T
	router routers.Router
	seen   *seen

	transport *http.Transport
}

// seen is what was answered, of all servers.
type seen struct {
	mu       sync.Mutex
	statuses map[string]bool // such as "/v1/devices 200"; guarded by mu
	problems map[string]bool // such as "/v1/devices bad-parameter"; guarded by mu
}

func (s *seen) add(path string, status int, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[fmt.Sprint(path, " ", status)] = true
	if problem != "" {
		s.problems[path+" "+problem] = true
	}
}

// describe fetches and validates the document of a server.
func describe(t testing.TB, url string, seen *seen) *description {
	t.Helper()
	resp, err := http.Get(url + "/openapi.json")
	try(t, err)
	defer resp.Body.Close()
	d := &description{t: t, url: url, seen: seen, transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(d.transport.CloseIdleConnections)
	d.text, err = io.ReadAll(resp.Body)
	try(t, err)
	d.doc, err = openapi3.NewLoader().LoadFromData(d.text)
	try(t, err)
	try(t, d.doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater()))
	d.router, err = gorillamux.NewRouter(d.doc)
	try(t, err)
	return d
}

// lax is a key of contexts. The server may reject requests with it although the
// document allows them: a schema cannot state every rule.
type lax struct{}

// RoundTrip implements http.RoundTripper. The answer is compared when its body ends or is
// closed.
func (d *description) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil && r.Context().Value(lax{}) == nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp, err := d.transport.RoundTrip(r)
	if err == nil {
		resp.Body = &recorder{ReadCloser: resp.Body, d: d, r: r, sent: sent, resp: resp}
	}
	return resp, err
}

// A recorder keeps what is read of the body of an answer.
type recorder struct {
	io.ReadCloser
	d    *description
	r    *http.Request
	sent []byte
	resp *http.Response
	got  bytes.Buffer
	once sync.Once
}

func (b *recorder) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.got.Write(p[:n])
	if err == io.EOF {
		b.compare()
	}
	return n, err
}

func (b *recorder) Close() error {
	b.compare()
	return b.ReadCloser.Close()
}

func (b *recorder) compare() {
	b.once.Do(func() {
		r := b.r.Clone(context.WithoutCancel(b.r.Context()))
		r.Body = io.NopCloser(bytes.NewReader(b.sent))
		r.ContentLength = int64(len(b.sent))
		for _, err := range b.d.compare(r, b.resp, b.got.Bytes()) {
			b.d.t.Errorf("%s %s %.300s\nanswered %s %v\n%.500s\n%v", r.Method, r.URL.RequestURI(), b.sent, b.resp.Status,
				b.resp.Header, b.got.String(), err)
		}
	})
}

// A problem is what the test reads of problem documents.
type problem struct {
	Type, Field, Reason, Detail string
	Message                     string // instead of Detail, in the errors of InfluxDB 2
}

// compare returns in what a request and its answer differ from the document.
func (d *description) compare(r *http.Request, resp *http.Response, body []byte) (differences []error) {
	differ := func(format string, args ...any) { differences = append(differences, fmt.Errorf(format, args...)) }
	// The prompt of a shell follows on a line of its own.
	if strings.HasSuffix(resp.Header.Get("Content-Type"), "json") && resp.Header.Get("Content-Encoding") == "" &&
		len(body) > 0 &&
		(body[len(body)-1] != '\n' || bytes.HasSuffix(body, []byte("\n\n"))) {
		differ("the answer does not end with one newline")
	}
	var p problem
	if resp.Header.Get("Content-Type") == "application/problem+json" && len(body) > 0 {
		if err := json.Unmarshal(body, &p); err != nil {
			differ("%w", err)
		}
		_, p.Type, _ = strings.Cut(p.Type, "#")
	}
	described := r.Clone(r.Context()) // HEAD and OPTIONS are answered everywhere, and not described
	if r.Method == http.MethodHead {
		described.Method = http.MethodGet
	}
	route, params, err := d.router.FindRoute(described)
	if r.Method == http.MethodOptions && p.Type == "" && d.has(r.URL.Path) {
		d.compareOptions(r, resp, differ)
		return differences
	}
	if err != nil {
		d.compareUnknown(r, resp, body, p, differ)
		return differences
	}
	d.seen.add(route.Path, resp.StatusCode, p.Type)
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
			IncludeResponseStatus: true, SkipSettingDefaults: true},
	}
	if r.Context().Value(lax{}) == nil {
		invalid := openapi3filter.ValidateRequest(r.Context(), in)
		if invalid == nil {
			invalid = d.undescribed(route.Operation, r)
		}
		switch {
		case invalid != nil && resp.StatusCode < 300 && resp.StatusCode != http.StatusMultiStatus:
			differ("accepted what is not described: %w", invalid)
		case invalid == nil && slices.Contains([]string{"bad-parameter", "malformed-body", "invalid-reading"}, p.Type):
			differ("rejected what is described")
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: resp.StatusCode,
		Header: resp.Header, Options: in.Options}
	if resp.Header.Get("Content-Encoding") == "gzip" && r.Method != http.MethodHead {
		if z, err := gzip.NewReader(bytes.NewReader(body)); err != nil {
			differ("%w", err)
		} else if body, err = io.ReadAll(z); err != nil {
			differ("%w", err)
		}
	}
	out.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		differ("%w", err)
	}
	answer := route.Operation.Responses.Status(resp.StatusCode)
	if answer == nil {
		differ("the status is not described") // ValidateResponse ignores HEAD
		return differences
	}
	for _, fields := range []http.Header{resp.Header, resp.Trailer} {
		for name := range fields {
			isDescribed := func(key string) bool { return strings.EqualFold(key, name) }
			if !slices.Contains(framing, name) &&
				!slices.ContainsFunc(slices.Collect(maps.Keys(answer.Value.Headers)), isDescribed) {
				differ("the header field %s is not described", name)
			}
		}
	}
	if p.Type != "" {
		if media := answer.Value.Content["application/problem+json"]; media == nil || media.Examples[p.Type] == nil {
			differ("the problem is not described")
		}
	}
	if media := answer.Value.Content.Get(resp.Header.Get("Content-Type")); media != nil && media.Schema != nil &&
		media.Schema.Value.ContentSchema != nil {
		if err := checkLines(media.Schema.Value, body); err != nil {
			differ("%w", err)
		}
	}
	return differences
}

// compareUnknown compares the answer to a request that is not described.
func (d *description) compareUnknown(r *http.Request, resp *http.Response, body []byte, p problem,
	differ func(string, ...any)) {
	wants := map[string]int{"not-found": 404, "method-not-allowed": 405, "untrusted-origin": 403}
	if r.Method == http.MethodHead {
		p.Type = map[int]string{404: "not-found", 405: "method-not-allowed", 403: "untrusted-origin"}[resp.StatusCode]
	}
	if want, ok := wants[p.Type]; !ok || want != resp.StatusCode {
		differ("the address is not described")
	}
	var document any
	if err := json.Unmarshal(body, &document); err == nil {
		if err := d.doc.Components.Schemas["Problem"].Value.VisitJSON(document, openapi3.EnableJSONSchema2020()); err != nil {
			differ("%w", err)
		}
	}
	if resp.StatusCode == http.StatusMethodNotAllowed {
		d.compareAllow(r, resp, differ)
	}
}

// has reports whether a path is described.
func (d *description) has(path string) bool {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if _, _, err := d.router.FindRoute(&http.Request{Method: method, URL: &url.URL{Path: path}}); err == nil {
			return true
		}
	}
	return false
}

// compareOptions compares the answer to OPTIONS of a described path.
func (d *description) compareOptions(r *http.Request, resp *http.Response, differ func(string, ...any)) {
	if resp.StatusCode != http.StatusNoContent {
		differ("not 204")
	}
	d.compareAllow(r, resp, differ)
	for name := range resp.Header {
		if !slices.Contains(framing, name) && name != "Allow" && name != "Vary" &&
			!strings.HasPrefix(name, "Access-Control-") {
			differ("the header field %s is not described", name)
		}
	}
}

// compareAllow compares the methods in Allow with those that are described, HEAD and OPTIONS.
func (d *description) compareAllow(r *http.Request, resp *http.Response, differ func(string, ...any)) {
	item := d.doc.Paths.Value(r.URL.Path)
	if item == nil {
		return // the path has variables
	}
	described := slices.Sorted(maps.Keys(item.Operations()))
	if item.Get != nil {
		described = append(described, http.MethodHead)
	}
	got := strings.Split(resp.Header.Get("Allow"), ", ")
	got = slices.DeleteFunc(got, func(method string) bool { return method == http.MethodOptions })
	slices.Sort(got)
	slices.Sort(described)
	if !slices.Equal(got, described) {
		differ("Allow is %q, described are %q", got, described)
	}
}

// undescribed returns an error if a query has other parameters than an operation, which
// ValidateRequest ignores.
func (d *description) undescribed(op *openapi3.Operation, r *http.Request) error {
	if op.Responses.Status(http.StatusBadRequest) == nil || r.Method == http.MethodPost {
		return nil // the query is ignored
	}
	for name, values := range r.URL.Query() {
		p := op.Parameters.GetByInAndName("query", name)
		if p == nil {
			return fmt.Errorf("the parameter %s is not described", name)
		}
		if len(values) > 1 && !p.Schema.Value.Type.Is("array") {
			return fmt.Errorf("the parameter %s is repeated", name)
		}
	}
	return nil
}

// checkLines validates the JSON documents in a text with a schema for its lines. The last
// line may be cut off.
func checkLines(s *openapi3.Schema, body []byte) error {
	for line := range bytes.Lines(body) {
		if s.ContentMediaType == "text/event-stream" {
			var ok bool
			if line, ok = bytes.CutPrefix(line, []byte("data: ")); !ok {
				continue
			}
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		var document any
		if err := json.Unmarshal(line, &document); err != nil {
			return err
		}
		if err := s.ContentSchema.Value.VisitJSON(document, openapi3.EnableJSONSchema2020()); err != nil {
			return fmt.Errorf("line %.300s: %w", line, err)
		}
	}
	return nil
}
