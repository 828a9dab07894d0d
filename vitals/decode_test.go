package vitals_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// with returns a reading with device, time and the given members.
func with(members string) string {
	return `{"device":"ppg-1","time":1795255200123,` + members + `}`
}

// decode decodes body and checks the consistency of the batch.
func decode(t *testing.T, body string, options vitals.DecoderOptions) (vitals.Batch, error) {
	t.Helper()
	var batch vitals.Batch
	err := newDecoder(t, options).Decode([]byte(body), nowUnixMs, &batch)
	checkBatch(t, &batch, err)
	return batch, err
}

// checkBatch checks that each position of the body is accepted or rejected exactly
// once, and that the batch is empty after an error.
func checkBatch(tb testing.TB, batch *vitals.Batch, err error) {
	tb.Helper()
	if err != nil {
		if batch.Shape != 0 || batch.Len() != 0 || len(batch.Index) != 0 {
			tb.Fatalf("after %v: the batch is not empty: %+v", err, batch)
		}
		return
	}
	if len(batch.Readings) != len(batch.Index) {
		tb.Fatalf("%d readings have %d positions", len(batch.Readings), len(batch.Index))
	}
	seen := make([]bool, batch.Len())
	for i, index := range batch.Index {
		if i > 0 && index <= batch.Index[i-1] || seen[index] {
			tb.Fatalf("positions of accepted readings: %d", batch.Index)
		}
		seen[index] = true
	}
	for i, refused := range batch.Refused {
		if i > 0 && refused.Index <= batch.Refused[i-1].Index || seen[refused.Index] {
			tb.Fatalf("position %d is duplicate or out of order", refused.Index)
		}
		seen[refused.Index] = true
	}
}

func TestDecodeRejects(t *testing.T) {
	const tooFine, notAName = "more than two decimals", "not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -"
	const fraction = "outside the accepted range 2 to 100 %; a fraction? send per cent"
	const notATime = "neither an RFC 3339 time nor integer Unix milliseconds"
	for _, tt := range []struct {
		body   string
		field  string
		err    error
		reason string
	}{
		{`1`, "", vitals.ErrNotObject, "not a JSON object"},
		{`"text"`, "", vitals.ErrNotObject, "not a JSON object"},
		{`null`, "", vitals.ErrNotObject, "not a JSON object"},
		{`{}`, "device", vitals.ErrMissing, "missing"},
		{`{"device":"a"}`, "time", vitals.ErrMissing, "missing"},
		{`{"device":"a","time":0}`, "", vitals.ErrEmpty, "no vital sign given"},

		{`{"device":"","time":0,"spo2_pct":97}`, "device", vitals.ErrName, notAName},
		{`{"device":"` + strings.Repeat("x", 65) + `","time":0,"spo2_pct":97}`, "device", vitals.ErrName, notAName},
		{`{"device":12,"time":0,"spo2_pct":97}`, "device", vitals.ErrType, "not a string"},
		{`{"device":null,"time":0,"spo2_pct":97}`, "device", vitals.ErrMissing, "missing"},
		{with(`"gateway":"","spo2_pct":97`), "gateway", vitals.ErrName, notAName},

		{`{"device":"a","time":"2026-11-21T10:00:00","spo2_pct":97}`, "time", vitals.ErrTimeZone, "no time zone"},
		{`{"device":"a","time":"21.11.2026","spo2_pct":97}`, "time", vitals.ErrTimeFormat, notATime},
		{`{"device":"a","time":true,"spo2_pct":97}`, "time", vitals.ErrType, "neither a string nor an integer"},
		{`{"device":"a","time":null,"spo2_pct":97}`, "time", vitals.ErrMissing, "missing"},
		{`{"device":"a","time":-1,"spo2_pct":97}`, "time", vitals.ErrPast, "before 1970"},
		{`{"device":"a","time":"1969-12-31T23:59:59.9999Z","spo2_pct":97}`, "time", vitals.ErrPast, "before 1970"},
		{`{"device":"a","time":1795255505124,"spo2_pct":97}`, "time", vitals.ErrFuture,
			"more than 5m0s ahead of the server's clock"},

		{with(`"spo2_pct":97.555`), "spo2_pct", vitals.ErrPrecision, tooFine},
		{with(`"spo2_pct":0`), "spo2_pct", vitals.ErrNoSignal, "no signal"},
		{with(`"spo2_pct":1`), "spo2_pct", vitals.ErrRange, fraction},
		{with(`"spo2_pct":0.97`), "spo2_pct", vitals.ErrRange, fraction},
		{with(`"spo2_pct":1.99`), "spo2_pct", vitals.ErrRange, fraction},
		{with(`"spo2_pct":0.975`), "spo2_pct", vitals.ErrPrecision, tooFine + "; a fraction? send per cent"},
		{with(`"spo2_pct":9.6999999e-1`), "spo2_pct", vitals.ErrPrecision, tooFine + "; a fraction? send per cent"},
		{with(`"spo2_pct":-0.97`), "spo2_pct", vitals.ErrRange, "outside the accepted range 2 to 100 %"},
		{with(`"spo2_pct":100.01`), "spo2_pct", vitals.ErrRange, "outside the accepted range 2 to 100 %"},
		{with(`"respiratory_rate_bpm":0.97`), "respiratory_rate_bpm", vitals.ErrRange,
			"outside the accepted range 1 to 150 /min"},
		{with(`"heart_rate_bpm":11.5`), "heart_rate_bpm", vitals.ErrRange, "outside the accepted range 20 to 300 /min"},
		{with(`"resting_heart_rate_bpm":300.01`), "resting_heart_rate_bpm", vitals.ErrRange,
			"outside the accepted range 20 to 300 /min"},
		{with(`"systolic_mmhg":2048,"diastolic_mmhg":79`), "systolic_mmhg", vitals.ErrRange,
			"outside the accepted range 40 to 300 mm[Hg]"},
		{with(`"systolic_mmhg":121,"diastolic_mmhg":655.36`), "diastolic_mmhg", vitals.ErrRange,
			"outside the accepted range 20 to 250 mm[Hg]"},
		{with(`"spo2_pct":"97"`), "spo2_pct", vitals.ErrType, "not a number"},
		{with(`"spo2_pct":null`), "", vitals.ErrEmpty, "no vital sign given"},
		{with(`"spo2_pct":null,"heart_rate_bpm":null,"gateway":null`), "", vitals.ErrEmpty, "no vital sign given"},
		{with(`"systolic_mmhg":121,"diastolic_mmhg":null`), "diastolic_mmhg", vitals.ErrPair,
			"systolic and diastolic go together"},
		{with(`"sp02_pct":null,"spo2_pct":97`), "sp02_pct", vitals.ErrUnknownField, "unknown field"},
		{with(`"systolic_mmhg":121`), "diastolic_mmhg", vitals.ErrPair, "systolic and diastolic go together"},
		{with(`"diastolic_mmhg":79,"spo2_pct":97`), "systolic_mmhg", vitals.ErrPair, "systolic and diastolic go together"},
		{with(`"systolic_mmhg":79,"diastolic_mmhg":79`), "systolic_mmhg", vitals.ErrPressureOrder,
			"systolic is not above diastolic"},

		{with(`"sp02_pct":97`), "sp02_pct", vitals.ErrUnknownField, "unknown field"},
		{with(`"sp\u00302_pct":97`), "sp02_pct", vitals.ErrUnknownField, "unknown field"},
		{with(`"":97`), "", vitals.ErrUnknownField, "unknown field"},
		{with(`"a\nb":97`), "", vitals.ErrUnknownField, "unknown field"},
		{with(`"` + strings.Repeat("x", 64) + `":97`), strings.Repeat("x", 64), vitals.ErrUnknownField, "unknown field"},

		// The first broken rule in the order of the members is reported.
		{`{"x":1,"device":"","time":-1}`, "x", vitals.ErrUnknownField, "unknown field"},
		{`{"spo2_pct":0,"x":1,"device":""}`, "spo2_pct", vitals.ErrNoSignal, "no signal"},
		{`{"diastolic_mmhg":0,"systolic_mmhg":0}`, "diastolic_mmhg", vitals.ErrNoSignal, "no signal"},
		{`{"systolic_mmhg":121}`, "device", vitals.ErrMissing, "missing"},
	} {
		for _, shape := range []vitals.Shape{vitals.Single, vitals.Array, vitals.NDJSON} {
			body, index, accepted := tt.body, 0, 0
			switch shape {
			case vitals.Array:
				body, index, accepted = "[ "+typical+" ,"+tt.body+","+typical+"]", 1, 2
			case vitals.NDJSON:
				body, index, accepted = typical+"\n\n"+tt.body+"\r\n"+typical, 1, 2
			}
			batch, err := decode(t, body, vitals.DecoderOptions{})
			if err != nil {
				t.Errorf("%v %.60s: %v", shape, tt.body, err)
				continue
			}
			if batch.Shape != shape || len(batch.Readings) != accepted || len(batch.Refused) != 1 {
				t.Errorf("%v %.60s: %v with %d accepted, rejected %v; want %d accepted and one rejected",
					shape, tt.body, batch.Shape, len(batch.Readings), batch.Refused, accepted)
				continue
			}
			got := &batch.Refused[0]
			if got.Index != index || got.Field != tt.field || !errors.Is(got, tt.err) || got.Reason() != tt.reason {
				t.Errorf("%v %.60s: rejected with %v; want reading %d: %s: %s", shape, tt.body, got, index, tt.field, tt.reason)
			}
			if strings.ContainsAny(got.Field+got.Reason(), "\"\\\n") {
				t.Errorf("%v %.60s: %v needs escapes in JSON", shape, tt.body, got)
			}
		}
	}
}

// TestDecodeNull checks that a field that is null counts as missing, except that it must not be given again. A byte
// order mark before a body is ignored.
func TestDecodeNull(t *testing.T) {
	for _, tt := range []struct{ body, same string }{
		{with(`"spo2_pct":null,"heart_rate_bpm":72`), with(`"heart_rate_bpm":72`)},
		{with(`"heart_rate_bpm":72,"gateway":null,"systolic_mmhg":null,"diastolic_mmhg":null`), with(`"heart_rate_bpm":72`)},
		{"\ufeff" + with(`"heart_rate_bpm":72`), with(`"heart_rate_bpm":72`)}, // a byte order mark
		{"\ufeff [" + typical + "]", "[" + typical + "]"},
		{"\ufeff" + typical + "\r\n" + typical, typical + "\r\n" + typical},
		{"[" + typical + "," + with(`"spo2_pct": null ,"heart_rate_bpm":72`) + "]",
			"[" + typical + "," + with(`"heart_rate_bpm":72`) + "]"},
	} {
		got, err := decode(t, tt.body, vitals.DecoderOptions{})
		want, _ := decode(t, tt.same, vitals.DecoderOptions{})
		if err != nil || !slices.Equal(got.Readings, want.Readings) || len(got.Refused) != 0 {
			t.Errorf("%s: %+v, %v; want %+v", tt.body, got, err, want)
		}
	}
	for _, body := range []string{with(`"spo2_pct":null,"spo2_pct":97`), with(`"spo2_pct":97,"spo2_pct":null`)} {
		if _, err := decode(t, body, vitals.DecoderOptions{}); !errors.Is(err, vitals.ErrSyntax) {
			t.Errorf("%s: %v, want a field given twice", body, err)
		}
	}
	var batch vitals.Batch
	from := vitals.Origin{Device: name(t, "ppg-1")}
	body := `{"device":null,"time":1795255200123,"heart_rate_bpm":72}`
	if err := newDecoder(t, vitals.DecoderOptions{}).DecodeFrom([]byte(body), nowUnixMs, from, &batch); err != nil ||
		len(batch.Readings) != 1 {
		t.Errorf("%s with a known device: %+v, %v", body, batch, err)
	}
}

func TestShapeString(t *testing.T) {
	for shape, want := range map[vitals.Shape]string{0: "none", vitals.Single: "single", vitals.Array: "array",
		vitals.NDJSON: "ndjson"} {
		if got := shape.String(); got != want {
			t.Errorf("Shape(%d).String() = %q, want %q", shape, got, want)
		}
	}
}
