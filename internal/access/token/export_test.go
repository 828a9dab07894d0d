package token

import "time"

// NewLimiter returns the Take method of a new limiter's bucket.
func NewLimiter(l Limit, start time.Time) func(n int, now time.Time) (bool, time.Duration) {
	return NewBucket(l, start).Take
}
