package answers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pulsegate/pulsegate/bench/answers"
)

// checkHeaders returns an error unless d has exactly the fields set by every form.
func checkHeaders(d *answers.Discard, key, value string) error {
	h := d.Header()
	if len(h) != 3 || h.Get("Content-Type") != contentType || h.Get("Cache-Control") != "no-store" || h.Get(key) != value {
		return fmt.Errorf("got header %v, want it to have %s %s", h, key, value)
	}
	return nil
}

func TestFormsAnswerAlike(t *testing.T) {
	for _, form := range answers.Health() {
		r := httptest.NewRequest("GET", "/healthz", nil)
		if err := answers.Check(form.Handler, r, contentType, answers.HealthAnswer); err != nil {
			t.Errorf("health, %s: %v", form.Impl, err)
		}
	}
	forms, stop, err := answers.Vitals()
	if err != nil {
		t.Fatal(err)
	}
	posts := answers.NewPosts(3)
	for _, form := range forms {
		if err := answers.Check(form.Handler, posts.Next(), contentType, answers.VitalsAnswer); err != nil {
			t.Errorf("vitals, %s: %v", form.Impl, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestHeaderFormsAgree(t *testing.T) {
	for _, form := range answers.HeaderForms() {
		fixed, dynamic := answers.NewDiscard(), answers.NewDiscard()
		form.Fixed(fixed.Header())
		if err := checkHeaders(fixed, "X-Content-Type-Options", "nosniff"); err != nil {
			t.Errorf("%s: %v", form.Impl, err)
		}
		form.Dynamic(dynamic.Header(), 7)
		if err := checkHeaders(dynamic, "Content-Length", "7"); err != nil {
			t.Errorf("%s: %v", form.Impl, err)
		}
	}
}

// Check must fail for a wrong answer, because the benchmarks rely on it.
func TestCheckFinds(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(500)
			w.Write([]byte(`{"status":"ok"}`))
		},
		"content type": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"status":"ok"}`)) },
		"body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Write([]byte(`{"status":"no"}`))
		},
		"not JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Write([]byte(`ok`))
		},
		"no body": func(http.ResponseWriter, *http.Request) {},
	} {
		if answers.Check(h, httptest.NewRequest("GET", "/", nil), contentType, `{"status":"ok"}`) == nil {
			t.Errorf("%s: Check returned nil", name)
		}
	}
}
