//go:build !linux

package sim

// exactAlarm returns an alarm that is precise enough for the schedule of an open loop.
func exactAlarm() (alarm, error) { return timerAlarm() }
