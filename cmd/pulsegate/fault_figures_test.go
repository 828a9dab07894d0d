package main_test

import (
	"fmt"
	"strings"
)

// A figure is a measurement of a server during a soak.
type figure struct {
	life        int // number of the server
	minutes     float64
	memory      float64 // resident, in bytes
	descriptors float64
	connections float64 // of clients; each has a descriptor
	goroutines  float64
	disk        float64 // of the store, in bytes
	stored      float64 // readings that this server stored
}

type figures []figure

// The bounds of a soak. The absolute bounds hold at every moment. Growth is measured over the life
// of the last server, from the mean of its second quarter to that of its last. That of descriptors
// does not count connections: clients may still be coming back in the second quarter. Memory: Go, 64 MiB
// of cache and memtables, the buffers of 80 connections, and garbage of batches. Descriptors: 80
// connections, 2 readers, and the files of the store. Goroutines: one for each connection outside
// the fast lane, and about 30.
const (
	maxMemory      = 160 << 20
	maxDescriptors = 200
	maxGoroutines  = 120

	maxMemoryGrowth     = 16 << 20
	maxDescriptorGrowth = 20
	maxGoroutineGrowth  = 20

	// A reading takes about 20 bytes in a table, twice while a compaction rewrites it. The
	// log is that of two memtables.
	maxDiskPerReading = 60
	maxDiskFixed      = 96 << 20
)

// enoughFigures is the number of measurements of the last server that growth needs.
const enoughFigures = 8

// A quantity is one column of figures.
type quantity struct {
	name      string
	of        func(figure) float64
	grows     func(figure) float64 // nil: of
	unit      float64
	unitName  string
	max       float64
	maxGrowth float64 // 0: may grow
}

// growing returns what must not grow.
func (q *quantity) growing() func(figure) float64 {
	if q.grows != nil {
		return q.grows
	}
	return q.of
}

func quantities(stored uint64) []quantity {
	return []quantity{
		{"resident memory", func(f figure) float64 { return f.memory }, nil, 1 << 20, " MiB", maxMemory, maxMemoryGrowth},
		{"file descriptors", func(f figure) float64 { return f.descriptors },
			func(f figure) float64 { return f.descriptors - f.connections }, 1, "", maxDescriptors, maxDescriptorGrowth},
		{"goroutines", func(f figure) float64 { return f.goroutines }, nil, 1, "", maxGoroutines, maxGoroutineGrowth},
		{"disk", func(f figure) float64 { return f.disk }, nil, 1 << 20, " MiB",
			maxDiskFixed + maxDiskPerReading*float64(stored), 0},
	}
}

// peak returns the largest value.
func (fs figures) peak(of func(figure) float64) float64 {
	peak := 0.0
	for _, f := range fs {
		peak = max(peak, of(f))
	}
	return peak
}

func (fs figures) mean(of func(figure) float64) float64 {
	sum := 0.0
	for _, f := range fs {
		sum += of(f)
	}
	return sum / float64(len(fs))
}

// last returns the measurements of the last server.
func (fs figures) last() figures {
	for i, f := range fs {
		if f.life == fs[len(fs)-1].life {
			return fs[i:]
		}
	}
	return nil
}

// growth compares the end of the last server's life with its beginning. It ignores the first
// quarter, in which caches fill.
func (fs figures) growth(of func(figure) float64) float64 {
	last := fs.last()
	quarter := len(last) / 4
	if quarter == 0 {
		return 0
	}
	return last[3*quarter:].mean(of) - last[quarter:2*quarter].mean(of)
}

// wrong returns the bounds that were exceeded.
func (fs figures) wrong(stored uint64) (wrong []string) {
	if len(fs.last()) < enoughFigures {
		wrong = append(wrong, fmt.Sprintf("the last server was measured %d times, which is too few", len(fs.last())))
	}
	for _, q := range quantities(stored) {
		if peak := fs.peak(q.of); peak > q.max || peak <= 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %.0f%s at most, want up to %.0f", q.name, peak/q.unit, q.unitName,
				q.max/q.unit))
		}
		if growth := fs.growth(q.growing()); q.maxGrowth > 0 && growth > q.maxGrowth {
			wrong = append(wrong, fmt.Sprintf("%s: has grown by %.1f%s, want up to %.0f", q.name, growth/q.unit, q.unitName,
				q.maxGrowth/q.unit))
		}
	}
	return wrong
}

// table returns the figures as a table for bench/results/reliability.txt.
func (fs figures) table(stored uint64) string {
	var b strings.Builder
	last := fs.last()
	fmt.Fprintf(&b,
		"| | at most | bound | change over the last %.1f min, without a restart | bound |\n|---|--:|--:|--:|--:|\n",
		last[len(last)-1].minutes-last[0].minutes)
	for _, q := range quantities(stored) {
		bound := fmt.Sprintf("%.0f%s", q.maxGrowth/q.unit, q.unitName)
		if q.maxGrowth == 0 {
			bound = "none: readings are stored"
		}
		fmt.Fprintf(&b, "| %s | %.0f%s | %.0f%s | %+.1f%s | %s |\n",
			q.name, fs.peak(q.of)/q.unit, q.unitName, q.max/q.unit, q.unitName, fs.growth(q.growing())/q.unit, q.unitName, bound)
	}
	fmt.Fprintf(&b, "\nThe disk held %.0f bytes for each reading in the end. %d samples.\n",
		fs[len(fs)-1].disk/float64(max(stored, 1)), len(fs))
	return b.String()
}
