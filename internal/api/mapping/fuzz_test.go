package mapping_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// FuzzDecode checks that every position of a message is accepted or rejected, in order; that what is accepted is what
// JSON with the same fields would be; and that errors need no escapes in JSON and hold no bytes of the message.
func FuzzDecode(f *testing.F) {
	set, _, err := read(f, strings.ReplaceAll(plain, `"m"`, `"plain"`)+gatt+`
[[mapping]]
name = "each"
where = { "/k" = "v" }
device = "/a/-/dev"
time = "/t"
time_format = "unix_ms"
signs.heart_rate_bpm = { at = "/a/-/hr", factor = "0.01" }
`)
	try(f, err)
	table := signs(f)
	rules, err := vitals.NewValidator(table.DefaultLimits())
	try(f, err)
	json := vitals.NewDecoder(rules, vitals.DecoderOptions{})
	for _, c := range []string{"2A35", "2A37", "2A5E", "2A5F", "2A1C", "2A9D"} {
		f.Add("m", []byte(fmt.Sprintf(`{"c":%q,"d":"d","t":1790000000,"x":"1E780050005D00EA070701081E053E00020400"}`, c)))
	}
	f.Add("plain", []byte(`{"dev":"d","t":"2026-11-25T10:00:00Z","v":{"hr":"72"},"temp":[367],"w":80,"unit":"kg"} 7`))
	f.Add("each", []byte(`{"a":[{"dev":"d","hr":7200},{"dev":"e"}],"t":1790000000000,"k":"v"}`))
	f.Add("kpa", []byte(`{"d":"d","x":"01A0F06BF0FF07"}`))
	f.Fuzz(func(t *testing.T, name string, message []byte) {
		input := set.Named(name)
		if input == nil {
			return
		}
		var got vitals.Batch
		in := ingest.Intake{NowUnixMs: now.UnixMilli(), Rules: rules, MaxReadings: 100, Batch: &got}
		if input.Decode(bytes.Clone(message), &in) != nil {
			return
		}
		if len(got.Readings) != len(got.Index) {
			t.Fatalf("%d readings, %d positions", len(got.Readings), len(got.Index))
		}
		refused := got.Refused
		for i, next := 0, 0; next < got.Len(); next++ {
			if i < len(got.Index) && int(got.Index[i]) == next {
				i++
				continue
			}
			if len(refused) == 0 || refused[0].Index != next {
				t.Fatalf("position %d is neither accepted nor rejected", next)
			}
			if text := refused[0].Field + refused[0].Reason(); strings.ContainsAny(text, `"\`) || strings.Trim(text, " ") == "" {
				t.Errorf("the text %q", text)
			}
			refused = refused[1:]
		}
		for i := range got.Readings {
			line := table.AppendJSON(nil, &got.Readings[i])
			var again vitals.Batch
			if err := json.Decode(line, now.UnixMilli(), &again); err != nil || len(again.Readings) != 1 ||
				again.Readings[0] != got.Readings[i] {
				t.Errorf("%s is not what JSON says: %v %+v", line, err, again)
			}
		}
	})
}

// FuzzCharacteristic is FuzzDecode for bytes of characteristics.
func FuzzCharacteristic(f *testing.F) {
	set, _, err := read(f, gatt)
	try(f, err)
	kinds := []string{"2A35", "2A37", "2A5E", "2A5F", "2A1C", "2A9D"}
	for i := range kinds {
		f.Add(byte(i), []byte("\x1e\x78\x00\x50\x00\x5d\x00\xea\x07\x07\x01\x08\x1e\x05\x3e\x00\x02\x04\x00"))
		f.Add(byte(i), []byte("\x00\x48\x00\x48\x00"))
	}
	f.Fuzz(func(t *testing.T, kind byte, value []byte) {
		message := fmt.Sprintf(`{"c":%q,"d":"d","t":1790000000,"x":%q}`, kinds[int(kind)%len(kinds)],
			hex.EncodeToString(value))
		got := decode(t, set.Named("m"), vitals.Origin{}, message)
		if again := decode(t, set.Named("m"), vitals.Origin{}, message); got != again || got == "" {
			t.Errorf("%q, then %q", got, again)
		}
	})
}
