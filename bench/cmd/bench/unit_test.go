package main

import (
	"os"
	"testing"
	"time"
)

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
	now, err := memory(os.Getpid())
	if err != nil || now.VmRSS < 1<<20 || now.VmHWM < 1<<20 {
		t.Errorf("got %d bytes, a peak of %d, %v", now.VmRSS, now.VmHWM, err)
	}
}

func TestCPUTimeOfNoProcess(t *testing.T) {
	const never = 1 << 30 // above the kernel's maximum process ID
	if got, err := cpuTime(os.Getpid(), never); err == nil {
		t.Errorf("cpuTime of a missing process = %v, want an error", got)
	}
}

func TestParseLoad(t *testing.T) {
	got, err := parseLoad("Running 1s test\nresult {\"requests\":10,\"duration\":1000001,\"p50\":5,\"p99\":70,\"failed\":0,\"sockets\":0,\"before\":3}\n")
	try(t, err)
	want := load{requests: 7, before: 3, duration: 1000001 * time.Microsecond, p50: 5 * time.Microsecond, p99: 70 * time.Microsecond}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, text := range []string{"", "result {\"requests\":10", "x result {\"requests\":1}"} {
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
