package pgstore_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// BenchmarkAppend stores groups of new readings of 1,000 devices, with a tenth of each kind of others. The times span
// four partitions. It reports the CPU time of PostgreSQL and of this process for each reading.
func BenchmarkAppend(b *testing.B) {
	const (
		devices = 1000
		stepMs  = 12 * 60 * minuteMs
		before  = 240 // groups that are stored at first
	)
	server := sharedServer(b)
	for _, kind := range []string{"new", "repeated", "completing", "late"} {
		b.Run(kind, func(b *testing.B) {
			o := options(server)
			s := open(b, o)
			pgstore.SettleFor(s, time.Minute)
			group := func(n int64) (g []*storage.Entry) {
				for d := range devices {
					e := reading(fmt.Sprint("device-", d), n*stepMs+int64(d), vitals.Value(6000+d))
					e.Reading.Values.Set(vitals.SpO2, 9700)
					e.ReceivedUnixMs = n*stepMs + 1000
					if d%10 == 0 && n >= before && kind != "new" {
						e.Reading.TimeUnixMs = (n*37+int64(d)*6)%before*stepMs + int64(d)
						switch kind {
						case "completing":
							e.Reading.Values.Set([]vitals.Sign{vitals.RestingHeartRate, vitals.Systolic, vitals.Diastolic}[n/before%3], 6000)
						case "late":
							e.Reading.TimeUnixMs += n * 1000
						}
					}
					g = append(g, e)
				}
				return g
			}
			store := func(n int64) {
				if err := s.Append(group(n)); err != nil {
					b.Fatal(err)
				}
			}
			for n := range int64(before) {
				store(n)
			}
			execute(b, server, "CHECKPOINT")
			server0, own0 := server.CPU(b), ownCPU(b)
			n := int64(before)
			for b.Loop() {
				store(n)
				n++
			}
			readings := float64(devices * (n - before))
			b.ReportMetric(float64((server.CPU(b)-server0).Microseconds())/readings, "postgres-us/reading")
			b.ReportMetric(float64((ownCPU(b)-own0).Microseconds())/readings, "server-us/reading")
		})
	}
}

// ownCPU returns the CPU time of this process.
func ownCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
