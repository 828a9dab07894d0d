package hl7_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// BenchmarkMonitor decodes the message of a monitor with a structure and six values.
func BenchmarkMonitor(b *testing.B) {
	message := []byte(strings.ReplaceAll(header+patient+order+`OBX|1||69965^MDC_DEV_MON_PHYSIO_MULTI_PARAM_MDS^MDC|1.0.0.0|||||||X|||||||080019FFFE0B4020^B40_GE
OBX|2||70686^MDC_DEV_PRESS_BLD_NONINV_VMD^MDC|1.1.0.0|||||||X
OBX|3||70687^MDC_DEV_PRESS_BLD_NONINV_CHAN^MDC|1.1.1.0|||||||X|||20261122042642+0000
OBX|4|NM|150021^MDC_PRESS_BLD_NONINV_SYS^MDC|1.1.1.1|120|266016^MDC_DIM_MMHG^MDC|||||R
OBX|5|NM|150022^MDC_PRESS_BLD_NONINV_DIA^MDC|1.1.1.2|80|266016^MDC_DIM_MMHG^MDC|||||R
OBX|6|NM|147842^MDC_ECG_HEART_RATE^MDC|1.5.1.1|80|264864^MDC_DIM_BEAT_PER_MIN^MDC|||||R
OBX|7|NM|150456^MDC_PULS_OXIM_SAT_O2^MDC|1.6.1.1|97|262688^MDC_DIM_PERCENT^MDC|||||R
OBX|8|NM|151562^MDC_RESP_RATE^MDC|1.7.1.1|16|264928^MDC_DIM_RESP_PER_MIN^MDC|||||R
OBX|9|NM|150344^MDC_TEMP^MDC|1.8.1.1|36.6|268192^MDC_DIM_DEGC^MDC|||||R
`, "\n", "\r"))
	opt := hl7.Options{Signs: vitals.NewSigns()}
	rules, err := vitals.NewValidator(opt.Signs.DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	var batch vitals.Batch
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		m := hl7.Parse(message, &opt)
		in := ingest.Intake{NowUnixMs: receivedAt.UnixMilli(), Rules: rules, MaxReadings: 100, Batch: &batch}
		if err := m.Decode(nil, &in); err != nil || len(batch.Readings) != 5 {
			b.Fatalf("%d readings, %v", len(batch.Readings), err)
		}
	}
}
