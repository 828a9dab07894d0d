package vitals_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// typical is a reading as sent by a gateway, 161 bytes with all signs.
const typical = `{"device":"ppg-000123","time":"2026-11-21T10:00:00.123Z","systolic_mmhg":121,"diastolic_mmhg":79,` +
	`"spo2_pct":97.5,"heart_rate_bpm":72,"resting_heart_rate_bpm":58}`

// nowUnixMs is five seconds after the time of typical.
const nowUnixMs = 1_795_255_205_123

// repeated returns typical n times, as an array or as NDJSON.
func repeated(shape vitals.Shape, n int) []byte {
	lines := bytes.Repeat([]byte(typical+"\n"), n)
	if shape == vitals.NDJSON {
		return lines
	}
	lines = bytes.ReplaceAll(lines[:len(lines)-1], []byte("\n"), []byte(","))
	return append(append([]byte("["), lines...), ']')
}

func BenchmarkDecode(b *testing.B) {
	for _, bb := range []struct {
		name     string
		body     []byte
		accepted int
		refused  int
	}{
		{"shape=single", []byte(typical), 1, 0},
		{"shape=array1000", repeated(vitals.Array, 1000), 1000, 0},
		{"shape=ndjson1000", repeated(vitals.NDJSON, 1000), 1000, 0},
		// Everything that decodePlain does not accept takes the strict path.
		{"shape=array1000/strict", bytes.ReplaceAll(repeated(vitals.Array, 1000), []byte("97.5"), []byte("9.75e1")), 1000, 0},
		{"shape=array1000/refused", bytes.ReplaceAll(repeated(vitals.Array, 1000), []byte("97.5"), []byte("0")), 0, 1000},
	} {
		b.Run(bb.name, func(b *testing.B) {
			d := newDecoder(b, vitals.DecoderOptions{})
			var batch vitals.Batch
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.body)))
			for b.Loop() {
				try(b, d.Decode(bb.body, nowUnixMs, &batch))
			}
			if len(batch.Readings) != bb.accepted || len(batch.Refused) != bb.refused {
				b.Fatalf("accepted %d and rejected %d, want %d and %d", len(batch.Readings), len(batch.Refused),
					bb.accepted, bb.refused)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch.Len()), "ns/reading")
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	r := vitals.Reading{Device: name(b, "ppg-000123"), TimeUnixMs: nowUnixMs - 5000,
		Values: values(systolic, 121_00, diastolic, 79_00, spo2, 97_50, heartRate, 72_00, resting, 58_00)}
	text := make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		text = builtIn.AppendJSON(text[:0], &r)
	}
	if string(text) != typical {
		b.Fatalf("wrote %s, want %s", text, typical)
	}
}

func BenchmarkParse(b *testing.B) {
	b.Run("what=rfc3339", func(b *testing.B) {
		text, ms := []byte("2026-11-21T10:00:05.123Z"), int64(0)
		b.ReportAllocs()
		for b.Loop() {
			ms, _, _ = vitals.ParseRFC3339(text)
		}
		if ms != nowUnixMs {
			b.Fatalf("read %d, want %d", ms, nowUnixMs)
		}
	})
	b.Run("what=value", func(b *testing.B) {
		text, v := []byte("97.5"), vitals.Value(0)
		b.ReportAllocs()
		for b.Loop() {
			v, _ = vitals.ParseValue(text, 2)
		}
		if v != 97_50 {
			b.Fatalf("read %d, want 9750", v)
		}
	})
}

func BenchmarkFlags(b *testing.B) {
	limits := builtIn.DefaultFlagLimits()
	in := values(systolic, 121_00, diastolic, 79_00, spo2, 69_00, heartRate, 72_00, resting, 58_00)
	var set vitals.FlagSet
	b.ReportAllocs()
	for b.Loop() {
		set = limits.Flags(&in)
	}
	if got, want := flagTexts(builtIn, set),
		[]string{"spo2_pct outside validated range", "spo2_pct low"}; !slices.Equal(got, want) {
		b.Fatalf("flags %q, want %q", got, want)
	}
}

func newDecoder(tb testing.TB, options vitals.DecoderOptions) *vitals.Decoder {
	tb.Helper()
	rules, err := vitals.NewValidator(sinceEpoch())
	try(tb, err)
	return vitals.NewDecoder(rules, options)
}

// sinceEpoch returns the default limits, but accepts any time since 1970.
func sinceEpoch() vitals.Limits {
	limits := withOwn.DefaultLimits()
	limits.OldestUnixMs = 0
	return limits
}

// try ends the test if one of errs is not nil.
func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
