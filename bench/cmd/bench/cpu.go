package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every architecture
// supported by Go (proc_pid_stat(5), asm-generic/param.h).
const tick = time.Second / 100

// cpuTime returns the user and system time of the processes pids and all their
// descendants, including those that have ended and were waited for. It never decreases.
func cpuTime(pids ...int) (time.Duration, error) {
	stats, err := readStats()
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, pid := range pids {
		if _, ok := stats[pid]; !ok {
			return 0, fmt.Errorf("read CPU time: process %d is gone", pid)
		}
		total += treeTime(stats, pid)
	}
	return total, nil
}

// cpuDuring returns the CPU time that processes and their descendants take while f runs.
func cpuDuring(pids []int, f func() error) (time.Duration, error) {
	before, err := cpuTime(pids...)
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := cpuTime(pids...)
	return after - before, err
}

// tree returns a process and all its descendants.
func tree(stats map[int]stat, pid int) []int {
	all := []int{pid}
	for child, s := range stats {
		if s.parent == pid {
			all = append(all, tree(stats, child)...)
		}
	}
	return all
}

func treeTime(stats map[int]stat, pid int) (total time.Duration) {
	for _, p := range tree(stats, pid) {
		total += stats[p].cpu
	}
	return total
}

// A stat has the needed fields of /proc/PID/stat.
type stat struct {
	parent int
	cpu    time.Duration // own CPU time and that of children waited for
}

func readStats() (map[int]stat, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	stats := make(map[int]stat, len(all))
	for _, p := range all {
		if s, err := p.Stat(); err == nil { // otherwise it has ended since it was listed
			stats[p.PID] = stat{s.PPID, time.Duration(int(s.UTime+s.STime)+s.CUTime+s.CSTime) * tick}
		}
	}
	return stats, nil
}

// memory returns what /proc/PID/status says of a process, with its memory in bytes.
func memory(pid int) (s procfs.ProcStatus, err error) {
	p, err := procfs.NewProc(pid)
	if err == nil {
		s, err = p.NewStatus()
	}
	if err != nil {
		return s, fmt.Errorf("read memory: %w", err)
	}
	return s, nil
}

// writtenBytes returns the bytes that process pid and its descendants, ended ones
// included, have caused to be written to disks.
func writtenBytes(pid int) (total uint64, err error) {
	stats, err := readStats()
	if err != nil {
		return 0, err
	}
	for i, id := range tree(stats, pid) {
		p, err := procfs.NewProc(id)
		var written procfs.ProcIO
		if err == nil {
			written, err = p.IO()
		}
		if i > 0 && errors.Is(err, os.ErrNotExist) {
			continue // it has ended, and the parent has counted it or will
		}
		if err != nil {
			return 0, fmt.Errorf("read written bytes: %w", err)
		}
		total += written.WriteBytes
	}
	return total, nil
}
