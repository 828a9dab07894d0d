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
		rules = append(rules, Rule{Name: fmt.Sprint("r", i), Sign: vitals.Sign(i % 4),
			Met: vitals.Range{Min: 90_00, Max: vitals.MaxValue}, For: 2 * time.Minute, Values: 3, MaxAge: 10 * time.Minute})
	}
	return append(rules, Rule{Name: "Silent", Silent: time.Hour})
}

// Readings of 10,000 devices in random order with ten rules, in groups of 500. One in ten devices has alerts.
const benchDevices, benchGroup = 10_000, 500

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

// benchEngine returns an engine for devices whose alerts are active.
func benchEngine(b *testing.B) (e *Engine, devices []vitals.Name) {
	devices = make([]vitals.Name, benchDevices)
	store, now := storetest.NewMemory(), time.Now().UnixMilli()
	for i := range devices {
		devices[i], _ = vitals.ParseName(fmt.Sprintf("ppg-%06d", i))
		for ago := range int64(3) {
			r := benchReading(devices[i], i, now-ago*minute)
			try(b, store.Append([]*storage.Entry{{Reading: &r, ReceivedUnixMs: r.TimeUnixMs}}))
		}
	}
	e = NewEngine(store, tenRules(), Options{})
	e.step(b.Context(), true)
	e.step(b.Context(), false)
	if active, _ := e.State(0); len(active) == 0 {
		b.Fatal("no alert is active")
	}
	return e, devices
}

// BenchmarkEvaluate evaluates readings of devices that have alerts.
func BenchmarkEvaluate(b *testing.B) {
	e, devices := benchEngine(b)
	now := time.Now().UnixMilli()
	var updates []update
	for _, i := range rand.Perm(len(devices)) {
		if r := benchReading(devices[i], i, now); e.board.devices.get(&r.Device).runs[int(vitals.SpO2)].reported {
			u := update{device: r.Device}
			e.board.filter.look(&u, &r.Values)
			updates = append(updates, u)
		}
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

// BenchmarkReadings publishes readings, and evaluates those that matter.
func BenchmarkReadings(b *testing.B) {
	e, devices := benchEngine(b)
	now := time.Now().UnixMilli()
	entries := make([]*storage.Entry, len(devices))
	for n, i := range rand.Perm(len(devices)) {
		r := benchReading(devices[i], i, now)
		entries[n] = &storage.Entry{Reading: &r, Outcome: storage.Stored}
	}
	var buf []update
	for i := 0; b.Loop(); i++ { // one reading
		entry := entries[i%len(entries)]
		entry.Reading.TimeUnixMs, entry.ReceivedUnixMs = now+int64(i), now+int64(i)
		if n := i%len(entries) + 1; n%benchGroup == 0 {
			e.Publish(entries[n-benchGroup : n])
			buf, _ = e.take(buf)
			e.settle(false)
		}
	}
}
