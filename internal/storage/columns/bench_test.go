package columns_test

import (
	"fmt"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
)

// benchRows are the numbers of rows of the benchmarks' segments.
var benchRows = []int{columns.MaxRows, 256, 32}

// eachShape runs a benchmark with segments of many devices of each shape.
func eachShape(b *testing.B, f func(b *testing.B, devices [][]columns.Row)) {
	for _, s := range shapes {
		for _, n := range benchRows {
			b.Run(fmt.Sprintf("shape=%s/rows=%d", s.name, n), func(b *testing.B) {
				rng := newRand()
				devices := make([][]columns.Row, 64)
				for i := range devices {
					devices[i] = s.rows(rng, n)
				}
				b.ReportAllocs()
				f(b, devices)
			})
		}
	}
}

// An operation of the benchmarks is one segment or one group.

func BenchmarkAppendSegment(b *testing.B) {
	eachShape(b, func(b *testing.B, devices [][]columns.Row) {
		buf, i, n := make([]byte, 0, 1<<16), 0, 0
		for b.Loop() {
			rows := devices[i%len(devices)]
			buf = columns.AppendSegment(buf[:0], rows)
			i++
			n += len(rows)
		}
		size := 0
		for _, rows := range devices {
			size += len(columns.AppendSegment(buf[:0], rows))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
		b.ReportMetric(float64(size)/float64(len(devices)*len(devices[0])), "B/row")
	})
}

func BenchmarkDecodeSegment(b *testing.B) {
	eachShape(b, func(b *testing.B, devices [][]columns.Row) {
		segments := make([][]byte, len(devices))
		for i, rows := range devices {
			segments[i] = columns.AppendSegment(nil, rows)
		}
		rows, i, n := make([]columns.Row, 0, columns.MaxRows), 0, 0
		for b.Loop() {
			var err error
			if rows, err = columns.DecodeSegment(segments[i%len(segments)], rows[:0]); err != nil {
				b.Fatal(err)
			}
			i++
			n += len(rows)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
	})
}

func BenchmarkSegmentHeader(b *testing.B) {
	segment := columns.AppendSegment(nil, shapes[0].rows(newRand(), columns.MaxRows))
	gateways := make([]uint32, 0, 8)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := columns.SegmentHeader(segment, gateways); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGroup(b *testing.B) {
	for _, s := range []shape{shapes[0], shapes[len(shapes)-1]} {
		for _, n := range []int{1, 64, 1000} {
			rng := newRand()
			runs, rows := s.group(rng, n)
			group := columns.AppendGroup(nil, runs, rows)
			b.Run(fmt.Sprintf("do=append/shape=%s/rows=%d", s.name, n), func(b *testing.B) {
				b.ReportAllocs()
				buf, k := make([]byte, 0, 2*len(group)), 0
				for b.Loop() {
					buf = columns.AppendGroup(buf[:0], runs, rows)
					k += n
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(k), "ns/row")
				b.ReportMetric(float64(len(group))/float64(n), "B/row")
			})
			b.Run(fmt.Sprintf("do=decode/shape=%s/rows=%d", s.name, n), func(b *testing.B) {
				b.ReportAllocs()
				runs, rows, k := runs[:0:0], rows[:0:0], 0
				for b.Loop() {
					var err error
					if runs, rows, err = columns.DecodeGroup(group, runs[:0], rows[:0]); err != nil {
						b.Fatal(err)
					}
					k += n
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(k), "ns/row")
			})
		}
	}
}
