package openapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/openapi"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

// options are the default options.
var options = openapi.Options{
	Version:  "test",
	Problems: problem.New(),
	Ingest: ingest.Config{
		Limits: vitals.NewSigns().DefaultLimits(), MaxSingleBytes: ingest.DefaultMaxSingleBytes,
		MaxBatchBytes: ingest.DefaultMaxBatchBytes, MaxReadings: ingest.DefaultMaxReadings,
	},
	StaleAfter: query.DefaultStaleAfter,
	Tokens:     true,
}

// describe returns the document of a server with default options.
func describe() []byte { return openapi.Describe(options) }

// A client asks each time whether it has the document, which is compressed if it accepts that.
// Package dashboard tests the rest.
func TestHandler(t *testing.T) {
	h := openapi.Handler(options)
	serve := func(name, value string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", openapi.Path, nil)
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	plain, zipped := serve("", ""), serve("Accept-Encoding", "gzip")
	if plain.Body.String() != string(describe()) || plain.Header().Get("Content-Type") != "application/json" ||
		plain.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("plain: %v, %.100s", plain.Header(), plain.Body)
	}
	if zipped.Header().Get("Content-Encoding") != "gzip" || zipped.Body.Len() > plain.Body.Len()/4 {
		t.Errorf("compressed: %v, %d bytes", zipped.Header(), zipped.Body.Len())
	}
	if again := serve("If-None-Match", plain.Header().Get("ETag")); again.Code != 304 {
		t.Errorf("again: %d", again.Code)
	}
}

// A document is what the tests read of the description.
type document struct {
	Paths      map[string]map[string]operation
	Components struct {
		Responses map[string]struct {
			Content map[string]struct{ Examples map[string]any }
		}
	}
}

type operation struct {
	Parameters []parameter
	Responses  map[string]struct {
		Ref string `json:"$ref"`
	}
}

type parameter struct {
	Name, In string
	Schema   struct {
		Enum     []string
		Default  any
		Minimum  *int
		Maximum  *int
		Pattern  string
		MaxItems *int
	}
}

func parse(t *testing.T) (d document) {
	t.Helper()
	try(t, json.Unmarshal(describe(), &d))
	return d
}

const page = "../../../docs/api.md"

// The pages name the path of every operation.
func TestPathsAreDescribed(t *testing.T) {
	var pages strings.Builder
	for _, name := range []string{"api.md", "page.md", "influxdb.md"} {
		text, err := os.ReadFile("../../../docs/" + name)
		try(t, err)
		pages.Write(text)
	}
	for path := range parse(t).Paths {
		if !strings.Contains(pages.String(), path) && !strings.HasPrefix(path, "/assets/") {
			t.Errorf("no page names %s", path)
		}
	}
}

// The tables of parameters in docs/api.md have the parameters of the description, with
// their choices, defaults and limits.
//
// Seen to fail without the parameter counts in the page, and with another limit.
func TestParameters(t *testing.T) {
	text, err := os.ReadFile(page)
	try(t, err)
	d := parse(t)
	rows := map[string]map[string]string{} // by path and parameter
	path, isTable := "", false
	row := regexp.MustCompile("^\\| (`[a-z_]+`(?:, `[a-z_]+`)*) \\| (.*)")
	address := regexp.MustCompile("`GET (/v1/[a-z/{}]*)`")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			path = ""
		}
		if m := address.FindStringSubmatch(line); m != nil && path == "" {
			path = m[1]
		}
		if !strings.HasPrefix(line, "|") {
			isTable = false
		} else if strings.HasPrefix(line, "| parameter |") {
			isTable = true
		}
		if m := row.FindStringSubmatch(line); m != nil && isTable {
			for name := range strings.SplitSeq(m[1], ", ") {
				if rows[path] == nil {
					rows[path] = map[string]string{}
				}
				rows[path][strings.Trim(name, "`")] = m[2]
			}
		}
	}
	for path, methods := range d.Paths {
		var names []string
		for _, p := range methods["get"].Parameters {
			if p.In != "query" {
				continue
			}
			names = append(names, p.Name)
			var facts []string
			if path != "/v1/devices/{device}/readings" || p.Name != "flag" { // all flags have a table of their own
				facts = append(facts, p.Schema.Enum...)
			}
			for _, n := range []*int{p.Schema.Minimum, p.Schema.Maximum, p.Schema.MaxItems} {
				if n != nil {
					facts = append(facts, thousands(fmt.Sprint(*n)))
				}
			}
			values, byDefault, _ := strings.Cut(rows[path][p.Name], " | ")
			for _, fact := range facts {
				if !strings.Contains(values, fact) {
					t.Errorf("docs/api.md, %s, parameter %s: %q does not have %s", path, p.Name, values, fact)
				}
			}
			want := fmt.Sprint(p.Schema.Default)
			if n, ok := p.Schema.Default.(float64); ok {
				want = thousands(fmt.Sprint(int(n)))
			}
			if p.Schema.Default != nil && !strings.Contains(byDefault, want) {
				t.Errorf("docs/api.md, %s, default of %s: %q does not have %s", path, p.Name, byDefault, want)
			}
		}
		slices.Sort(names)
		if got := slices.Sorted(maps.Keys(rows[path])); !slices.Equal(got, names) {
			t.Errorf("docs/api.md has the parameters %q of %s, described are %q", got, path, names)
		}
	}
}

// thousands writes commas into a number.
func thousands(n string) string {
	for i := len(n) - 3; i > 0; i -= 3 {
		n = n[:i] + "," + n[i:]
	}
	return n
}

// The pattern of tz takes the zones that the server takes; only the server knows which names exist.
func TestZonePattern(t *testing.T) {
	found := 0
	for path, methods := range parse(t).Paths {
		for _, p := range methods["get"].Parameters {
			if p.Name != "tz" {
				continue
			}
			found++
			pattern := regexp.MustCompile(p.Schema.Pattern)
			for zone, want := range map[string]bool{
				"UTC": true, "Europe/Berlin": true, "America/Port-au-Prince": true, "America/Argentina/ComodRivadavia": true,
				"Etc/GMT+5": true, "GMT0": true, "EST5EDT": true,
				"+05:30": true, "-00:00": true, "+19:00": true, "+23:59": true, "-23:59": true, " 05:30": true,
				"": false, "+24:00": false, "-24:00": false, "+24:59": false, "+30:00": false, "+05:60": false, "+5:30": false,
				"05:30": false, "+0530": false, "+05:30x": false,
			} {
				if got := pattern.MatchString(zone); got != want {
					t.Errorf("%s: the pattern matches %q: %v, want %v", path, zone, got, want)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no parameter tz")
	}
}

var try = polltest.Try
