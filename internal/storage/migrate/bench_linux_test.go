package migrate_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// BenchmarkMove moves readings of 1,000 devices from a directory to PostgreSQL and back.
func BenchmarkMove(b *testing.B) {
	server := pgtest.Start(b)
	dir := b.TempDir()
	first := filepath.Join(dir, "first")
	s, err := pebblestore.Open(first, pebblestore.Options{})
	try(b, err)
	devices, times := 1000, int64(200)
	if testing.Short() {
		times = 10
	}
	for i := range times {
		var group []*storage.Entry
		for d := range devices {
			e := entry(fmt.Sprintf("ppg-%06d", d), 1_790_000_000_000+i*60_000+int64(d), 6000)
			e.Reading.Gateway = name(fmt.Sprintf("ward-%d", d%10))
			group = append(group, e)
		}
		try(b, s.Append(group))
	}
	try(b, s.Close())
	n := 0
	for _, direction := range []string{"to-postgres", "to-directory"} {
		b.Run(direction, func(b *testing.B) {
			for b.Loop() {
				n++
				from, to := first, database(server)
				if direction == "to-directory" {
					b.StopTimer()
					try(b, move(from, to, nil))
					b.StartTimer()
					from, to = to, filepath.Join(dir, fmt.Sprint(n))
				}
				try(b, move(from, to, nil))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*devices*int(times)), "ns/reading")
		})
	}
}
