package mux_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

// hostileRouter has templates for which a backtracking matcher would have to
// try many combinations: adjacent variables, and a tree with two branches at
// each level.
func hostileRouter() *mux.Router {
	r := mux.NewRouter()
	h := label("")
	for i := range 1 << 8 {
		path := ""
		for bit := range 8 {
			path += [...]string{"/a", "/{v" + fmt.Sprint(bit) + "}"}[i>>bit&1]
		}
		r.Handle(path+"/end", h)
	}
	r.Handle("/{a}-{b}-{c}-{d}-{e}/x", h)
	r.Handle("/{a:(?:a*)*}b/x", h)
	r.Handle("/{a:.*}/{b:.*}/{c:.*}/none", h)
	r.PathPrefix("/{a:(?:a|aa)+}/p").Handler(h)
	r.Path("/q").Queries("k", "{v:(?:a*)*b}").Handler(h)
	return r
}

// hostilePaths are of about n bytes each.
func hostilePaths(n int) map[string]string {
	return map[string]string{
		"one long segment":  "/" + strings.Repeat("a", n),
		"segments":          strings.Repeat("/a", n/2),
		"empty segments":    strings.Repeat("/", n),
		"dot segments":      strings.Repeat("/..", n/3),
		"dashes":            "/" + strings.Repeat("-", n),
		"NUL":               "/" + strings.Repeat("\x00", n),
		"invalid UTF-8":     "/" + strings.Repeat("\xff/", n/2),
		"percent":           "/" + strings.Repeat("%2F", n/3),
		"no slash":          strings.Repeat("a", n),
		"literal and slash": strings.Repeat("/a", 8) + "/" + strings.Repeat("a", n),
	}
}

// TestHostilePaths sends the hostile paths to routers with all flags. Nothing
// may panic, and a redirect must lead to a clean path.
func TestHostilePaths(t *testing.T) {
	pathBytes := 20_000
	if testing.Short() {
		pathBytes /= 5
	}
	for flags := range 8 {
		r := hostileRouter().StrictSlash(flags&1 != 0).SkipClean(flags&2 != 0).AllowHeader(true).AnswerOptions(true)
		if flags&4 != 0 {
			r.UseEncodedPath()
			r.Handle("/{x}/{y}", label(""))
		}
		for name, p := range hostilePaths(pathBytes) {
			for _, method := range []string{"GET", "OPTIONS", "\x00"} {
				u := &url.URL{Path: p, RawQuery: "k=" + strings.Repeat("a", 1_000)}
				if plain, err := url.PathUnescape(p); err == nil && plain != p {
					u.Path, u.RawPath = plain, p
				}
				w := httptest.NewRecorder()
				r.ServeHTTP(w, &http.Request{Method: method, URL: u, Header: http.Header{}})
				location := w.Header().Get("Location")
				if w.Code != 301 {
					continue
				}
				to, err := url.Parse(location)
				if err != nil || strings.HasPrefix(location, "//") || !mux.IsClean(to.EscapedPath()) {
					t.Errorf("%s: redirect to %.80q, %v", name, location, err)
				}
			}
		}
	}
}

// BenchmarkHostilePath doubles the length. Time per byte should stay about the
// same; the metric is ns/byte.
func BenchmarkHostilePath(b *testing.B) {
	r := hostileRouter().SkipClean(true)
	for name := range hostilePaths(100) {
		for _, n := range []int{1_000, 2_000, 4_000, 8_000, 16_000} {
			req := &http.Request{Method: "GET", URL: &url.URL{Path: hostilePaths(n)[name]}, Header: http.Header{}}
			b.Run(fmt.Sprintf("path=%s/bytes=%d", strings.ReplaceAll(name, " ", "-"), n), func(b *testing.B) {
				for b.Loop() {
					var m mux.RouteMatch
					r.Match(req, &m)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/byte")
			})
		}
	}
}
