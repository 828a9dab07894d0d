package vitals_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// FuzzDecode compares Decode with encoding/json/v2: both accept the same bodies with
// equal values, except for the rules listed in the package comment. The model in
// decode_model_test.go applies these rules to the result of v2:
//
//   - each value of NDJSON starts on a new line;
//   - a byte order mark before the body is ignored;
//   - device, time and at least one sign are required;
//   - names, times, precision, ranges, zeros, the pair of pressures and its order.
//
// v2 itself checks types, unknown fields, the case of names, duplicate names, invalid
// UTF-8, escapes and the grammar.
func FuzzDecode(f *testing.F) {
	const good, bad = `{"device":"a","time":0,"spo2_pct":97}`, `{"device":"a","time":0,"spo2_pct":0}`
	for _, body := range []string{
		strings.TrimSuffix(typical, "}") + `,"gateway":"gw:7"}`,
		" \r\n\t" + strings.NewReplacer(",", "\t, ", ":", " :\n", "{", "{ ", "}", " }").Replace(typical) + "\n\n ",
		`{"spo2_pct":97.550,"time":"2026-11-21T10:00:00.123Z","device":"a"}`,
		`{"device":"a","time":"2026-11-21T10:00:00.123999Z","spo2_pct":9.755e1}`,
		`{"device":"a","time":"2026-11-21T11:00:00.123+01:00","spo2_pct":97.55}`,
		`{"device":"a","time":"2026-11-21T10:00:00.123-00:00","spo2_pct":97.55}`,
		`{"device":"a","time":"2026-11-21T06:30:00.123\u002d03:30","spo2_pct":97.55}`,
		`{"devi\u0063e":"\u0061","time":"2026\u002D11-21T10:00:00.123\u005a","\u0073po2_pct":97.55}`,
		`{"device":"` + strings.Repeat(`\u0061`, 64) + `","time":1795255200123,"spo2_pct":97.55}`,
		`{"device":"a","time":1795255505123,"spo2_pct":97.55}`, // as far ahead as allowed
		good, good + "\n", bad, "1\r\n", good + "\n" + good,
		"\r\n" + good + "\r\n\r\n \t\r\n" + bad + "\r\n" + good + "\r\n\r\n",
		"1\n[]\n" + good + "\n[" + good + "]",
		"{\n}\n" + strings.ReplaceAll(good, ",", ",\n"),
		good + "  \n  " + good, "\ufeff" + good, "\ufeff\ufeff" + good,
		with(`"spo2_pct":null,"heart_rate_bpm":72,"gateway":null`), with(`"spo2_pct":null`),
		with(`"spo2_pct":null,"spo2_pct":97`),
		"[]", " \n[ \n] \n", "[" + good + "]", "[[]]",
		"[" + bad + "\n,\n" + good + ",null,[" + good + "]," + good + " ]\n",
	} {
		f.Add([]byte(body), false)
	}
	for _, members := range []string{
		`"spo2_pct":97,"x":1`, `"x":null,"spo2_pct":97`, `"x":{"device":"b","spo2_pct":[0,{}]},"spo2_pct":97`,
		`"":"","spo2_pct":97,"\u0000":"\ud83d\ude00"`,
		`"spo2_pct":97,"SPO2_PCT":96`, `"spo2_pct":97,"x":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000),
		`"x":1,"spo2_pct":0`,
	} {
		f.Add([]byte(with(members)), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, ignoreUnknown bool) {
		// Longer bodies may exceed the bounds of length and depth, which the model does
		// not have.
		if len(body) > 8<<10 {
			return
		}
		checkAgainstModel(t, body, ignoreUnknown)
	})
}

// TestDecodeModel compares Decode with the model on bodies assembled from parts of
// readings, so that many of them are partly accepted.
func TestDecodeModel(t *testing.T) {
	parts := rapid.SampledFrom([]string{
		typical, `{"device":"a","time":0,"spo2_pct":97.5}`, "{", "}", "[", "]", ",", ",", ":", "\n", "\r\n", " ", "1", "null",
		`"`, `\u0061`,
		`"device":"b"`, `"time":1795255200123`, `"time":"2026-11-21T10:00:00+01:00"`,
		`"time":"2026-11-21T10:00:00\u002b00:00"`, `"time":"2026-11-21T10:00:00-00:00"`, `"spo2_pct":97.55`, `"spo2_pct":0`,
		`"spo2_pct":null`, `"heart_rate_bpm":null`, `"device":null`, "\ufeff",
		`"systolic_mmhg":121,"diastolic_mmhg":79`, `"heart_rate_bpm":6.28e1`, `"body_weight_kg":81.205`, `"delta_c":-0.4`,
		`"delta_c":0`, `"steps":123456`, `"steps":0.5`, `"fev1_l":3.2175`, `"gateway":"g"`, `"x":{"y":[1,2]}`,
		`"gateway":null`,
	})
	rapid.Check(t, func(rt *rapid.T) {
		body := ""
		for _, part := range rapid.SliceOfN(parts, 0, 12).Draw(rt, "parts") {
			body += part
		}
		checkAgainstModel(t, []byte(body), rapid.Bool().Draw(rt, "ignore unknown"))
	})
}
