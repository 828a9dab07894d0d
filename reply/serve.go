package reply

import (
	"net/http"
	"time"
)

// ServeHTTP sends the answer. It allocates nothing, unless another layer has
// put other names into Vary.
//
// Fields that describe another body, such as a Content-Encoding that the caller
// had set before it decided to refuse, are removed. An error of Write means that
// the client has gone; there is nobody to tell.
func (a *Answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.serve(w, r, nil)
}

// WriteRetryAfter is ServeHTTP with a Retry-After of d, rounded up to seconds. It
// takes the place of the one that the answer was made with, if any. Up to 4,095
// seconds it allocates nothing.
func (a *Answer) WriteRetryAfter(w http.ResponseWriter, r *http.Request, d time.Duration) {
	a.serve(w, r, retryValue(d))
}

// serve sends the answer, with the given Retry-After unless it is nil.
func (a *Answer) serve(w http.ResponseWriter, r *http.Request, retryAfter []string) {
	h := w.Header()
	v := &a.variants[0]
	if len(a.variants) > 1 {
		v = selectVariant(a.variants, r.Header["Accept-Encoding"])
	}
	isHead := r.Method == http.MethodHead
	if v.etag != "" && (isHead || r.Method == http.MethodGet) && MatchETag(r.Header["If-None-Match"], v.etag) {
		a.serveNotModified(w, h, v)
		return
	}
	fields := v.fields
	if isHead {
		fields = v.headFields
	}
	fields.put(h)
	if a.vary != nil {
		a.vary.put(h)
	}
	if retryAfter != nil {
		h["Retry-After"] = retryAfter
	}
	if isHead || len(v.body) == 0 {
		w.WriteHeader(a.status)
		return
	}
	// Write implies a 200.
	if a.status != http.StatusOK {
		w.WriteHeader(a.status)
	}
	w.Write(v.body)
}

// serveNotModified tells the client to use what it has.
func (a *Answer) serveNotModified(w http.ResponseWriter, h http.Header, v *variant) {
	v.notModified.put(h)
	delete(h, "Content-Type")
	if a.vary != nil {
		a.vary.put(h)
	}
	w.WriteHeader(http.StatusNotModified)
}

// retryValue returns d as the value of Retry-After.
func retryValue(d time.Duration) []string {
	return IntValue(int(retrySeconds(d)))
}
