package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
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

func treeTime(stats map[int]stat, pid int) time.Duration {
	total := stats[pid].cpu
	for child, s := range stats {
		if s.parent == pid {
			total += treeTime(stats, child)
		}
	}
	return total
}

// A stat has the needed fields of /proc/PID/stat.
type stat struct {
	parent int
	cpu    time.Duration // own CPU time and that of children waited for
}

func readStats() (map[int]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	stats := make(map[int]stat, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // the process has ended since it was listed
		}
		if stats[pid], err = parseStat(string(text)); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

// parseStat parses a line of /proc/PID/stat. The second field is the program's name in
// parentheses and may contain anything.
func parseStat(line string) (stat, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	// fields[0] is field 3 in the manual: state, then ppid, and from field 14 on utime,
	// stime, cutime and cstime.
	if len(fields) < 15 {
		return stat{}, errors.New("read CPU time: unknown format of /proc/PID/stat")
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return stat{}, fmt.Errorf("read CPU time: %w", err)
	}
	s := stat{parent: parent}
	for _, field := range fields[11:15] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return stat{}, fmt.Errorf("read CPU time: %w", err)
		}
		s.cpu += time.Duration(ticks) * tick
	}
	return s, nil
}

// memory returns a field of /proc/PID/status, such as VmRSS, in bytes.
func memory(pid int, field string) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+field+":")
	var kilobytes uint64
	if _, err := fmt.Sscanf(rest, "%d kB", &kilobytes); err != nil {
		return 0, fmt.Errorf("read memory: %s: %w", field, err)
	}
	return kilobytes << 10, nil
}

// writtenBytes returns the bytes that process pid and its descendants, ended ones
// included, have caused to be written to disks.
func writtenBytes(pid int) (uint64, error) {
	stats, err := readStats()
	if err != nil {
		return 0, err
	}
	return treeWritten(stats, pid)
}

func treeWritten(stats map[int]stat, pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, fmt.Errorf("read written bytes: %w", err)
	}
	total, err := parseWritten(string(text))
	for child, s := range stats {
		if s.parent == pid && err == nil {
			var n uint64
			if n, err = treeWritten(stats, child); errors.Is(err, os.ErrNotExist) {
				err = nil // it has ended, and the parent has counted it or will
			}
			total += n
		}
	}
	return total, err
}

// parseWritten parses the text of /proc/PID/io.
func parseWritten(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		if number, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		}
	}
	return 0, errors.New("read written bytes: unknown format of /proc/PID/io")
}

// allocatedBytes returns the disk space of a file.
func allocatedBytes(path string) (uint64, error) {
	var s syscall.Stat_t
	if err := syscall.Lstat(path, &s); err != nil {
		return 0, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return uint64(s.Blocks) * 512, nil // the unit of stat(2)
}
