package storetest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// removable opens a store and stores some readings in it. ok is false if the store is
// not a Remover.
func removable(t testing.TB, open func() (storage.Store, error)) (s storage.Store, r storage.Remover, model records, ok bool) {
	s, err := open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	r, ok = s.(storage.Remover)
	if !ok {
		_ = s.Close()
		return nil, nil, nil, false
	}
	model = records{}
	group := []*storage.Entry{
		entry("a", 10, hr(1)), entry("a", 20, hr(2), spo2(3)), entry("a", 30, hr(4)),
		entry("a-", 15, hr(5)), entry("a-", 25, rhr(6)),
		entry("a-1", 20, hr(7)),
		entry("b", 9, hr(8)), entry("b", 10, hr(9)), entry("b", 11, hr(10), spo2(11)), entry("b", 40, hr(12)),
	}
	for i := range int64(200) { // more than a store keeps in memory per device
		group = append(group, entry("many", 1+i, hr(vitals.Hundredths(1+i))))
	}
	for i, e := range group {
		if i%3 > 0 {
			offset(i, e)
		}
	}
	settleAll(t, s, model, group)
	return s, r, model, true
}

// settleAll appends a group and compares its outcomes with the model's.
func settleAll(t testing.TB, s storage.Store, model records, group []*storage.Entry) {
	t.Helper()
	if err := s.Append(group); err != nil {
		t.Fatalf("Append: %v", err)
	}
	for i, e := range group {
		if want, _ := model.settle(e, 0); e.Outcome != want {
			t.Errorf("reading %d, of %s at %s, settled as %s, want %s", i, e.Reading.Device, describe(recordOf(e)), OutcomeName(e.Outcome), OutcomeName(want))
		}
	}
}

// reopen closes s and opens it again.
func reopen(t testing.TB, s storage.Store, open func() (storage.Store, error)) storage.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	s, err := open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// checkErase erases devices, among them one whose name is a prefix of others, and
// stores readings of them again.
func checkErase(t testing.TB, h Harness) {
	s, r, model, ok := removable(t, h.Open)
	if !ok {
		return
	}
	for _, device := range []string{"a", "many", "b"} {
		want := storage.Erasure{Device: mustName(device), Readings: int64(len(model[mustName(device)]))}
		delete(model, mustName(device))
		if got, err := r.Erase(mustName(device)); err != nil || got != want {
			t.Errorf("Erase(%s) returned %+v, %v, want %+v", device, got, err, want)
		}
		wantAll(t, s, model, 3)
		if got, err := r.Erase(mustName(device)); !errors.Is(err, storage.ErrNotFound) && (err != nil || got.Readings != 0) {
			t.Errorf("the second Erase(%s) returned %+v, %v, want ErrNotFound or no readings", device, got, err)
		}
		settleAll(t, s, model, []*storage.Entry{entry(device, 20, hr(99)), entry("a-", 15, hr(5)), entry(device, 10, spo2(1))})
		wantAll(t, s, model, 3)
	}
	s = reopen(t, s, h.Open)
	wantAll(t, s, model, 3)
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := r.Erase(mustName("b")); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close, Erase returned %v, want ErrClosed", err)
	}
}

// checkExpire removes readings with increasing bounds. A sign whose latest value is
// removed, and a device without readings, must be removed as well.
func checkExpire(t testing.TB, h Harness) {
	s, r, model, ok := removable(t, h.Open)
	if !ok {
		return
	}
	for _, before := range []int64{0, 1, 10, 11, 20, 21, 25, 26, 41} {
		want := model.expire(before, math.MaxInt64)
		if got, err := r.Expire(context.Background(), before, math.MaxInt64); err != nil || got != want {
			t.Errorf("Expire(%d) returned %+v, %v, want %+v", before, got, err, want)
		}
		wantAll(t, s, model, 3)
		if before == 20 {
			settleAll(t, s, model, []*storage.Entry{entry("a", 10, rhr(1)), entry("a", 20, hr(2)), entry("b", 12, hr(1)), entry("c", 5, hr(1))})
			wantAll(t, s, model, 3)
		}
		if before == 21 {
			s = reopen(t, s, h.Open)
			r = s.(storage.Remover)
			wantAll(t, s, model, 3)
		}
	}
	settleAll(t, s, model, []*storage.Entry{entry("a", 20, hr(3)), entry("many", 300, hr(3)), entry("many", 2, hr(3))})
	wantAll(t, s, model, 3)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Expire(ended, 10, math.MaxInt64); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context, Expire returned %v, want context.Canceled", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := r.Expire(context.Background(), 10, math.MaxInt64); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close, Expire returned %v, want ErrClosed", err)
	}
}

// checkRemovedDevice checks that a removed device no longer counts towards the limit
// on devices.
func checkRemovedDevice(t testing.TB, h Harness) {
	if h.OpenLimited == nil {
		return
	}
	s, r, model, ok := removable(t, func() (storage.Store, error) { return h.OpenLimited(5) })
	if !ok {
		return
	}
	rejected := entry("c", 1, hr(1))
	if err := s.Append([]*storage.Entry{rejected}); err != nil || rejected.Outcome != storage.TooManyDevices {
		t.Errorf("a sixth device settled as %s, %v, want too many devices", OutcomeName(rejected.Outcome), err)
	}
	delete(model, mustName("a-1"))
	if _, err := r.Erase(mustName("a-1")); err != nil {
		t.Errorf("Erase: %v", err)
	}
	settleAll(t, s, model, []*storage.Entry{entry("c", 100, hr(1))})
	model.expire(30, math.MaxInt64) // leaves a, b, c and many
	if _, err := r.Expire(context.Background(), 30, math.MaxInt64); err != nil {
		t.Errorf("Expire: %v", err)
	}
	settleAll(t, s, model, []*storage.Entry{entry("d", 100, hr(1)), entry("a", 100, hr(1)), entry("many", 50, hr(50))})
	wantAll(t, s, model, 3)
	rejected = entry("e", 100, hr(1))
	if err := s.Append([]*storage.Entry{rejected}); err != nil || rejected.Outcome != storage.TooManyDevices {
		t.Errorf("a sixth device settled as %s, %v, want too many devices", OutcomeName(rejected.Outcome), err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// checkCrashAfterRemoval loses power immediately after a removal.
func checkCrashAfterRemoval(t testing.TB, h Harness) {
	if h.Crash == nil {
		return
	}
	s, r, model, ok := removable(t, h.Open)
	if !ok {
		return
	}
	crash := func() {
		h.Crash(0, 1)
		var err error
		if s, err = h.Open(); err != nil {
			t.Fatalf("Open: %v", err)
		}
		r = s.(storage.Remover)
		wantAll(t, s, model, 3)
	}
	delete(model, mustName("a"))
	if _, err := r.Erase(mustName("a")); err != nil {
		t.Errorf("Erase: %v", err)
	}
	crash()
	settleAll(t, s, model, []*storage.Entry{entry("a", 20, hr(2)), entry("a", 21, hr(2))})
	model.expire(21, math.MaxInt64)
	if _, err := r.Expire(context.Background(), 21, math.MaxInt64); err != nil {
		t.Errorf("Expire: %v", err)
	}
	crash()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
