package mux_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/mux"
)

var planTemplates = []struct {
	text    string
	planned bool // as a path, not strict
}{
	{"/a", true}, {"/", true}, {"", true}, {"/{x}", true}, {"/{x}/", true}, {"/{x}/b/{y}", true},
	{"/{x:[0-9]+}", true}, {"/{x:[a-z]*}/b", true}, {"/{x:a|b}", true}, {"/{x:a{1,2}}/b", true},
	{"/{x:.*}", true}, {"/a{x:.+}", true}, {"/{x:(?i)ab}", true}, {"/{x:[^/]+?}/b", true},
	{"/a-{x:[0-9]+}-{y}", true}, {"/é/{x:[é]+}/b", true}, {"/{x}é", false}, {"/{x:(?s).*}", true},
	{"/{x}-{y}", false}, {"/{x}{y}", false}, {"/{x}.b", false}, {"/{x:.*}/b", false},
	{"/{x:^a}", false}, {"/{x:a$}/b", false}, {`/{x:\ba}`, false}, {"/\uFFFD", false}, {"/{x:a/b}/{y}", false},
	{"/{x:(?:a|b/)*}", true}, {"/{x:[ab]+?}", true}, {"/{x:[^a]+}a", true}, {"/{x}/{x}", true},
}

// TestPlanAgreesWithRegexp compares all short strings.
func TestPlanAgreesWithRegexp(t *testing.T) {
	longest := 5
	if testing.Short() {
		longest--
	}
	inputs := words("/ab-", longest)
	for _, w := range words("/a\n\xff", 4) {
		inputs = append(inputs, w, w+"é", "/é/"+w, "/\uFFFD"+w, w+"12/A")
	}
	for _, tt := range planTemplates {
		for kind := mux.PathKind; kind <= mux.QueryKind; kind++ {
			text, before := tt.text, ""
			if kind == mux.QueryKind {
				text, before = "k="+text, "k="
			}
			for _, strict := range []bool{false, true} {
				if diff, _ := mux.ComparePlan(text, kind, strict, with(before, inputs)...); diff != "" {
					t.Fatalf("kind %d, strict %v: %s", kind, strict, diff)
				}
			}
		}
	}
}

func with(prefix string, words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = prefix + w
	}
	return out
}

func FuzzPlan(f *testing.F) {
	for i, tt := range planTemplates {
		f.Add(tt.text, i%2 == 0, "/a/b")
	}
	f.Fuzz(func(t *testing.T, template string, strict bool, in string) {
		if len(template) > 60 || len(in) > 200 || strings.ContainsAny(template, "()") {
			return // capturing groups panic, and long repeats are slow to compile
		}
		for k := mux.PathKind; k <= mux.QueryKind; k++ {
			text := template
			if k == mux.QueryKind {
				text = "k=" + template
			}
			if diff, _ := mux.ComparePlan(text, k, strict, in); diff != "" {
				t.Fatalf("kind %d: %s", k, diff)
			}
		}
	})
}

func TestCleanPath(t *testing.T) {
	for _, p := range words("/.a", 6) {
		checkClean(t, p)
	}
}

func FuzzCleanPath(f *testing.F) {
	f.Add("/a/../b/./c//")
	f.Fuzz(checkClean)
}

// checkClean compares cleanPath with path.Clean, on which it is based.
func checkClean(t *testing.T, p string) {
	clean := mux.CleanPath(p)
	if got, want := mux.IsClean(p), clean == p; got != want {
		t.Fatalf("IsClean(%q) = %v, but it is cleaned to %q", p, got, clean)
	}
	want := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && want != "/" {
		want += "/"
	}
	if clean != want || !mux.IsClean(clean) {
		t.Fatalf("CleanPath(%q) = %q, want %q", p, clean, want)
	}
}

func FuzzFirstQueryValue(f *testing.F) {
	f.Add("a=b&k=v&k=w", "k")
	f.Add("k=%zz&%6b=1+2", "k")
	f.Fuzz(func(t *testing.T, query, key string) {
		if strings.Contains(query, ";") {
			return // net/url rejects semicolons
		}
		// ParseQuery returns the pairs that it could parse along with its
		// error.
		values, _ := url.ParseQuery(query)
		want := values.Get(key)
		if got, found := mux.FirstQueryValue(query, key); got != want || found != values.Has(key) {
			t.Fatalf("FirstQueryValue(%q, %q) = %q, %v, want %q, %v", query, key, got, found, want, values.Has(key))
		}
	})
}
