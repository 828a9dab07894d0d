package sim

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// exactAlarm returns an alarm that is exact enough for the schedule of an open
// loop: a timerfd, which the poller of the Go runtime watches as it does sockets.
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
			default: // one is enough
			}
		}
	})
	set := func(d time.Duration) {
		// 0 would unset it. It fails for bad arguments only.
		_ = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 1))}, nil)
	}
	return alarm{fired, set, func() { file.Close(); reading.Wait() }}, nil
}
