package metrics

import "time"

// A Retention is how the removal of old readings fares. Counts are since the start.
type Retention struct {
	Readings int64     // that were removed
	Devices  int64     // of which no reading was left
	LastDone time.Time // when a run last came to its end; zero: none has
	Failed   int64     // runs that did not
}

func retentionFamilies() []family[Retention] {
	return []family[Retention]{
		one(counter, "pulsegate_retention_removed_readings_total", "Readings that were removed because they were older than the server keeps.",
			func(r Retention) float64 { return float64(r.Readings) }),
		one(counter, "pulsegate_retention_removed_devices_total", "Devices of which old readings were removed and no other was left.",
			func(r Retention) float64 { return float64(r.Devices) }),
		one(gauge, "pulsegate_retention_last_run_timestamp_seconds", "Unix time at which old readings were last looked for, to the end. 0 before the first time.",
			func(r Retention) float64 {
				if r.LastDone.IsZero() {
					return 0
				}
				return float64(r.LastDone.UnixMilli()) / 1000
			}),
		one(counter, "pulsegate_retention_failures_total", "Runs that could not remove all old readings.",
			func(r Retention) float64 { return float64(r.Failed) }),
	}
}
