package fhir

import (
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// formatParam is the parameter that overrides the Accept header.
const formatParam = "_format"

// mediaTypes are the media types of resources in JSON, the preferred one first. They are never
// modified.
var mediaTypes = [...]string{contentType, "application/json"}

// negotiate returns the media type of the answer to a request with a query and an Accept header.
// It reports false if the client accepts none of mediaTypes.
func negotiate(query string, accept []string) (string, bool) {
	values, _ := url.ParseQuery(query) // an invalid query is reported later
	if format := values.Get(formatParam); format != "" {
		// A + in a query is a space.
		switch typ, _, _ := strings.Cut(strings.ReplaceAll(format, " ", "+"), ";"); typ {
		case "json", "text/json", "application/json", contentType, "application/json+fhir":
			return contentType, true
		}
		return "", false
	}
	if len(accept) == 0 {
		return contentType, true
	}
	for _, typ := range mediaTypes {
		for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
			if accepts(strings.TrimSpace(item), typ) {
				return typ, true
			}
		}
	}
	return "", false
}

// accepts reports whether a media range of an Accept header includes a media type of FHIR R4.
func accepts(item, typ string) bool {
	name, params, err := mime.ParseMediaType(item)
	if err != nil || strings.Trim(params["q"], "0.") == "" && params["q"] != "" {
		return false
	}
	if version := params["fhirversion"]; version != "" && version != "4.0" {
		return false
	}
	return name == typ || name == "*/*" || name == "application/*" || name == "application/json+fhir" && typ == contentType
}

// JSON returns a handler that serves those requests with next whose client accepts an answer in
// JSON and does not send XML or Turtle, and rejects others: so nothing is stored of them. Beside
// these, the Content-Type does not matter.
func (h *Handler) JSON(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		typ, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
		if strings.Contains(typ, "xml") || strings.Contains(typ, "turtle") {
			h.reject(w, r, h.opt.Problems.UnsupportedType, 0, "Resources are read as application/fhir+json.")
			return
		}
		if _, ok := h.negotiate(w, r); ok {
			next.ServeHTTP(w, r)
		}
	})
}
