package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A load is a fixed sequence of groups that several goroutines can check while it is
// written. Group k holds, for each of loadDevices devices:
//
//   - a newer reading at 2k with a heart rate and an SpO2;
//   - a reading at 2(k-1) with the blood pressure, which completes the previous one;
//   - a late reading at 2(k-loadLate)+1 with a resting heart rate and a heart rate.
//
// In some groups, all of these have a body weight as well, which is beyond the first five signs.
//
// Every value is a function of device, time and sign, so that each record can be
// checked by itself, and a partly stored reading is found.
type load struct {
	acked     atomic.Int64 // groups 0 to acked-1 were acknowledged
	attempted atomic.Int64 // groups 0 to attempted-1 were passed to Append
	stopped   atomic.Bool  // start's goroutine has ended
}

const (
	loadDevices = 5
	loadLate    = 4
)

func loadDevice(i int) vitals.Name { return mustName(fmt.Sprintf("load-%d", i)) }

func loadValue(device int, timeUnixMs int64, s vitals.Sign) vitals.Value {
	v := vitals.Value((timeUnixMs*131 + int64(device)*17 + int64(s)*7) % 65536)
	if s == vitals.BodyWeight {
		return 40_000 - 5*v
	}
	return v
}

func loadEntry(device int, timeUnixMs int64, signs ...vitals.Sign) *storage.Entry {
	e := &storage.Entry{
		Reading:        &vitals.Reading{Device: loadDevice(device), TimeUnixMs: timeUnixMs},
		ReceivedUnixMs: receivedUnixMs,
	}
	if timeUnixMs/8%2 == 1 {
		signs = append(signs, vitals.BodyWeight)
	}
	for _, s := range signs {
		e.Reading.Values.Set(s, loadValue(device, timeUnixMs, s))
	}
	return e
}

// group returns group k of the load.
func (l *load) group(k int64) []*storage.Entry {
	var group []*storage.Entry
	for i := range loadDevices {
		group = appendLoad(group, i, k)
	}
	return group
}

// appendLoad appends the readings of a device in group k.
func appendLoad(group []*storage.Entry, device int, k int64) []*storage.Entry {
	group = append(group, loadEntry(device, 2*k, vitals.HeartRate, vitals.SpO2))
	if k > 0 {
		group = append(group, loadEntry(device, 2*(k-1), vitals.Systolic, vitals.Diastolic))
	}
	if k >= loadLate {
		group = append(group, loadEntry(device, 2*(k-loadLate)+1, vitals.RestingHeartRate, vitals.HeartRate))
	}
	return group
}

// run writes groups until n are acknowledged, or until Append fails.
func (l *load) run(s storage.Store, n int64) error {
	for k := l.acked.Load(); k < n; k++ {
		l.attempted.Store(max(l.attempted.Load(), k+1))
		group := l.group(k)
		if err := s.Append(group); err != nil {
			return err
		}
		for _, e := range group {
			if e.Outcome == storage.Conflict || e.Outcome == storage.TooManyDevices || e.Outcome == 0 {
				return fmt.Errorf("reading at %d settled as %s", e.Reading.TimeUnixMs, OutcomeName(e.Outcome))
			}
		}
		l.acked.Store(k + 1)
	}
	return nil
}

// start runs the load up to n groups in a goroutine of its own; wait returns its
// result.
func (l *load) start(s storage.Store, n int64) (wait func() error) {
	done := make(chan error, 1)
	l.stopped.Store(false)
	go func() {
		err := l.run(s, n)
		l.stopped.Store(true)
		done <- err
	}()
	return func() error { return <-done }
}

// waitFor returns when n groups were acknowledged, or when the load has stopped.
func (l *load) waitFor(n int64) {
	for looks := 0; l.acked.Load() < n && !l.stopped.Load(); looks++ {
		if looks < 100 {
			runtime.Gosched()
		} else { // the store is not one in memory
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// verify reads one device in pages of size records, and checks that it holds all
// readings of the first acked groups, and none beyond the first attempted groups.
func (l *load) verify(s storage.Store, device int, acked, attempted int64, size int) error {
	ctx := context.Background()
	latest, err := s.Latest(ctx, loadDevice(device))
	if errors.Is(err, storage.ErrNotFound) && acked == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("Latest: %w", err)
	}
	if latest.NewestUnixMs < 2*(acked-1) {
		return fmt.Errorf("newest of device %d is %d, but %d was acknowledged", device, latest.NewestUnixMs, 2*(acked-1))
	}
	seen := map[int64]uint32{}
	r := storage.Range{Device: loadDevice(device), ToUnixMs: endOfTime}
	last := int64(-1)
	for page := make([]storage.Record, size); ; {
		n, err := s.Scan(ctx, r, page)
		if err != nil {
			return fmt.Errorf("Scan: %w", err)
		}
		for _, rec := range page[:n] {
			if rec.TimeUnixMs <= last {
				return fmt.Errorf("record at %d follows that at %d", rec.TimeUnixMs, last)
			}
			last = rec.TimeUnixMs
			if err := l.verifyRecord(device, rec); err != nil {
				return err
			}
			seen[rec.TimeUnixMs] = rec.Values.Present()
		}
		if n < size {
			break
		}
		r = after(r, page[n-1])
	}
	if last < latest.NewestUnixMs {
		return fmt.Errorf("newest of device %d was %d, but a later scan ends at %d", device, latest.NewestUnixMs, last)
	}
	for k := range acked {
		for _, e := range appendLoad(nil, device, k) {
			if want := e.Reading.Values.Present(); seen[e.Reading.TimeUnixMs]&want != want {
				return fmt.Errorf("device %d at %d: acknowledged values are missing", device, e.Reading.TimeUnixMs)
			}
		}
	}
	if last > 2*(attempted-1) {
		return fmt.Errorf("device %d has a record at %d, which was not sent", device, last)
	}
	return nil
}

// verifyRecord checks that a record consists of complete readings of the load, with
// their values.
func (l *load) verifyRecord(device int, rec storage.Record) error {
	newer := loadEntry(device, rec.TimeUnixMs, vitals.HeartRate, vitals.SpO2).Reading.Values
	whole := loadEntry(device, rec.TimeUnixMs, vitals.HeartRate, vitals.SpO2, vitals.Systolic, vitals.Diastolic).
		Reading.Values
	if rec.TimeUnixMs%2 == 1 {
		newer = loadEntry(device, rec.TimeUnixMs, vitals.RestingHeartRate, vitals.HeartRate).Reading.Values
		whole = newer
	}
	if rec.Values != newer && rec.Values != whole {
		return fmt.Errorf("record %s does not consist of complete readings of the load", describe(rec))
	}
	if rec.Gateway != nil || rec.UTCOffset != 0 || rec.ReceivedUnixMs != receivedUnixMs {
		return fmt.Errorf("record %s has another gateway, offset or time of receipt than what was sent", describe(rec))
	}
	return nil
}

// verifyAll verifies every device, and that there is no other.
func (l *load) verifyAll(s storage.Store, acked int64) error {
	attempted := l.attempted.Load()
	for device := range loadDevices {
		if err := l.verify(s, device, acked, attempted, 100); err != nil {
			return err
		}
	}
	devices := make([]storage.Device, loadDevices+1)
	n, err := s.Devices(context.Background(), vitals.Name{}, devices)
	if err != nil {
		return fmt.Errorf("Devices: %w", err)
	}
	if n > loadDevices || acked > 0 && n != loadDevices {
		return fmt.Errorf("there are %d devices, want %d", n, loadDevices)
	}
	return nil
}
