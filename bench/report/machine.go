package report

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A Machine describes where figures were measured.
type Machine struct {
	CPU         string // model name
	CPUs        int
	MemoryBytes int64
	System      string // distribution and kernel
	Go          string // version of the toolchain
}

// ThisMachine describes the current machine. Unknown fields are empty.
func ThisMachine() Machine {
	system := field("/etc/os-release", "PRETTY_NAME", "=")
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		version, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-") // the rest names a build
		system += ", Linux " + version
	}
	kilobytes, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal", ":"), " ")
	n, _ := strconv.ParseInt(kilobytes, 10, 64)
	return Machine{
		CPU:         field("/proc/cpuinfo", "model name", ":"),
		CPUs:        runtime.NumCPU(),
		MemoryBytes: n << 10,
		System:      strings.TrimPrefix(system, ", "),
		Go:          runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// field returns the value of name in the first line of a file that has one.
func field(path, name, separator string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), separator)
		if ok && strings.TrimSpace(key) == name {
			return strings.Trim(value, " \t\"")
		}
	}
	return ""
}

// LoadAverage returns the kernel's load average over the last minute, or 0 if it is
// unknown. Before a run it shows how busy the machine is with other work.
func LoadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// A Setting describes how a set of figures was measured.
type Setting struct {
	Machine     Machine
	Time        time.Time
	Command     string
	LoadAverage float64 // before the run
}

// Here returns the setting of a run that starts now.
func Here(command string) Setting {
	return Setting{Machine: ThisMachine(), Time: time.Now(), Command: command, LoadAverage: LoadAverage()}
}

// markdown returns the lines before the figures.
func (s *Setting) markdown() string {
	m := &s.Machine
	return fmt.Sprintf("Written by `%s` on %s.\n\n- Machine: %d x %s, %.1f GiB; load average before the run %.2f\n- System: %s; %s\n",
		s.Command, s.Time.UTC().Format("2006-01-02 15:04 MST"), m.CPUs, m.CPU, float64(m.MemoryBytes)/(1<<30), s.LoadAverage, m.System, m.Go)
}
