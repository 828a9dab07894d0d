package vitals_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/vitals"
)

// TestDecodeReuse decodes many bodies with one decoder and one batch. It checks that no
// result depends on an earlier body, or on a body that was overwritten after decoding.
func TestDecodeReuse(t *testing.T) {
	bodies := []string{
		typical,
		"[" + typical + "," + with(`"spo2_pct":0`) + "]",
		with(`"sp02_pct":97`),
		`{"device":"a","device":"a"}`,
		"[]",
		typical + "\n" + with(`"other":97`) + "\n",
		`{"devi\u0063e":"b","time":0,"spo2_pct":9.7e1}`,
		`{"device":"a"`,
		"",
		with(`"x":` + strings.Repeat(`[{"y":`, 500) + "1" + strings.Repeat("}]", 500)),
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := newDecoder(t, vitals.DecoderOptions{})
		var batch vitals.Batch
		for range 10 {
			text := rapid.SampledFrom(bodies).Draw(rt, "body")
			body := []byte(text)
			err := d.Decode(body, nowUnixMs, &batch)
			for i := range body {
				body[i] = '#'
			}
			want, wantErr := decode(t, text, vitals.DecoderOptions{})
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || !sameBatch(&batch, &want) {
				rt.Fatalf("%.60q: %+v, %v; want %+v, %v", text, batch, err, want, wantErr)
			}
		}
	})
}

func sameBatch(a, b *vitals.Batch) bool {
	return a.Shape == b.Shape && slices.Equal(a.Readings, b.Readings) && slices.Equal(a.Index, b.Index) &&
		slices.EqualFunc(a.Refused, b.Refused, func(x, y vitals.FieldError) bool {
			return x.Index == y.Index && x.Field == y.Field && x.Reason() == y.Reason()
		})
}

// TestPlainAgreesWithStrict decodes plain and nearly plain readings twice: unchanged,
// and after an unknown field, which forces the strict path.
func TestPlainAgreesWithStrict(t *testing.T) {
	good := []string{
		`"device":"ppg-1"`, `"time":1795255200123`, `"spo2_pct":97.5`, `"systolic_mmhg":121`, `"diastolic_mmhg":79`,
		`"heart_rate_bpm":62.8`, `"resting_heart_rate_bpm":58`, `"gateway":"g"`,
	}
	fields := rapid.SampledFrom([]string{"device", "time", "gateway", "spo2_pct", "systolic_mmhg", "device "})
	odd := rapid.SampledFrom([]string{
		`"a"`, `"2026-11-21T10:00:00.123Z"`, `"2026-11-21T10:00:00"`, `"2026-11-21t10:00:00.123456z"`,
		`"2026-11-21T11:00:00.123+01:00"`, `"2026-11-21T10:00:00+00:00"`, `"2026-11-21T10:00:00-00:00"`, `0`,
		`99999999999999`, `-1`,
		`97`, `97.55`, `97.555`, `97.550`, `300`, `300.01`, `999`, `1000`, `655.36`, `0.0`, `00`, `09`, `1.`, `.5`, `1e2`,
		`5E-1`, `-5`,
		`"x\u0061"`, `""`, `"ä"`, `null`, `[]`, `true`, "\"a\nb\"", "\"\xff\"", `"` + strings.Repeat("x", 64) + `"`,
		`"` + strings.Repeat("x", 65) + `"`, `"2026-11-21T10:00:00.` + strings.Repeat("0", 60) + `Z"`,
	})
	spaces := rapid.SampledFrom([]string{"", " ", "\n", "\r\n\t ", "\f", "\x00"})
	accepted := 0
	check := func(rt *rapid.T) {
		members := slices.Clone(good[:rapid.IntRange(2, len(good)).Draw(rt, "members")])
		if rapid.Bool().Draw(rt, "odd value") {
			members = append(members, `"`+fields.Draw(rt, "field")+`":`+odd.Draw(rt, "value"))
			i := rapid.IntRange(0, len(members)-1).Draw(rt, "left out")
			members = slices.Delete(members, i, i+1)
		}
		members = rapid.Permutation(members).Draw(rt, "order")
		text := "{" + strings.Join(members, ",") + "}"
		space := spaces.Draw(rt, "space")
		text = strings.NewReplacer(",", space+","+space, `":`, `"`+space+":"+space, "{", "{"+space, "}",
			space+"}").Replace(text)
		if rapid.IntRange(0, 9).Draw(rt, "cut") == 0 {
			text = text[:rapid.IntRange(1, len(text)).Draw(rt, "bytes")]
		}

		got, err := decode(t, text, vitals.DecoderOptions{IgnoreUnknown: true})
		const detour = `"":0,`
		want, wantErr := decode(t, "{"+detour+text[1:], vitals.DecoderOptions{IgnoreUnknown: true})
		var syntax *vitals.SyntaxError
		if errors.As(wantErr, &syntax) {
			syntax.Offset -= int64(len(detour))
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !sameBatch(&got, &want) {
			rt.Fatalf("%q: %+v, %v; after an unknown field %+v, %v", text, got, err, want, wantErr)
		}
		if err == nil && len(got.Readings) == 1 {
			accepted++
		}
	}
	// Rejected readings test little.
	for runs := 0; accepted < 10 && !t.Failed(); runs++ {
		if runs == 100 {
			t.Fatalf("%d generated readings were accepted in %d runs", accepted, runs)
		}
		rapid.Check(t, check)
	}
}
