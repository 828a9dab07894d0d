package sim

import "time"

// An alarm is a timer that can be set again and again.
type alarm struct {
	fired <-chan time.Time
	set   func(d time.Duration)
	stop  func()
}

// timerAlarm returns the alarm of a [time.Timer], which obeys the fake time of
// tests. On Linux it is late by up to 1 ms, since that is what epoll counts in.
func timerAlarm() (alarm, error) {
	timer := time.NewTimer(time.Hour)
	return alarm{timer.C, func(d time.Duration) { timer.Reset(d) }, func() { timer.Stop() }}, nil
}
