package sim

import "time"

// An alarm is a timer that can be set repeatedly.
type alarm struct {
	fired <-chan time.Time
	set   func(d time.Duration)
	stop  func()
}

// timerAlarm returns an alarm that uses a [time.Timer], which follows the fake clock of
// tests. On Linux it fires up to 1 ms late, because the resolution of epoll is 1 ms.
func timerAlarm() (alarm, error) {
	timer := time.NewTimer(time.Hour)
	return alarm{timer.C, func(d time.Duration) { timer.Reset(d) }, func() { timer.Stop() }}, nil
}
