package reply_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pulsegate/pulsegate/reply"
)

const outOfRange = "https://pulsegate.example/problems/out-of-range"

func TestAppendProblem(t *testing.T) {
	p := reply.NewProblem(422, outOfRange, `Out of "range"`)
	for _, tt := range []struct {
		name    string
		detail  string
		members []reply.Member
		want    string
	}{
		{"bare", "", nil, ``},
		{"detail", "too high\n", nil, `,"detail":"too high\n"`},
		{
			"members", "d",
			[]reply.Member{
				reply.String("field", "spo2_pct"), reply.String("instance", ""),
			},
			`,"detail":"d","field":"spo2_pct","instance":""`,
		},
		{"name that needs escapes", "", []reply.Member{reply.String(`a"b`, `c"d`)}, `,"a\"b":"c\"d"`},
	} {
		want := `{"type":"` + outOfRange + `","title":"Out of \"range\"","status":422` + tt.want + "}\n"
		got := string(reply.AppendProblem([]byte("x"), p, tt.detail, tt.members...))
		if got != "x"+want {
			t.Errorf("%s:\ngot  %s\nwant x%s", tt.name, got, want)
		}
		if !json.Valid([]byte(got[1:])) {
			t.Errorf("%s: not JSON: %s", tt.name, got[1:])
		}
	}
	if p.Type() != outOfRange || p.Title() != `Out of "range"` || p.Status() != 422 {
		t.Errorf("definition = %q, %q, %d", p.Type(), p.Title(), p.Status())
	}
}

func TestProblemDefaults(t *testing.T) {
	p := reply.NewProblem(429, "", "")
	want := `{"type":"about:blank","title":"Too Many Requests","status":429}` + "\n"
	if got := string(reply.AppendProblem(nil, p, "")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A retainingWriter fails and retains its argument, as HTTP/2 may when a stream is reset: the
// buffer must not be returned to the pool.
type retainingWriter struct {
	discard
	kept []byte
}

func (k *retainingWriter) Write(p []byte) (int, error) {
	k.kept = p
	return 0, errors.New("stream closed")
}

func TestProblemBufferIsNotReusedAfterError(t *testing.T) {
	p := reply.NewProblem(400, "", "")
	k := &retainingWriter{discard: discard{header: make(http.Header)}}
	p.Write(k, get(), "the first one")
	want := string(k.kept)
	for range 100 {
		p.Write(newDiscard(), get(), strings.Repeat("x", 20))
	}
	if got := string(k.kept); got != want {
		t.Errorf("kept bytes became %q", got)
	}
}

// wantJSONString fails unless AppendJSONString encodes s such that encoding/json
// decodes it to s, with U+FFFD for each byte that is not UTF-8.
func wantJSONString(t *testing.T, s string) {
	t.Helper()
	enc := reply.AppendJSONString(nil, s)
	var got string
	if err := json.Unmarshal(enc, &got); err != nil {
		t.Fatalf("%q as %s: %v", s, enc, err)
	}
	var want strings.Builder
	for _, r := range s {
		want.WriteRune(r)
	}
	if got != want.String() {
		t.Errorf("%q as %s is decoded as %q, want %q", s, enc, got, want.String())
	}
	for _, c := range enc {
		if c < ' ' || c == 0x7f {
			t.Errorf("%q: control byte %#x in %s", s, c, enc)
		}
	}
	if !utf8.Valid(enc) || strings.ContainsAny(string(enc), "\u2028\u2029") {
		t.Errorf("%q as %q: not UTF-8, or with a line separator", s, enc)
	}
}

// TestJSONStringOfTwoBytes tests all strings of up to two bytes, alone and between
// other characters.
func TestJSONStringOfTwoBytes(t *testing.T) {
	for a := range 256 {
		wantJSONString(t, string([]byte{byte(a)}))
		for b := range 256 {
			wantJSONString(t, string([]byte{byte(a), byte(b)}))
			wantJSONString(t, string([]byte{'x', byte(a), byte(b), 'y'}))
		}
	}
	for _, s := range []string{"", "\u2027\u2028\u2029\u202a", "é\xe2\x80", "\xe2\x80\xa8", "\U0001F600",
		"\xed\xa0\x80"} {
		wantJSONString(t, s)
	}
}

func FuzzJSONString(f *testing.F) {
	f.Add("a\"b\\c\n\u2028\xff")
	f.Fuzz(func(t *testing.T, s string) { wantJSONString(t, s) })
}
