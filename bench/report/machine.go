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

// A Machine is where figures were measured.
type Machine struct {
	CPU         string // model name
	CPUs        int
	MemoryBytes int64
	System      string // distribution and kernel
	Go          string // version of the toolchain
}

// ThisMachine describes the machine that the program runs on. What the system
// does not tell is empty.
func ThisMachine() Machine {
	system := field("/etc/os-release", "PRETTY_NAME", "=")
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		version, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-") // what follows names a build
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

// field returns the value of the first line of a file that gives name one.
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

// LoadAverage returns the number of processes that ran or wanted to over the
// last minute, as the kernel averages it, or 0 where that is not known. Measured
// before a run it tells how busy the machine was with other work.
func LoadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// A Setting is how a set of figures came to be.
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

// markdown returns the lines that go before the figures.
func (s *Setting) markdown() string {
	m := &s.Machine
	return fmt.Sprintf("Written by `%s` on %s.\n\n- Machine: %d x %s, %.1f GiB; load average before the run %.2f\n- System: %s; %s\n",
		s.Command, s.Time.UTC().Format("2006-01-02 15:04 MST"), m.CPUs, m.CPU, float64(m.MemoryBytes)/(1<<30), s.LoadAverage, m.System, m.Go)
}
