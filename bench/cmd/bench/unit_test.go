package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const line = `42 (a ) b) (c) S 7 42 42 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 5 0 1000 0 0`
	got, err := parseStat(line)
	try(t, err)
	if want := (stat{parent: 7, cpu: 1100 * time.Millisecond}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, line := range []string{"", "42 (a) S 7", strings.Replace(line, " 33 ", " x ", 1), strings.Replace(line, "S 7", "S x", 1)} {
		if got, err := parseStat(line); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", line, got)
		}
	}
}

// The time of running and ended children counts; other processes do not count.
func TestTreeTime(t *testing.T) {
	stats := map[int]stat{1: {0, 100}, 2: {1, 10}, 3: {2, 5}, 4: {1, 1}, 5: {9, 1000}}
	for pid, want := range map[int]time.Duration{1: 116, 2: 15, 3: 5, 5: 1000} {
		if got := treeTime(stats, pid); got != want {
			t.Errorf("treeTime(%d) = %d, want %d", pid, got, want)
		}
	}
}

func TestCPUTime(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	try(t, err)
	// The CPU time must increase with work. The deadline is for a machine on which this
	// process gets no CPU.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		after, err := cpuTime(os.Getpid())
		try(t, err)
		if after-before >= 3*tick {
			return
		}
	}
	t.Error("a minute of work did not raise cpuTime by 30 ms")
}

func TestMemory(t *testing.T) {
	now, err := memory(os.Getpid(), "VmRSS")
	if err != nil || now < 1<<20 {
		t.Errorf("got %d bytes, %v", now, err)
	}
	if peak, err := memory(os.Getpid(), "VmHWM"); err != nil || peak < 1<<20 {
		t.Errorf("got a peak of %d bytes, %v", peak, err)
	}
	if got, err := memory(os.Getpid(), "VmNone"); err == nil {
		t.Errorf("got %d bytes of a missing field", got)
	}
}

func TestCPUTimeOfNoProcess(t *testing.T) {
	const never = 1 << 30 // above the kernel's maximum process ID
	if got, err := cpuTime(os.Getpid(), never); err == nil {
		t.Errorf("cpuTime of a missing process = %v, want an error", got)
	}
}

func TestParseLoad(t *testing.T) {
	got, err := parseLoad("Running 1s test\nresult requests=10 duration_us=1000001 p50_us=5 p99_us=70 failed=0 sockets=0\n")
	try(t, err)
	want := load{requests: 10, duration: 1000001 * time.Microsecond, p50: 5 * time.Microsecond, p99: 70 * time.Microsecond}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, text := range []string{"", "result requests=10", "x result requests=1 duration_us=1 p50_us=1 p99_us=1 failed=0 sockets=0"} {
		if got, err := parseLoad(text); err == nil {
			t.Errorf("parseLoad(%q) = %+v, want an error", text, got)
		}
	}
}

func TestLoadCheck(t *testing.T) {
	for _, tt := range []struct {
		l  load
		ok bool
	}{
		{load{requests: 1}, true},
		{load{}, false},
		{load{requests: 10, failed: 1}, false},
		{load{requests: 10, sockets: 1}, false},
	} {
		if err := tt.l.check(); (err == nil) != tt.ok {
			t.Errorf("check of %+v: %v", tt.l, err)
		}
	}
}
