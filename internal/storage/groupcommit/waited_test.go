package groupcommit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// TestWaited checks that Waited returns the age of the oldest unanswered call, also
// of one that is queued behind another group.
//
// Seen to fail when next did not record when its group was opened, and when it did
// not record that there is none.
func TestWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := groupcommit.New(groupcommit.Options[int]{MaxGroup: 1}, func([]int) error {
			<-release
			return nil
		})
		wait := func(d, want time.Duration) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := c.Waited(); got != want {
				t.Errorf("waited %v, want %v", got, want)
			}
		}
		submit := func() {
			t.Helper()
			try(t, c.Submit([]int{1}, waiterFunc(func(groupcommit.Flush) {})))
		}
		wait(time.Second, 0)
		submit() // at 1 s
		wait(0, 0)
		wait(2*time.Second, 2*time.Second)
		submit() // at 3 s
		wait(2*time.Second, 4*time.Second)
		release <- struct{}{}
		wait(time.Second, 3*time.Second)
		release <- struct{}{}
		wait(time.Second, 0)
		try(t, c.Close(background))
	})
}
