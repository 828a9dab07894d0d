package alert

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/pulsegate/pulsegate/vitals"
)

// A device and rule have 32 bytes, a device two cache lines, and a reading allocates nothing.
func TestCost(t *testing.T) {
	if got := unsafe.Sizeof(run{}); got > 32 {
		t.Errorf("a run has %d bytes, more than 32", got)
	}
	if size, name := unsafe.Sizeof(watched{}), unsafe.Offsetof(watched{}.name); size != 128 || name != 64 {
		t.Errorf("a watched has %d bytes, and its name begins at %d", size, name)
	}
	b, r := newBoard(tenRules(), &Options{}), update{device: name(t, "ppg-000123"), unixMs: 1}
	reading := benchReading(r.device, 0, 1)
	b.filter.look(&r, &reading.Values)
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

func benchReading(device vitals.Name, i int, unixMs int64) vitals.Reading {
	r := vitals.Reading{Device: device, TimeUnixMs: unixMs}
	for s := range vitals.Sign(5) {
		r.Values.Set(s, 72_00)
	}
	if i%10 == 0 {
		r.Values.Set(vitals.SpO2, 97_00)
	}
	return r
}
