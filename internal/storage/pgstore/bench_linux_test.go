package pgstore_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// BenchmarkAppend stores groups of new readings, and of duplicates, of 10,000 devices. It reports
// the CPU time of this process and of PostgreSQL for each reading.
func BenchmarkAppend(b *testing.B) {
	server := pgtest.Start(b, "fsync=on", "max_wal_size=4GB", "shared_buffers=512MB")
	for _, size := range []int{250, 1000, 4000} {
		for _, again := range []bool{false, true} {
			b.Run(fmt.Sprintf("group=%d/again=%t", size, again), func(b *testing.B) {
				s := open(b, options(server))
				defer s.Close()
				groups := func(k int) []*storage.Entry {
					group := make([]*storage.Entry, size)
					for i := range group {
						n := k*size + i
						e := reading(fmt.Sprintf("ppg-%06d", n*7919%10000), int64(n/10000)*1000, vitals.Value(n%9000))
						e.Reading.Values.Set(vitals.SpO2, 9700)
						group[i] = e
					}
					return group
				}
				for k := range 10000/size + 1 { // registers the devices
					try(b, s.Append(groups(k)))
				}
				first := 10000/size + 1
				b.ResetTimer()
				own, theirs, readings := ownCPU(b), server.CPU(b), 0
				for k := 0; b.Loop(); k++ {
					at := first + k
					if again {
						at = k % first
					}
					try(b, s.Append(groups(at)))
					readings += size
				}
				per := func(d time.Duration) float64 { return float64(d) / float64(readings) }
				b.ReportMetric(per(ownCPU(b)-own), "own-ns/reading")
				b.ReportMetric(per(server.CPU(b)-theirs), "server-ns/reading")
				b.ReportMetric(float64(readings)/b.Elapsed().Seconds(), "readings/s")
			})
		}
	}
}

// ownCPU returns the CPU time of this process.
func ownCPU(b *testing.B) time.Duration {
	var use syscall.Rusage
	try(b, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
