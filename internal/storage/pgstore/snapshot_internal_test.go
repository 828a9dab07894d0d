package pgstore

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// sees reports whether a snapshot sees a transaction.
func (s *snapshot) sees(n int64) bool { return n < s.next && !slices.Contains(s.running, n) }

// TestSince draws two snapshots, one after the other, and compares since with the numbers of all transactions.
func TestSince(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := snapshot{next: rapid.Int64Range(3, 20).Draw(t, "next")}
		to := snapshot{next: from.next + rapid.Int64Range(0, 9).Draw(t, "begun")}
		for n := int64(3); n < to.next; n++ {
			state := rapid.IntRange(0, 2).Draw(t, "state")
			if n < from.next && state > 0 {
				from.running = append(from.running, n)
			}
			if state == 2 {
				to.running = append(to.running, n)
			}
		}
		since, late := from.since(&to), from.late(&to, 0, to.next)
		for n := int64(3); n < to.next; n++ {
			if to.sees(n) && !from.sees(n) && n < since {
				t.Errorf("%+v does not see %d and %+v does, but since is %d", from, n, to, since)
			}
			delivered := to.sees(n) && (n >= from.next || slices.Contains(late, n))
			if delivered != (to.sees(n) && !from.sees(n)) {
				t.Errorf("from %+v to %+v, %d is delivered: %t", from, to, n, delivered)
			}
		}
		if since < from.next && !to.sees(since) {
			t.Errorf("since is %d, which %+v does not see", since, to)
		}
		for _, s := range []snapshot{from, to} {
			again, err := decodeSnapshot(s.encode())
			if err != nil || again.next != s.next || !slices.Equal(again.running, s.running) {
				t.Errorf("%+v is decoded as %+v, %v", s, again, err)
			}
		}
	})
	for _, text := range []string{"", "\x00", "\x05\x05", "\x05\x00", "\xff"} {
		if s, err := decodeSnapshot(text); err == nil {
			t.Errorf("%q is decoded as %+v", text, s)
		}
	}
	for _, text := range []string{"", "1:2", "1:x:", "1:4:9"} {
		if s, err := parseSnapshot(text); err == nil {
			t.Errorf("%q is parsed as %+v", text, s)
		}
	}
	if s, err := parseSnapshot("4:9:4,7"); err != nil || s.next != 9 || !slices.Equal(s.running, []int64{4, 7}) {
		t.Errorf("parsed as %+v, %v", s, err)
	}
}
