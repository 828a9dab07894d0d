package metrics

// A Log is what became of log lines since the start.
type Log struct {
	Lines      int64 // that were written
	Bytes      int64 // of these lines
	Suppressed int64 // lines beyond their budget
	Dropped    int64 // lines that whoever reads standard error did not take in time
}

func logFamilies() []family[Log] {
	return []family[Log]{
		one(counter, "pulsegate_log_lines_total", "Log lines that were written.",
			func(l Log) float64 { return float64(l.Lines) }),
		one(counter, "pulsegate_log_bytes_total", "Bytes of the log lines that were written.",
			func(l Log) float64 { return float64(l.Bytes) }),
		labelled(counter, "pulsegate_log_suppressed_lines_total",
			"Log lines that were counted and not written, by reason: beyond their budget, or not taken by the reader of standard error.",
			"reason", func(l Log) []sample {
				return []sample{
					{"budget", float64(l.Suppressed)},
					{"blocked", float64(l.Dropped)},
				}
			}),
	}
}
