package polltest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A condition is asked for once more if the time passes while it is asked for, as in a
// process that is not scheduled.
//
// Seen to fail when Within gives up if the time has passed after a question.
func TestWithinAsksAfterTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, asked := time.Now(), 0
		holds := func() bool {
			asked++
			if asked == 1 {
				time.Sleep(2 * time.Second)
				return false
			}
			return true
		}
		if !polltest.Within(time.Second, holds) || asked != 2 {
			t.Errorf("asked %d times within %v; want a second question, which is answered by yes", asked, time.Since(begin))
		}
		if polltest.Within(time.Second, func() bool { return false }) {
			t.Error("a condition that never holds was found to hold")
		}
	})
}
