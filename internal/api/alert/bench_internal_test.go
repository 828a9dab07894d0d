package alert

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A device and rule have 32 bytes, and a reading allocates nothing.
func TestCost(t *testing.T) {
	if got := unsafe.Sizeof(run{}); got > 32 {
		t.Errorf("a run has %d bytes, more than 32", got)
	}
	b, device, r := newBoard(tenRules(), &Options{}), name(t, "ppg-000123"), storage.Record{TimeUnixMs: 1}
	r.Values.Set(vitals.SpO2, 97_00)
	b.take(&device, &r, false)
	if got := testing.AllocsPerRun(100, func() {
		r.TimeUnixMs++
		b.take(&device, &r, false)
	}); got != 0 {
		t.Errorf("%v allocations a reading, want 0", got)
	}
}

func tenRules() (rules []Rule) {
	for i := range 9 {
		rules = append(rules, Rule{Name: fmt.Sprint("r", i), Sign: vitals.Sign(i % 4), Met: vitals.Range{Min: 90_00, Max: vitals.MaxValue}, For: 2 * time.Minute, Values: 3, MaxAge: 10 * time.Minute})
	}
	return append(rules, Rule{Name: "Silent", Silent: time.Hour})
}

// BenchmarkTake adds readings of 10,000 devices to boards with ten rules.
func BenchmarkTake(b *testing.B) {
	board := newBoard(tenRules(), &Options{})
	var devices [10_000]vitals.Name
	for i := range devices {
		devices[i], _ = vitals.ParseName(fmt.Sprintf("ppg-%06d", i))
	}
	var r storage.Record
	r.Values.Set(vitals.SpO2, 97_00)
	r.Values.Set(vitals.HeartRate, 72_00)
	for i := 0; b.Loop(); i++ {
		r.TimeUnixMs = int64(i)
		board.take(&devices[i%len(devices)], &r, false)
		if i%4096 == 0 {
			for _, w := range board.touched {
				w.touched = false
			}
			board.touched = board.touched[:0]
		}
	}
}
