package metrics

// Traces are the requests that were to be traced since the start.
type Traces struct {
	Exported uint64 // that a collector took
	Dropped  uint64 // for which the queue had no room
	Failed   uint64 // that no collector took
}

func tracesFamilies() []family[Traces] {
	return []family[Traces]{
		labelled(counter, "pulsegate_traced_requests_total",
			"Requests that were traced, by outcome: exported to the collector, dropped for want of room, or not taken by the collector.",
			"outcome", func(t Traces) []sample {
				return []sample{
					{"exported", float64(t.Exported)},
					{"dropped", float64(t.Dropped)},
					{"failed", float64(t.Failed)},
				}
			}),
	}
}
