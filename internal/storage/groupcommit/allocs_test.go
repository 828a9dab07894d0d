//go:build !race

package groupcommit_test

import (
	"context"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// Under the race detector, sync.Pool drops items at random, so these counts hold
// only without it.

func TestCommitAllocs(t *testing.T) {
	c := newCommitter(t, groupcommit.Options[int]{MaxGroup: 8}, flushNothing)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	items := []int{1, 2, 3}
	for _, tt := range []struct {
		name string
		ctx  context.Context
	}{
		{"never ends", background},
		{"can end", ctx},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := testing.AllocsPerRun(1000, func() {
				if _, err := c.Commit(tt.ctx, items); err != nil {
					t.Fatal(err)
				}
			})
			if got != 0 {
				t.Errorf("Commit: got %v allocations, want 0", got)
			}
		})
	}
}

// TestSubmitAllocs keeps several groups in the queue.
func TestSubmitAllocs(t *testing.T) {
	const calls = 20
	c := newCommitter(t, groupcommit.Options[int]{MaxGroup: 8}, flushNothing)
	items := []int{1, 2, 3}
	w := &countingWaiter{want: calls, all: make(chan struct{}, 1)}
	got := testing.AllocsPerRun(1000, func() {
		for range calls {
			if err := c.Submit(items, w); err != nil {
				t.Fatal(err)
			}
		}
		<-w.all
	})
	if got != 0 {
		t.Errorf("%d Submits: got %v allocations, want 0", calls, got)
	}
}

func TestRejectionAllocs(t *testing.T) {
	c := groupcommit.New(groupcommit.Options[int]{MaxGroup: 1}, flushNothing)
	try(t, c.Close(background))
	items, tooMany := []int{1}, []int{1, 2}
	got := testing.AllocsPerRun(1000, func() {
		_, closed := c.Commit(background, items)
		_, tooLarge := c.Commit(background, tooMany)
		if closed == nil || tooLarge == nil {
			t.Fatal("Commit: got nil from a closed committer")
		}
		c.Stats()
	})
	if got != 0 {
		t.Errorf("rejected Commit and Stats: got %v allocations, want 0", got)
	}
}
