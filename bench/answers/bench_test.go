package answers_test

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/pulsegate/pulsegate/bench/answers"
)

const contentType = "application/json"

// checkHeaders returns an error unless d has exactly the fields set by every form.
func checkHeaders(d *answers.Discard, key, value string) error {
	h := d.Header()
	if len(h) != 3 || h.Get("Content-Type") != contentType || h.Get("Cache-Control") != "no-store" || h.Get(key) != value {
		return fmt.Errorf("got header %v, want it to have %s %s", h, key, value)
	}
	return nil
}

// BenchmarkHealthz measures /healthz.
func BenchmarkHealthz(b *testing.B) {
	for _, form := range answers.Health() {
		b.Run("impl="+form.Impl, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/healthz", nil)
			if err := answers.Check(form.Handler, r, contentType, answers.HealthAnswer); err != nil {
				b.Fatal(err)
			}
			d := answers.NewDiscard()
			b.ReportAllocs()
			for b.Loop() {
				form.Handler.ServeHTTP(d, r)
			}
		})
	}
}

// BenchmarkHeaders sets three fields of a response: all constant (set=fixed), or one of
// them a varying number (set=dynamic).
func BenchmarkHeaders(b *testing.B) {
	for _, form := range answers.HeaderForms() {
		b.Run("impl="+form.Impl+"/set=fixed", func(b *testing.B) {
			d := answers.NewDiscard()
			b.ReportAllocs()
			for b.Loop() {
				form.Fixed(d.Header())
			}
			if err := checkHeaders(d, "X-Content-Type-Options", "nosniff"); err != nil {
				b.Fatal(err)
			}
		})
		b.Run("impl="+form.Impl+"/set=dynamic", func(b *testing.B) {
			d := answers.NewDiscard()
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				form.Dynamic(d.Header(), n)
				n = (n + 1) & answers.MaxDynamic
			}
			form.Dynamic(d.Header(), 161)
			if err := checkHeaders(d, "Content-Length", "161"); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkVitals posts readings. Because there is only one request at a time, a group
// commit has groups of one, which is its worst case.
func BenchmarkVitals(b *testing.B) {
	forms, stop, err := answers.Vitals()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := stop(); err != nil {
			b.Error(err)
		}
	})
	for _, form := range forms {
		b.Run("impl="+form.Impl, func(b *testing.B) {
			posts := answers.NewPosts(1024)
			if err := answers.Check(form.Handler, posts.Next(), contentType, answers.VitalsAnswer); err != nil {
				b.Fatal(err)
			}
			d := answers.NewDiscard()
			b.ReportAllocs()
			for b.Loop() {
				form.Handler.ServeHTTP(d, posts.Next())
			}
		})
	}
}
