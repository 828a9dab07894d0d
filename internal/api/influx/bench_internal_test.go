package influx

import (
	"fmt"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// BenchmarkDecode decodes requests of 100 lines that no mapping reads.
func BenchmarkDecode(b *testing.B) {
	var body []byte
	for i := range 100 {
		body = fmt.Appendf(body, "vitals,device=ppg-%d,gateway=gw-1,host=x heart_rate_bpm=72.5,spo2_pct=97i 1795341600%09d\n",
			i, i)
	}
	signs := vitals.NewSigns()
	rules, err := vitals.NewValidator(signs.DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	h := &Handler{opt: Options{Signs: signs, MaxLineBytes: 1000, DeviceTag: DefaultDeviceTag}}
	var batch vitals.Batch
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		in := input{h: h, precision: precisions[""]}
		intake := ingest.Intake{NowUnixMs: 1795341600_000, Rules: rules, MaxReadings: 100, Batch: &batch}
		if err := in.Decode(body, &intake); err != nil || len(batch.Readings) != 100 {
			b.Fatal(err, batch.Refused)
		}
	}
}
