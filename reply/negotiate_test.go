package reply_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/reply"
)

// negotiated has a body as it is and two variants; zstd is the smallest.
var negotiated = reply.New(200, "text/plain", []byte(strings.Repeat("x", 300)),
	reply.Gzip(), reply.Zstd([]byte("z")))

func TestAcceptEncoding(t *testing.T) {
	for _, tt := range []struct {
		fields []string
		want   string // "" is the body as it is
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"gzip"}, "gzip"},
		{[]string{"x-gzip"}, "gzip"},
		{[]string{"GZip"}, "gzip"},
		{[]string{"gzip, deflate, br, zstd"}, "zstd"},
		{[]string{"gzip", "zstd"}, "zstd"},
		{[]string{"gzip;q=1.0, zstd;q=0.999"}, "gzip"},
		{[]string{"gzip ; q=0.5"}, "gzip"},
		{[]string{"gzip;Q=0.5"}, "gzip"},
		{[]string{"gzip;q=0.001"}, "gzip"},
		{[]string{"gzip;q=0"}, ""},
		{[]string{"gzip;q=0.000"}, ""},
		{[]string{"gzip;q=0.5, identity"}, ""},
		{[]string{"gzip;q=0.5, identity;q=0.5"}, "gzip"},
		{[]string{"identity"}, ""},
		{[]string{"deflate"}, ""},
		{[]string{"*"}, "zstd"},
		{[]string{"*;q=0.5, zstd;q=0"}, "gzip"},
		{[]string{"*;q=0"}, ""}, // nothing is acceptable: the server may ignore the field
		{[]string{"gzip, *;q=0"}, "gzip"},
		{[]string{"identity;q=0"}, ""},
		{[]string{"identity;q=0, gzip;q=0.1"}, "gzip"},
		{[]string{"gzip;q=2"}, ""},     // malformed: passed over
		{[]string{"gzip;q="}, ""},      // malformed
		{[]string{"gzip;q=1.5"}, ""},   // malformed
		{[]string{"gzip;q=-1"}, ""},    // malformed
		{[]string{"gzip;q=0x1"}, ""},   // malformed
		{[]string{"gzip;level=9"}, ""}, // malformed: codings have no parameters
		{[]string{"gzip;q=0.33333"}, "gzip"},
		{[]string{", ,gzip,"}, "gzip"},
		{[]string{"gzip;q=1, gzip;q=0"}, ""},
		{[]string{"gzipped"}, ""},
		{[]string{"\tgzip\t"}, "gzip"},
	} {
		got, same := reply.Select(negotiated, tt.fields, []byte(strings.Join(tt.fields, ",")))
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.fields, got, tt.want)
		}
		if !same {
			t.Errorf("%q: another variant when the field comes as bytes", tt.fields)
		}
	}
}

// modelSelect is the rule of RFC 9110, section 12.5.3, written down slowly.
func modelSelect(field string) string {
	listed := map[string]float64{}
	for _, element := range strings.Split(field, ",") {
		coding, param, weighted := strings.Cut(element, ";q=")
		q := 1.0
		if weighted {
			q, _ = strconv.ParseFloat(param, 64)
		}
		if was, ok := listed[coding]; !ok || q < was {
			listed[coding] = q
		}
	}
	weight := func(coding string) (q float64, named bool) {
		if q, ok := listed[coding]; ok {
			return q, true
		}
		q, ok := listed["*"]
		return q, ok
	}
	// In the order of sizes; a later one must be better.
	best, high := "", 0.0
	for _, coding := range []string{"zstd", "gzip"} {
		if q, _ := weight(coding); q > high {
			best, high = coding, q
		}
	}
	if q, named := weight("identity"); named && q > high {
		best = ""
	}
	return best
}

// TestAcceptEncodingExhaustive compares all fields of up to three elements with
// the model.
func TestAcceptEncodingExhaustive(t *testing.T) {
	var elements []string
	for _, coding := range []string{"gzip", "zstd", "identity", "*", "br"} {
		for _, q := range []string{"", ";q=0", ";q=0.4", ";q=0.8", ";q=1"} {
			elements = append(elements, coding+q)
		}
	}
	n := 0
	check := func(parts ...string) {
		field := strings.Join(parts, ",")
		n++
		if got, _ := reply.Select(negotiated, []string{field}, []byte(field)); got != modelSelect(field) {
			t.Fatalf("%q: %q, want %q", field, got, modelSelect(field))
		}
	}
	for _, a := range elements {
		check(a)
		for _, b := range elements {
			check(a, b)
			for _, c := range elements {
				check(a, b, c)
			}
		}
	}
	if want := 25 + 25*25 + 25*25*25; n != want {
		t.Errorf("compared %d fields, want %d", n, want)
	}
}

// FuzzAcceptEncoding checks that no field makes the parser fail, that both of
// its forms agree, and that a coding is sent only if the field mentions it.
func FuzzAcceptEncoding(f *testing.F) {
	for _, s := range []string{"", "gzip", "gzip;q=0.5,*;q=0", "identity;q=0;q=1", ";;;,", "zstd;q=", "*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, field string) {
		got, same := reply.Select(negotiated, []string{field}, []byte(field))
		if !same {
			t.Errorf("string and bytes disagree on %q", field)
		}
		if got != "" && !strings.Contains(strings.ToLower(field), got) && !strings.Contains(field, "*") {
			t.Errorf("%q: sends %q", field, got)
		}
	})
}

func TestMatchETag(t *testing.T) {
	for _, tt := range []struct {
		fields []string
		etag   string
		want   bool
	}{
		{nil, `"a"`, false},
		{[]string{`"a"`}, `"a"`, true},
		{[]string{`W/"a"`}, `"a"`, true},
		{[]string{`"a"`}, `W/"a"`, true},
		{[]string{`"b"`, `"a"`}, `"a"`, true},
		{[]string{`"b" ,"c", "a"`}, `"a"`, true},
		{[]string{`, ,"a"`}, `"a"`, true},
		{[]string{`"x,y", "a"`}, `"a"`, true},
		{[]string{`"a,b"`}, `"a"`, false},
		{[]string{` * `}, `"a"`, true},
		{[]string{`"*"`}, `"a"`, false},
		{[]string{`a`}, `"a"`, false},
		{[]string{`"a`}, `"a"`, false},
		{[]string{`"a""b"`}, `"b"`, true}, // lenient: the comma is missing
		{[]string{`"A"`}, `"a"`, false},
		{[]string{`w/"a"`}, `"a"`, false},
		{[]string{`"b c", "a"`}, `"a"`, false}, // malformed from the space on
		{[]string{``}, `"a"`, false},
		{[]string{`"é", "a"`}, `"a"`, true},
	} {
		if got := reply.MatchETag(tt.fields, tt.etag); got != tt.want {
			t.Errorf("MatchETag(%q, %s) = %v, want %v", tt.fields, tt.etag, got, tt.want)
		}
	}
}

// FuzzMatchETag checks that a tag is found in any list that it is put into, and
// that the parser ends.
func FuzzMatchETag(f *testing.F) {
	f.Add(`"a", W/"b"`, "c")
	f.Add(`"a`, "")
	f.Add(`*`, "x")
	f.Fuzz(func(t *testing.T, list, opaque string) {
		tag, ok := reply.AppendETag(nil, opaque, len(list)%2 == 0)
		if !ok {
			return
		}
		reply.MatchETag([]string{list}, string(tag))
		if !reply.MatchETag([]string{string(tag) + "," + list}, string(tag)) {
			t.Errorf("%s is not found at the head of a list", tag)
		}
	})
}
