package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// A Setting describes how a set of figures was measured.
type Setting struct {
	Command string
	time    time.Time
	machine string // lines about the machine and its system
}

// Here returns the setting of a run that starts now. What is not known of the machine is left out.
func Here(command string) Setting {
	var model, kernel string
	var gib, load float64
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			model = cpus[0].ModelName
		}
		if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
			gib = float64(*memory.MemTotalBytes) / (1 << 30)
		}
		if average, err := fs.LoadAvg(); err == nil {
			load = average.Load1 // shows how busy the machine is with other work
		}
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel, _, _ = strings.Cut(strings.TrimSpace(string(release)), "-") // the rest names a build
	}
	return Setting{Command: command, time: time.Now(), machine: fmt.Sprintf(
		"- Machine: %d x %s, %.1f GiB; load average before the run %.2f\n- System: %s, Linux %s; %s %s/%s\n",
		runtime.NumCPU(), model, gib, load, distribution(), kernel, runtime.Version(), runtime.GOOS, runtime.GOARCH)}
}

// distribution returns the name and version of the system, or "".
func distribution() string {
	text, _ := os.ReadFile("/etc/os-release")
	_, name, _ := strings.Cut("\n"+string(text), "\nPRETTY_NAME=")
	name, _, _ = strings.Cut(name, "\n")
	return strings.Trim(name, `"`)
}

// markdown returns the lines before the figures.
func (s *Setting) markdown() string {
	return fmt.Sprintf("Written by `%s` on %s.\n\n%s", s.Command, s.time.UTC().Format("2006-01-02 15:04 MST"), s.machine)
}
