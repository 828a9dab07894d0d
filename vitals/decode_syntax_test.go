package vitals_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestDecodeSyntax(t *testing.T) {
	const (
		good      = `{"device":"a","time":0,"spo2_pct":97}` // 37 bytes
		trailing  = "data after the end of the value"
		cut       = "cut off"
		duplicate = "field name given twice"
		utf       = "invalid UTF-8"
		escape    = "invalid escape sequence"
		deep      = "nested too deeply"
		notJSON   = "not JSON"
	)
	for _, tt := range []struct {
		body   string
		offset int64
		reason string
	}{
		{"", 0, "empty body"},
		{" \r\n\t", 4, "empty body"},
		{"\x00", 0, notJSON},
		{"\ufeff", 3, "empty body"}, // a byte order mark
		{"\ufeff\ufeff" + good, 3, notJSON},
		{"\ufeff" + good + "x", 40, trailing},
		{good + "\n\ufeff" + good, 38, notJSON},
		{"device=a", 0, notJSON},
		{"hello", 0, notJSON},
		{"nul", 3, cut},
		{"nulL", 3, notJSON},
		{"NaN", 0, notJSON},
		{"}", 0, notJSON},
		{"{", 1, cut},
		{`{"device":"a"`, 13, cut},
		{`{"device":"a`, 12, cut},
		{`{"device":"a",`, 14, cut},
		{`{"device":"a",}`, 13, notJSON},
		{`{"device":"a";"time":0}`, 13, notJSON},
		{`{"device" "a"}`, 10, notJSON},
		{`{device:"a"}`, 1, notJSON},
		{`{'device':'a'}`, 1, notJSON},
		{`{"device":a}`, 10, notJSON},
		{`{1:2}`, 1, notJSON},
		{with(`"spo2_pct":NaN`), 50, notJSON},
		{with(`"spo2_pct":Infinity`), 50, notJSON},
		{with(`"spo2_pct":+97`), 50, notJSON},
		{with(`"spo2_pct":097`), 51, notJSON},
		{with(`"spo2_pct":.97`), 50, notJSON},
		{with(`"spo2_pct":97.`), 53, notJSON},
		{with(`"spo2_pct":9e`), 52, notJSON},
		{with(`"spo2_pct":0x61`), 51, notJSON},
		{with(`"spo2_pct":97 // comment`), 53, notJSON},
		{`{"device":"` + "a\nb" + `"}`, 12, notJSON},
		{good + good, 37, trailing},
		{good + " " + good, 38, trailing},
		{good + "\r" + good, 38, trailing},
		{good + "\n" + good + " " + good, 76, trailing},
		{good + "\n" + good + ",", 75, trailing},
		{good + "x", 37, trailing},
		{good + "\nx", 38, notJSON},
		{good + "\n{", 39, cut},
		{"1 2", 2, trailing},
		{"01", 1, trailing},
		{"[", 1, cut},
		{"[" + good, 38, cut},
		{"[" + good + ",", 39, cut},
		{"[" + good + ",]", 39, notJSON},
		{"[," + good + "]", 1, notJSON},
		{"[" + good + " " + good + "]", 39, notJSON},
		{"[" + good + "}", 38, notJSON},
		{"[]]", 2, trailing},
		{"[]\n[]", 3, trailing},
		{"[]\n" + good, 3, trailing},
		{"[" + good + "]x", 39, trailing},

		{`{"device":"a","device":"a","time":0,"spo2_pct":97}`, 14, duplicate},
		{`{"device":"a","devi\u0063e":"b"}`, 14, duplicate},
		{with(`"spo2_pct":97,"spo2_pct":97`), 53, duplicate},
		{with(`"time":1,"spo2_pct":97`), 39, duplicate},
		{with(`"gateway":"b","gateway":"b"`), 53, duplicate},
		{with(`"x":{"y":1,"y":2}`), 50, duplicate},
		{with(`"spo2_pct":0,"x":1,"x":2`), 58, duplicate}, // after a broken rule
		{"[" + with(`"spo2_pct":0`) + "," + with(`"spo2_pct":{"y":1,"y":2}`) + "]", 111, duplicate},

		{"{\"device\":\"\xff\"}", 11, utf},
		{"{\"\xff\":1}", 2, utf},
		{with("\"x\":\"\xc3\x28\""), 44, utf},
		{with("\"x\":\"\xed\xa0\x80\""), 44, utf}, // an encoded surrogate
		{"\xff", 0, utf},
		{`{"device":"\x61"}`, 11, escape},
		{`{"device":"\ud800"}`, 11, escape}, // a lone surrogate
		{`{"device":"\udc00\ud800"}`, 11, escape},
		{with(`"x":"\ud83d\u0041"`), 44, escape},

		{strings.Repeat("[", 12_000) + strings.Repeat("]", 12_000), 10_001, deep},
		{with(`"x":` + strings.Repeat(`[`, 10_000) + strings.Repeat("]", 10_000)), 10_042, deep},
		{"\n" + strings.Repeat(`{"":`, 10_001), 40_001, deep},
		{`{"x":["]\"]",{}],"y":` + strings.Repeat(`[`, 10_000), 10_020, deep},
	} {
		options := vitals.DecoderOptions{MaxReadingBytes: 1 << 20}
		for _, options.IgnoreUnknown = range []bool{false, true} {
			_, err := decode(t, tt.body, options)
			var syntax *vitals.SyntaxError
			if !errors.As(err, &syntax) || !errors.Is(err, vitals.ErrSyntax) {
				t.Errorf("%.80q: %v, want a SyntaxError", tt.body, err)
				continue
			}
			if syntax.Offset != tt.offset || syntax.Reason != tt.reason {
				t.Errorf("%.80q: %v; want byte %d: %s", tt.body, err, tt.offset, tt.reason)
			}
		}
	}
}

// TestDecodeTextsKeepSecrets checks that no error text contains a value.
func TestDecodeTextsKeepSecrets(t *testing.T) {
	const secret = "77123"
	for _, body := range []string{
		with(`"spo2_pct":` + secret),
		with(`"spo2_pct":0.` + secret),
		with(`"spo2_pct":"` + secret + `"`),
		with(`"spo2_pct":-` + secret),
		`{"device":"` + secret + ` "}`,
		`{"device":` + secret + `}`,
		`{"device":"a","time":"` + secret + `"}`,
		`{"device":"a","time":-` + secret + `}`,
		with(`"patient ` + secret + `":1`),
		with(`"` + secret + `":1,"` + secret + `":1`),
		with(`"` + secret + `":`),
		with(`"` + secret + `":{"` + secret + `":` + secret + `x}`),
		secret + " " + secret,
		`"` + secret,
		`"\u` + secret,
	} {
		batch, err := decode(t, body, vitals.DecoderOptions{})
		texts := fmt.Sprint(err)
		for i := range batch.Refused {
			texts += batch.Refused[i].Error()
		}
		if err == nil && len(batch.Refused) == 0 {
			t.Errorf("%s was accepted", body)
		}
		for unwrapped := err; unwrapped != nil; unwrapped = errors.Unwrap(unwrapped) {
			texts += unwrapped.Error()
		}
		if strings.Contains(texts, secret) {
			t.Errorf("%s: the text contains the value: %s", body, texts)
		}
	}
}
