package alert

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A device and rule have 32 bytes, and a reading allocates nothing.
func TestCost(t *testing.T) {
	if got := unsafe.Sizeof(run{}); got > 32 {
		t.Errorf("a run has %d bytes, more than 32", got)
	}
	b, r := newBoard(tenRules(), &Options{}), update{device: name(t, "ppg-000123"), unixMs: 1}
	r.values.Set(vitals.SpO2, 97_00)
	b.take(&r)
	if got := testing.AllocsPerRun(100, func() {
		r.unixMs++
		b.take(&r)
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

// BenchmarkReadings publishes and evaluates readings of 10,000 devices in random order with ten rules, in
// groups of 500. One in ten devices has an alert.
func BenchmarkReadings(b *testing.B) {
	var devices [10_000]vitals.Name
	for i := range devices {
		devices[i], _ = vitals.ParseName(fmt.Sprintf("ppg-%06d", i))
	}
	group := make([]*storage.Entry, 500)
	for i := range group {
		group[i] = &storage.Entry{Reading: new(vitals.Reading), Outcome: storage.Stored}
		for s := range vitals.Sign(5) {
			group[i].Reading.Values.Set(s, 72_00)
		}
	}
	e := NewEngine(storetest.NewMemory(), tenRules(), Options{})
	e.sweep(b.Context())
	e.settle(true)
	order := rand.Perm(len(devices))
	var buf []update
	now := time.Now().UnixMilli()
	for i := 0; b.Loop(); i++ { // one reading
		entry, device := group[i%len(group)], order[i%len(devices)]
		r := entry.Reading
		r.Device, r.TimeUnixMs, entry.ReceivedUnixMs = devices[device], now+int64(i), now+int64(i)
		r.Values.Set(vitals.SpO2, 89_00)
		if device%10 == 0 {
			r.Values.Set(vitals.SpO2, 97_00)
		}
		if (i+1)%len(group) == 0 {
			e.Publish(group)
			buf, _ = e.take(buf)
			e.settle(false)
		}
	}
}
