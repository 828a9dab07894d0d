package vitals_test

import (
	"testing"

	"pgregory.net/rapid"
)

// FuzzDecode compares Decode with encoding/json/v2: both accept the same bodies with
// equal values, except for the rules listed in the package comment. The model in
// decode_model_test.go applies these rules to the result of v2:
//
//   - each value of NDJSON starts on a new line;
//   - null is rejected, where v2 leaves the field unchanged;
//   - device, time and at least one sign are required;
//   - names, times, precision, ranges, zeros, the pair of pressures and its order.
//
// v2 itself checks types, unknown fields, the case of names, duplicate names, invalid
// UTF-8, escapes and the grammar.
func FuzzDecode(f *testing.F) {
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
		typical, `{"device":"a","time":0,"spo2_pct":97.5}`, "{", "}", "[", "]", ",", ",", ":", "\n", "\r\n", " ", "1", "null", `"`, `\u0061`,
		`"device":"b"`, `"time":1795255200123`, `"time":"2026-11-21T10:00:00+01:00"`, `"time":"2026-11-21T10:00:00\u002b00:00"`, `"time":"2026-11-21T10:00:00-00:00"`, `"spo2_pct":97.55`, `"spo2_pct":0`,
		`"systolic_mmhg":121,"diastolic_mmhg":79`, `"heart_rate_bpm":6.28e1`, `"body_weight_kg":81.205`, `"delta_c":-0.4`, `"delta_c":0`, `"steps":123456`, `"steps":0.5`, `"fev1_l":3.2175`, `"gateway":"g"`, `"x":{"y":[1,2]}`, `"gateway":null`,
	})
	rapid.Check(t, func(rt *rapid.T) {
		body := ""
		for _, part := range rapid.SliceOfN(parts, 0, 12).Draw(rt, "parts") {
			body += part
		}
		checkAgainstModel(t, []byte(body), rapid.Bool().Draw(rt, "ignore unknown"))
	})
}
