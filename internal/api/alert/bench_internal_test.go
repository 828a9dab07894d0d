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
	b.take(&r, nil)
	if got := testing.AllocsPerRun(100, func() {
		r.unixMs++
		b.take(&r, nil)
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

// Readings of 10,000 devices in random order with ten rules, in groups of 500. One in ten devices has an alert.
const benchDevices, benchGroup = 10_000, 500

// benchEngine returns an engine, and the readings of the devices, each at index modulo benchDevices.
func benchEngine(b *testing.B) (e *Engine, devices []vitals.Name, values func(device int) vitals.Values) {
	devices = make([]vitals.Name, benchDevices)
	for i := range devices {
		devices[i], _ = vitals.ParseName(fmt.Sprintf("ppg-%06d", i))
	}
	e = NewEngine(storetest.NewMemory(), tenRules(), Options{})
	e.sweep(b.Context(), nil)
	e.settle(true)
	return e, devices, func(device int) (v vitals.Values) {
		for s := range vitals.Sign(5) {
			v.Set(s, 72_00)
		}
		if v.Set(vitals.SpO2, 89_00); device%10 == 0 {
			v.Set(vitals.SpO2, 97_00)
		}
		return v
	}
}

// BenchmarkEvaluate evaluates readings that were taken from the inbox.
func BenchmarkEvaluate(b *testing.B) {
	e, devices, values := benchEngine(b)
	now := time.Now().UnixMilli()
	updates := make([]update, len(devices))
	for i, device := range rand.Perm(len(devices)) {
		updates[i] = update{device: devices[device], values: values(device)}
	}
	for i := 0; b.Loop(); i++ { // one reading
		u := &updates[i%len(updates)]
		u.unixMs, u.receivedUnixMs = now+int64(i), now+int64(i)
		if n := i%len(updates) + 1; n%benchGroup == 0 {
			e.board.takeAll(updates[n-benchGroup : n])
			e.settle(false)
		}
	}
}

// BenchmarkReadings also publishes them, with 70 ns for making a reading.
func BenchmarkReadings(b *testing.B) {
	e, devices, values := benchEngine(b)
	group := make([]*storage.Entry, benchGroup)
	for i := range group {
		group[i] = &storage.Entry{Reading: new(vitals.Reading), Outcome: storage.Stored}
	}
	var calm, high = values(0), values(1)
	order := rand.Perm(len(devices))
	var buf []update
	now := time.Now().UnixMilli()
	for i := 0; b.Loop(); i++ { // one reading
		entry, device := group[i%len(group)], order[i%len(devices)]
		r := entry.Reading
		r.Device, r.TimeUnixMs, entry.ReceivedUnixMs = devices[device], now+int64(i), now+int64(i)
		if r.Values = high; device%10 == 0 {
			r.Values = calm
		}
		if (i+1)%len(group) == 0 {
			e.Publish(group)
			buf, _ = e.take(buf)
			e.settle(false)
		}
	}
}
