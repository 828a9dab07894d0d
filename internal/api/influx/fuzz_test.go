package influx_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// FuzzWrite sends any bytes: each line with something in it is stored or named in the answer, and what is
// stored, written as a line again, is a duplicate.
func FuzzWrite(f *testing.F) {
	for _, lines := range []string{
		"v,device=d,gateway=g heart_rate_bpm=72i,spo2_pct=97.5 1795341600000000000",
		"v,device=d heart_rate_bpm=72 1795341600000000000\r\n# a comment\n\nv,device=d,a\\ b=\\=c x=\"y\n" +
			"\\\"\",heart_rate_bpm=.7e2 1795341601000000000\n",
		"v,device=d body_temperature_c=36.6 1795341600000000000\nv,device=d body_temperature_c=37u " +
			"1795341600000000000\nv device=d",
		`v,device=d heart_rate_bpm="72`, "v,device=\xff a=t 1", "\r", `v\`, "v,device=d heart_rate_bpm=-.5 -1",
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := serve(t, ingest.Config{}, influx.Options{})
		w := s.post("/api/v2/write", string(body))
		switch w.Code {
		case 204:
		case 400, 411, 413:
			return
		default:
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		points := 0
		for lines := influx.NewScanner(body); lines.Next(); points++ {
			var device string
			at, err := lines.Read(nil, func(key, value []byte) {
				if string(key) == "device" {
					device = string(value)
				}
			}, func([]byte, influx.Kind, []byte) {})
			if len(at) == 0 || err != nil {
				t.Fatalf("line %d is acknowledged: %v", lines.Line(), err)
			}
			if _, err := vitals.ParseName(device); err != nil || len(s.stored(t, device)) == 0 {
				t.Fatalf("nothing is stored of %q: %v", device, err)
			}
			for _, text := range s.stored(t, device) {
				text, _, _ = strings.Cut(text, ",gateway ")
				ms, fields, _ := strings.Cut(text, ",")
				line := fmt.Sprintf("v,device=%s %s %s", device, strings.NewReplacer(`"`, "", ":", "=").Replace(fields), ms)
				if again := s.post("/write?precision=ms", line); again.Code != 204 {
					t.Fatalf("%s: %d %s", line, again.Code, again.Body)
				}
			}
		}
		if points == 0 {
			t.Fatal("nothing is acknowledged")
		}
	})
}
