package rejections_test

import (
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/rejections"
)

func all(*rejections.Rejection) bool { return true }

// A list holds the newest n rejections, counts all, and returns the newest first.
func TestNewest(t *testing.T) {
	const n = 3
	l := rejections.New(n)
	for added := range int64(3*n + 1) {
		for limit := range n + 2 {
			got, total := l.Newest(limit, all)
			if want := min(limit, n, int(added)); len(got) != want || total != uint64(added) {
				t.Fatalf("after %d, limit %d: got %d of %d, want %d of %d", added, limit, len(got), total, want, added)
			}
			for i, r := range got {
				if want := added - 1 - int64(i); r.UnixMs != want {
					t.Errorf("after %d, limit %d: got %d at %d, want %d", added, limit, r.UnixMs, i, want)
				}
			}
		}
		l.Add(rejections.Rejection{UnixMs: added})
	}
	even := func(r *rejections.Rejection) bool { return r.UnixMs%2 == 0 }
	if got, _ := l.Newest(1, even); len(got) != 1 || got[0].UnixMs != 8 {
		t.Errorf("got %v, want 8: unwanted rejections count towards the limit", got)
	}
}

// Concurrent calls see each rejection whole, and none is missing from the count.
func TestConcurrent(t *testing.T) {
	const goroutines, each = 8, 500
	l := rejections.New(5)
	var wg sync.WaitGroup
	for g := range int64(goroutines) {
		wg.Go(func() {
			for range each {
				l.Add(rejections.Rejection{UnixMs: g, Field: string(rune('a' + g))})
			}
		})
		wg.Go(func() {
			for range each {
				newest, _ := l.Newest(5, all)
				for _, r := range newest {
					if want := string(rune('a' + r.UnixMs)); r.Field != want {
						t.Errorf("got field %q with time %d, want %q", r.Field, r.UnixMs, want)
					}
				}
			}
		})
	}
	wg.Wait()
	if _, total := l.Newest(0, all); total != goroutines*each {
		t.Errorf("got %d in total, want %d", total, goroutines*each)
	}
}

func TestAddAllocates(t *testing.T) {
	l := rejections.New(2)
	r := rejections.Rejection{Input: "mqtt", Field: "time", Reason: "missing"}
	if got := testing.AllocsPerRun(100, func() { l.Add(r) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

// Values that are left out again within a minute are counted in one line, and not among the rejections.
func TestLeftOut(t *testing.T) {
	l := rejections.New(3)
	for _, r := range []rejections.Rejection{
		{UnixMs: 60_000, Field: "a", LeftOut: true}, {UnixMs: 61_000, Field: "a"},
		{UnixMs: 62_000, Field: "b", LeftOut: true},
		{UnixMs: 119_999, Field: "a", LeftOut: true}, {UnixMs: 120_000, Field: "b", LeftOut: true},
	} {
		l.Add(r)
	}
	got, total := l.Newest(9, all)
	if len(got) != 3 || got[0].UnixMs != 120_000 || got[0].Count != 1 || got[2].Field != "a" || total != 1 {
		t.Errorf("%+v, %d rejections", got, total)
	}
	l = rejections.New(3)
	for range 5 {
		l.Add(rejections.Rejection{UnixMs: 1, LeftOut: true})
	}
	if got, total := l.Newest(9, all); len(got) != 1 || got[0].Count != 5 || total != 0 {
		t.Errorf("%+v, %d rejections", got, total)
	}
}
