// Command bench-mux compares the mux package with other routers and writes the
// result into a section of docs/benchmarks.md.
//
// It runs BenchmarkRoute in rounds, each of which has every router once, so
// that all of them meet the same disturbances of the machine. The table has the
// median of the rounds; ratios are made within a round, and their spread is
// given.
//
// Run it in the bench module:
//
//	go run ./routers/cmd/bench-mux -rounds 10 -time 200ms -file ../docs/benchmarks.md
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 10, "how often each benchmark runs")
	flag.DurationVar(&o.benchTime, "time", 200*time.Millisecond, "duration of one benchmark in one round")
	flag.StringVar(&o.pattern, "bench", "^BenchmarkRoute$", "which benchmarks to run")
	flag.StringVar(&o.file, "file", "", "file with the section to write; standard output if empty")
	flag.StringVar(&o.raw, "raw", "", "file for the benchmarks' own output, for benchstat -col /impl")
	flag.Parse()
	if o.rounds < 1 || o.benchTime <= 0 {
		fmt.Fprintln(os.Stderr, "bench-mux: -rounds and -time must be positive")
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-mux:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds    int
	benchTime time.Duration
	pattern   string
	file, raw string
}

func run(o options) error {
	dir, err := os.MkdirTemp("", "bench-mux")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := dir + "/routers.test"
	build := exec.Command("go", "test", "-c", "-o", binary, "./routers")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build benchmarks: %w", err)
	}
	var raw bytes.Buffer
	var rounds []round
	for i := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, o.rounds)
		cmd := exec.Command(binary, "-test.run=^$", "-test.bench="+o.pattern, "-test.benchtime="+o.benchTime.String(), "-test.benchmem")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("run benchmarks: %w\n%s", err, out)
		}
		raw.Write(out)
		rounds = append(rounds, parseRound(string(out)))
	}
	if o.raw != "" {
		if err := os.WriteFile(o.raw, raw.Bytes(), 0o644); err != nil {
			return err
		}
	}
	text := render(rounds, machine(), o)
	if o.file == "" {
		fmt.Print(text)
		return nil
	}
	return replaceSection(o.file, text)
}

const (
	beginMark = "<!-- bench-mux:begin -->"
	endMark   = "<!-- bench-mux:end -->"
)

// replaceSection puts the text between the marks of the file, and adds both to
// the end of a file without them.
func replaceSection(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	before, rest, found := strings.Cut(string(old), beginMark)
	after := ""
	if found {
		if _, after, found = strings.Cut(rest, endMark); !found {
			return fmt.Errorf("write %s: %s without %s", file, beginMark, endMark)
		}
	} else if before != "" {
		before = strings.TrimRight(before, "\n") + "\n\n"
		after = "\n"
	}
	return os.WriteFile(file, []byte(before+beginMark+"\n"+text+endMark+after), 0o644)
}

// machine describes the processor and the Go version.
func machine() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return model
}
