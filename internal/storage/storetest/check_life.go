package storetest

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
)

func checkClosed(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	mustSettle(t, s, entry("d", 1, hr(1)), storage.Stored)
	mustClose(t, s)

	err := s.Append([]*storage.Entry{entry("d", 2, hr(2))})
	if !errors.Is(err, storage.ErrClosed) || !errors.Is(err, storage.ErrNotWritten) {
		t.Errorf("Append returned %v, want ErrClosed and ErrNotWritten", err)
	}
	wantRefused(t, context.Background(), s, storage.ErrClosed)
	for call, erase := range map[string]func() error{
		"Erase":           func() error { _, err := s.Erase(mustName("d")); return err },
		"EraseAssignment": func() error { _, err := s.EraseAssignment(assignment("d", "P", 1, 2)); return err },
		"EraseValues": func() error {
			_, err := s.EraseValues(storage.Erasure{Device: mustName("d"), ToUnixMs: 2})
			return err
		},
	} {
		if err := erase(); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("%s returned %v, want ErrClosed", call, err)
		}
	}
	if err := s.Close(); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("the second Close returned %v, want ErrClosed", err)
	}
	wantRecords(t, "scan", scanPages(t, open(t, h), allOf("d"), 10), []storage.Record{recordOf(entry("d", 1, hr(1)))})
}

// checkReadersDuringWrites reads from several goroutines while a load is written.
// Readers must see at least what was acknowledged before their call, and only what
// the load wrote.
func checkReadersDuringWrites(t testing.TB, h Harness) {
	s := open(t, h)
	l := &load{}
	wait := l.start(s, 100)
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			for n := 0; !l.stopped.Load(); n++ {
				device := (i + n) % loadDevices
				acked := l.acked.Load()
				if err := l.verify(s, device, acked, math.MaxInt64/2, 1+n%50); err != nil {
					t.Errorf("reading during writes: %v", err)
					return
				}
			}
		})
	}
	readers.Wait()
	if err := wait(); err != nil {
		t.Errorf("Append during reads: %v", err)
	}
	if err := l.verifyAll(s, l.acked.Load()); err != nil {
		t.Errorf("after the load: %v", err)
	}
}

// checkCloseDuringCalls closes the store while calls run. Each call must succeed or
// return ErrClosed, and what was acknowledged must be stored after a reopen.
func checkCloseDuringCalls(t testing.TB, h Harness) {
	l := &load{}
	for round := range 5 {
		s := mustOpen(t, h.Open)
		goal := l.acked.Load() + int64(round*3)
		wait := l.start(s, math.MaxInt64)
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				for {
					if err := l.verify(s, round%loadDevices, l.acked.Load(), math.MaxInt64/2, 10); err != nil {
						if !errors.Is(err, storage.ErrClosed) {
							t.Errorf("reading during Close: %v", err)
						}
						return
					}
				}
			})
		}
		l.waitFor(goal)
		mustClose(t, s)
		if err := wait(); !errors.Is(err, storage.ErrClosed) || !errors.Is(err, storage.ErrNotWritten) {
			t.Errorf("Append during Close returned %v, want ErrClosed and ErrNotWritten", err)
		}
		calls.Wait()
	}
	s := open(t, h)
	if err := l.verifyAll(s, l.acked.Load()); err != nil {
		t.Errorf("after a reopen: %v", err)
	}
}
