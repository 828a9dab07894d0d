package main

import (
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// rounded ends the text of every report.
const rounded = "Figures are medians, with the range over the rounds in brackets."

// per returns the figures of n requests or readings: CPU time in µs and rate.
func per(n uint64, took, cpu, loader time.Duration) report.Figures {
	return report.Figures{
		"cpu": report.Micros(cpu) / float64(n), "loader": report.Micros(loader) / float64(n),
		"rate": float64(n) / took.Seconds(),
	}
}

// latency adds latencies to f, in ms.
func latency(f report.Figures, p50, p99 time.Duration) report.Figures {
	f["p50"], f["p99"] = report.Millis(p50), report.Millis(p99)
	return f
}

// latencyColumns are the columns of the medians of what latency adds.
func latencyColumns(format string) []report.Column {
	return []report.Column{
		{Title: "p50, ms", Figure: "p50", Format: format, Show: report.Median},
		{Title: "p99, ms", Figure: "p99", Format: format, Show: report.Median},
	}
}
