package main

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Processors of a run in which servers and clients do not share one, in the order of
// those that this program may use.
const (
	serverProcessor = iota
	clientProcessor
)

// errOneProcessor means that servers and clients cannot have a processor each.
var errOneProcessor = errors.New("there is only one processor")

// onProcessor calls start, which starts processes that may use one processor alone. The
// runtime of Go then has GOMAXPROCS 1 in them.
func onProcessor(n int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("read processors: %w", err)
	}
	for cpu, skip := 0, n; ; cpu++ {
		if cpu == 64*len(all) {
			return errOneProcessor
		}
		if !all.IsSet(cpu) {
			continue
		}
		if skip == 0 {
			one.Set(cpu)
			break
		}
		skip--
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("choose processor: %w", err)
	}
	err := start()
	return errors.Join(err, unix.SchedSetaffinity(0, &all))
}
