package sim

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// exactAlarm returns an alarm that is precise enough for the schedule of an open loop.
// It uses a timerfd, which the Go runtime's poller watches like a socket.
func exactAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return alarm{}, fmt.Errorf("create timer: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	fired := make(chan time.Time, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		for times := make([]byte, 8); ; {
			if _, err := file.Read(times); err != nil {
				return // stopped
			}
			select {
			case fired <- time.Now():
			default: // one pending event is enough
			}
		}
	})
	set := func(d time.Duration) {
		// 0 would disarm the timer. Errors occur only for bad arguments.
		_ = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 1))}, nil)
	}
	return alarm{fired, set, func() { file.Close(); reading.Wait() }}, nil
}
