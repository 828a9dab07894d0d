package report_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

func TestDevicesMarkdown(t *testing.T) {
	d := &report.Devices{
		Setting: report.Here("make bench-devices"),
		Few:     report.DevicesRow{Devices: 1000, Readings: 20, Runs: []report.DevicesRun{{ArrivingBytes: 100 << 20, AfterBytes: 10 << 20, DiskBytes: 100_000}}},
		Many:    report.DevicesRow{Devices: 2000, Readings: 10, Runs: []report.DevicesRun{{ArrivingBytes: 100<<20 + 500_000, AfterBytes: 10<<20 + 300_000, DiskBytes: 200_000}}},
	}
	text := d.Markdown()
	for _, want := range []string{
		"| 1000 | 20 | 100.0 [100.0–100.0] | 10.0 [10.0–10.0] | 0.1 [0.1–0.1] | 5.0 [5.0–5.0] |\n",
		"| 2000 | 10 | 100.5 [100.5–100.5] | 10.3 [10.3–10.3] | 0.2 [0.2–0.2] | 10.0 [10.0–10.0] |\n",
		"| **one more device**, bytes | | 500 [500–500] | 300 [300–300] | 100 [100–100] | |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
