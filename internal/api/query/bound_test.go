package query_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// With two places, a third request waits until it is rejected or a place becomes free.
//
// Seen to fail when a place is not returned, and when requests do not wait.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := query.NewBound(2)
		for range 2 {
			if !b.Enter(t.Context(), nil) {
				t.Error("a request was rejected although a place is free")
			}
		}
		start := time.Now()
		if b.Enter(t.Context(), nil) {
			t.Error("a third request was admitted")
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("rejected after %v, want one second", took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if b.Enter(gone, nil) || time.Since(start) != time.Second {
			t.Error("Enter waits longer than its context")
		}
		time.AfterFunc(time.Second/2, func() { b.Leave(nil) })
		if !b.Enter(t.Context(), nil) {
			t.Error("a request was rejected although a place became free")
		}
		var in [8]bool
		for i := range in { // at most two may wait
			go func() { in[i] = b.Enter(t.Context(), nil) }()
		}
		synctest.Wait()
		b.Leave(nil)
		b.Leave(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		entered := 0
		for _, ok := range in {
			if ok {
				entered++
			}
		}
		if entered != 2 {
			t.Errorf("%d got the two places, want 2", entered)
		}
	})
}

// One client gets at most half of the places. Others get the rest, without waiting
// for its further requests.
//
// Seen to fail when the holder is ignored, and when Leave considers only the first
// waiter.
func TestBoundShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, all := query.NewBound(8), new(share.Holders)
		slow, other := all.Get("slow"), all.Get("other")
		entered := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 7 {
				if b.Enter(t.Context(), slow) {
					entered++
				}
			}
		}()
		<-done
		if entered != 4 {
			t.Errorf("one client has %d of 8 places, want 4", entered)
		}
		start := time.Now()
		for range 2 {
			if !b.Enter(t.Context(), other) || time.Since(start) != 0 {
				t.Error("another client is rejected or has to wait")
			}
		}
		third := make(chan bool)
		go func() { third <- b.Enter(t.Context(), slow) }()
		synctest.Wait() // it waits first
		fourth := make(chan bool)
		go func() { fourth <- b.Enter(t.Context(), other) }()
		synctest.Wait()
		b.Leave(other)
		if !<-fourth {
			t.Error("a free place does not go to the client that may take it")
		}
		if <-third {
			t.Error("one client has more than its share")
		}
	})
}
