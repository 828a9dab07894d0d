package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// Commits observe the groups that are committed: how many readings each holds,
// and how long it takes to be durable.
type Commits struct {
	readings histogram
	duration histogram
}

// NewCommits returns Commits that have seen nothing.
func NewCommits() *Commits {
	return &Commits{
		readings: newHistogram(groupBounds, 1),
		duration: newHistogram(commitBounds, 1e9),
	}
}

var (
	// groupBounds are powers of two, up to the largest group that is usual. A
	// bucket holds the groups that share one sync among about as many readings.
	groupBounds = []int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}

	// commitBounds reach from a sync that a disk's own battery cuts short to a
	// disk that stalls.
	commitBounds = durationBounds(10*time.Microsecond, 10*time.Second)
)

// Observe counts a group of readings whose commit took d, whatever came of it. It
// does not allocate.
func (c *Commits) Observe(readings int, d time.Duration) {
	c.readings.observe(int64(readings))
	c.duration.observe(d.Nanoseconds())
}

// An Appender makes groups of readings durable. Package store states what it
// promises.
type Appender interface {
	Append(group []*storage.Entry) error
}

// Appender returns an Appender that observes what next is given. It keeps every
// promise of next.
func (c *Commits) Appender(next Appender) Appender { return observedAppender{c, next} }

type observedAppender struct {
	commits *Commits
	next    Appender
}

func (a observedAppender) Append(group []*storage.Entry) error {
	start := time.Now()
	err := a.next.Append(group)
	a.commits.Observe(len(group), time.Since(start))
	return err
}

var (
	groupReadingsDesc = prometheus.NewDesc("pulsegate_commit_group_readings",
		"Readings in one commit group. A group shares one sync.", nil, nil)
	commitDurationDesc = prometheus.NewDesc("pulsegate_commit_duration_seconds",
		"Time in which the store settled a group and made it durable.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Commits) Describe(ch chan<- *prometheus.Desc) {
	ch <- groupReadingsDesc
	ch <- commitDurationDesc
}

// Collect implements prometheus.Collector.
func (c *Commits) Collect(ch chan<- prometheus.Metric) {
	ch <- c.readings.metric(groupReadingsDesc)
	ch <- c.duration.metric(commitDurationDesc)
}
