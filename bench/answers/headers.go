package answers

import (
	"net/http"
	"strconv"

	"github.com/pulsegate/pulsegate/reply"
)

// A Headers is a way to set three fields of a response.
type Headers struct {
	Impl string

	// Fixed sets three constant fields, Dynamic two constant ones and a Content-Length
	// of n.
	Fixed   func(h http.Header)
	Dynamic func(h http.Header, n int)
}

// Values of the fields.
const (
	contentType = "application/json"
	noStore     = "no-store"
	nosniff     = "nosniff"
)

// MaxDynamic is the maximum n for Dynamic.
const MaxDynamic = 255

// HeaderForms returns the forms. The form After is not safe for concurrent use: it writes the
// values of each response into the same three slices. Its texts of integers are precomputed, to
// measure only the cost of the slices.
func HeaderForms() []Headers {
	shared := [3][]string{{""}, {""}, {""}}
	var lengths [MaxDynamic + 1]string
	for n := range lengths {
		lengths[n] = strconv.Itoa(n)
	}
	json, private, sniff := reply.Value(contentType), reply.Value(noStore), reply.Value(nosniff)
	return []Headers{{
		Impl: Before,
		Fixed: func(h http.Header) {
			h.Set("Content-Type", contentType)
			h.Set("Cache-Control", noStore)
			h.Set("X-Content-Type-Options", nosniff)
		},
		Dynamic: func(h http.Header, n int) {
			h.Set("Content-Type", contentType)
			h.Set("Cache-Control", noStore)
			h.Set("Content-Length", strconv.Itoa(n))
		},
	}, {
		Impl: After,
		Fixed: func(h http.Header) {
			shared[0][0], shared[1][0], shared[2][0] = contentType, noStore, nosniff
			h["Content-Type"] = shared[0]
			h["Cache-Control"] = shared[1]
			h["X-Content-Type-Options"] = shared[2]
		},
		Dynamic: func(h http.Header, n int) {
			shared[0][0], shared[1][0], shared[2][0] = contentType, noStore, lengths[n]
			h["Content-Type"] = shared[0]
			h["Cache-Control"] = shared[1]
			h["Content-Length"] = shared[2]
		},
	}, {
		Impl: Pulsegate,
		Fixed: func(h http.Header) {
			h["Content-Type"] = json
			h["Cache-Control"] = private
			h["X-Content-Type-Options"] = sniff
		},
		Dynamic: func(h http.Header, n int) {
			h["Content-Type"] = json
			h["Cache-Control"] = private
			h["Content-Length"] = reply.IntValue(n)
		},
	}}
}
