package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// Sources are where the figures of a scrape come from. A nil one is left out.
// The functions are called during scrapes, concurrently; they must return soon.
type Sources struct {
	Requests *Requests
	Commits  *Commits
	Ingest   func() Ingest
	Queue    func() groupcommit.Stats
	Store    func() Store
	Access   func() Access

	Retention func() Retention
	Log       func() Log
	Traces    func() Traces
	Ready     func() bool // whether readyz says yes
	Version   string      // of the program
}

// An Ingest is what became of readings and of requests since the start. It has
// the fields of ingest.Counters in their order, so that the one converts to the
// other, and a counter that is added there cannot be forgotten here.
type Ingest struct {
	Stored    uint64 // readings that were new, or completed a stored one
	Duplicate uint64 // readings that were stored already
	Conflict  uint64 // readings that contradicted a stored one
	Invalid   uint64 // readings that broke a rule
	Forbidden uint64 // readings of devices that their token is not for

	// Requests that were refused whole: for who sent them, for their form, or for the
	// server's state.
	Unauthorized, NoRight, TooManyReadings                     uint64
	Malformed, TooLarge, Timeout, NoLength, UnknownEncoding    uint64
	Overloaded, Draining, DiskLow, StoreFailed, OutcomeUnknown uint64

	Queued    int64 // readings admitted and not yet answered, now
	BodyBytes int64 // memory of bodies that are being read, now
}

// A Store is the state of a store. Counts are since it was opened.
type Store struct {
	Devices             int64         // devices that it holds
	SizeBytes           uint64        // taken by the store, its log included
	LogBytes            uint64        // of the write-ahead log
	Tables              int64         // sorted tables
	CompactionDebtBytes uint64        // that compaction has yet to rewrite
	FreeBytes           uint64        // of its file system, for this process
	Syncs               int64         // groups that were written
	SyncTime            time.Duration // spent in writing them
	WrittenBytes        int64         // to the log
	Lookups             int64         // readings for which stored ones were looked up
	CacheHits           int64         // of the cache of blocks
	CacheMisses         int64

	Active           []Active // devices that were heard of lately
	MinFreeBytes     uint64   // free space below which readings are refused; 0: none
	Failed           bool     // takes no readings until the next start
	Recovered        bool     // was not closed in good order before this start
	BackgroundErrors int64    // flushes and compactions that failed, and are tried again
	Damaged          int64    // times that a file was found damaged
	SlowOperations   int64    // operations on files that took longer than 5 s
}

// An Active is the number of devices whose newest reading is not older than a time.
type Active struct {
	Within  string // such as "15m"
	Devices int64
}

// An Access is what became of credentials since the start, and which are in force.
type Access struct {
	// Requests that were refused for their credentials, by reason.
	NoCredentials, Malformed, Unknown, Expired, NoRight, NotCovered, BadCertificate uint64

	Tokens            int       // of the file that is in use, expired ones included
	TokensStale       bool      // the file cannot be used, and what it held before is
	CertificateEnd    time.Time // of the server's certificate; zero: there is none
	CertificatesStale bool      // as TokensStale, for the files of certificates
}

// A sample is one series of a family: the value of its label, and its value.
type sample struct {
	label string
	value float64
}

// A family is a metric with its help text, and how it is read from a T.
type family[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(T) []sample
}

// one returns the family of a metric without labels.
func one[T any](kind prometheus.ValueType, name, help string, read func(T) float64) family[T] {
	return family[T]{prometheus.NewDesc(name, help, nil, nil), kind,
		func(t T) []sample { return []sample{{value: read(t)}} }}
}

// labelled returns the family of a metric with one label.
func labelled[T any](kind prometheus.ValueType, name, help, label string, read func(T) []sample) family[T] {
	return family[T]{prometheus.NewDesc(name, help, []string{label}, nil), kind, read}
}

// truth is how a metric tells yes from no.
func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// A collector shows the families of one source. All of a scrape's values of one
// source come from one call of it.
type collector[T any] struct {
	source   func() T
	families []family[T]
}

// Describe implements prometheus.Collector.
func (c collector[T]) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector[T]) Collect(ch chan<- prometheus.Metric) {
	t := c.source()
	for _, f := range c.families {
		for _, s := range f.read(t) {
			if s.label == "" {
				ch <- prometheus.MustNewConstMetric(f.desc, f.kind, s.value)
			} else {
				ch <- prometheus.MustNewConstMetric(f.desc, f.kind, s.value, s.label)
			}
		}
	}
}

func ingestFamilies() []family[Ingest] {
	return []family[Ingest]{
		labelled(counter, "pulsegate_readings_total",
			"Readings that were settled, by outcome. Stored includes those that completed a stored reading.",
			"outcome", func(i Ingest) []sample {
				return []sample{
					{"stored", float64(i.Stored)},
					{"duplicate", float64(i.Duplicate)},
					{"conflict", float64(i.Conflict)},
					{"invalid", float64(i.Invalid)},
					{"forbidden", float64(i.Forbidden)},
				}
			}),
		labelled(counter, "pulsegate_refused_requests_total",
			"Requests of which no reading was looked at, or none is known to be stored, by reason.",
			"reason", func(i Ingest) []sample {
				return []sample{
					{"unauthorized", float64(i.Unauthorized)},
					{"no_right", float64(i.NoRight)},
					{"too_many_readings", float64(i.TooManyReadings)},
					{"malformed", float64(i.Malformed)},
					{"too_large", float64(i.TooLarge)},
					{"timeout", float64(i.Timeout)},
					{"no_length", float64(i.NoLength)},
					{"unknown_encoding", float64(i.UnknownEncoding)},
					{"overloaded", float64(i.Overloaded)},
					{"draining", float64(i.Draining)},
					{"disk_low", float64(i.DiskLow)},
					{"store_failed", float64(i.StoreFailed)},
					{"outcome_unknown", float64(i.OutcomeUnknown)},
				}
			}),
		one(gauge, "pulsegate_queue_readings", "Readings that are admitted and not yet answered.",
			func(i Ingest) float64 { return float64(i.Queued) }),
		one(gauge, "pulsegate_request_body_bytes", "Memory of request bodies that are being read.",
			func(i Ingest) float64 { return float64(i.BodyBytes) }),
	}
}

func accessFamilies() []family[Access] {
	return []family[Access]{
		labelled(counter, "pulsegate_auth_refused_total", "Requests that were refused for their credentials, by reason.",
			"reason", func(a Access) []sample {
				return []sample{
					{"no_credentials", float64(a.NoCredentials)},
					{"malformed", float64(a.Malformed)},
					{"unknown", float64(a.Unknown)},
					{"expired", float64(a.Expired)},
					{"no_right", float64(a.NoRight)},
					{"not_covered", float64(a.NotCovered)},
					{"bad_certificate", float64(a.BadCertificate)},
				}
			}),
		one(gauge, "pulsegate_tokens", "Tokens in use, expired ones included.",
			func(a Access) float64 { return float64(a.Tokens) }),
		one(gauge, "pulsegate_tokens_stale", "Whether the token file cannot be used, so that the tokens that it held before are: 0 or 1.",
			func(a Access) float64 { return truth(a.TokensStale) }),
		one(gauge, "pulsegate_certificate_expiry_timestamp_seconds", "Unix time at which the server's certificate, or one that it is sent with, expires. 0 without TLS.",
			func(a Access) float64 {
				if a.CertificateEnd.IsZero() {
					return 0
				}
				return float64(a.CertificateEnd.Unix())
			}),
		one(gauge, "pulsegate_certificates_stale", "Whether the files of certificates cannot be used, so that those that were read before are: 0 or 1.",
			func(a Access) float64 { return truth(a.CertificatesStale) }),
	}
}

func queueFamilies() []family[groupcommit.Stats] {
	type stats = groupcommit.Stats
	return []family[stats]{
		one(counter, "pulsegate_commit_calls_total", "Calls whose group has been flushed. A request makes one, a batch larger than a group several.",
			func(s stats) float64 { return float64(s.Calls) }),
		one(counter, "pulsegate_commit_failures_total", "Groups whose flush failed.",
			func(s stats) float64 { return float64(s.Failed) }),
		one(counter, "pulsegate_commit_queue_full_total", "Calls that were refused because the commit queue was full.",
			func(s stats) float64 { return float64(s.Full) }),
		one(gauge, "pulsegate_commit_queue_calls", "Calls that wait for their group's flush, the running one included.",
			func(s stats) float64 { return float64(s.QueuedCalls) }),
		one(gauge, "pulsegate_commit_queue_readings", "Readings that wait for their group's flush, the running one included.",
			func(s stats) float64 { return float64(s.QueuedItems) }),
	}
}

func storeFamilies() []family[Store] {
	return []family[Store]{
		one(gauge, "pulsegate_store_devices", "Devices that the store holds.",
			func(s Store) float64 { return float64(s.Devices) }),
		labelled(gauge, "pulsegate_store_active_devices",
			"Devices whose newest reading was measured within the time that the label tells, to the minute.",
			"within", func(s Store) []sample {
				samples := make([]sample, 0, len(s.Active))
				for _, a := range s.Active {
					samples = append(samples, sample{a.Within, float64(a.Devices)})
				}
				return samples
			}),
		one(gauge, "pulsegate_store_failed", "1 after a failed write or sync: no readings are taken until the next start, and the process is about to end.",
			func(s Store) float64 { return truth(s.Failed) }),
		one(gauge, "pulsegate_store_recovered", "1 if the store was not closed in good order before this start: after a kill, a power cut or a failed sync.",
			func(s Store) float64 { return truth(s.Recovered) }),
		one(counter, "pulsegate_store_background_errors_total", "Flushes and compactions that failed. They are tried again.",
			func(s Store) float64 { return float64(s.BackgroundErrors) }),
		one(counter, "pulsegate_store_damage_total", "Times that a stored file was found damaged.",
			func(s Store) float64 { return float64(s.Damaged) }),
		one(counter, "pulsegate_store_slow_operations_total", "Operations on the store's files that took longer than 5 s.",
			func(s Store) float64 { return float64(s.SlowOperations) }),
		one(gauge, "pulsegate_store_min_free_bytes", "Free space below which readings are refused. 0: no limit.",
			func(s Store) float64 { return float64(s.MinFreeBytes) }),
		one(gauge, "pulsegate_store_size_bytes", "Disk space that the store takes, its log included.",
			func(s Store) float64 { return float64(s.SizeBytes) }),
		one(gauge, "pulsegate_store_log_bytes", "Size of the write-ahead log, which is replayed after a crash.",
			func(s Store) float64 { return float64(s.LogBytes) }),
		one(gauge, "pulsegate_store_tables", "Sorted tables of the store.",
			func(s Store) float64 { return float64(s.Tables) }),
		one(gauge, "pulsegate_store_compaction_debt_bytes", "Bytes that compaction has yet to rewrite before the store is in its resting form.",
			func(s Store) float64 { return float64(s.CompactionDebtBytes) }),
		one(gauge, "pulsegate_store_free_bytes", "Free space of the store's file system, for this process.",
			func(s Store) float64 { return float64(s.FreeBytes) }),
		one(counter, "pulsegate_store_syncs_total", "Groups that were written, each with one sync. Groups that change nothing need none.",
			func(s Store) float64 { return float64(s.Syncs) }),
		one(counter, "pulsegate_store_sync_seconds_total", "Time spent in writing groups, syncs included.",
			func(s Store) float64 { return s.SyncTime.Seconds() }),
		one(counter, "pulsegate_store_written_bytes_total", "Bytes written to the write-ahead log.",
			func(s Store) float64 { return float64(s.WrittenBytes) }),
		one(counter, "pulsegate_store_lookups_total", "Readings for which stored ones were looked up: those that are not newer than all of their device.",
			func(s Store) float64 { return float64(s.Lookups) }),
		one(counter, "pulsegate_store_cache_hits_total", "Blocks that the store found in its cache.",
			func(s Store) float64 { return float64(s.CacheHits) }),
		one(counter, "pulsegate_store_cache_misses_total", "Blocks that the store read from its files.",
			func(s Store) float64 { return float64(s.CacheMisses) }),
	}
}
