package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A cgroup is a new control group with a memory limit, of version 1 or 2, whichever the machine
// has.
type cgroup struct {
	t   *testing.T
	dir string
	v2  bool
}

// newCgroup creates a cgroup, which is removed when the test ends. If that is impossible, the test
// is skipped, or fails in CI.
func newCgroup(t *testing.T, limitBytes int) *cgroup {
	t.Helper()
	g, err := makeCgroup(t, limitBytes)
	if err != nil {
		unable(t, "this test must create a cgroup with a memory limit, which usually requires root: %v", err)
	}
	return g
}

func makeCgroup(t *testing.T, limitBytes int) (*cgroup, error) {
	name := fmt.Sprintf("pulsegate-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	g := &cgroup{t: t, dir: filepath.Join("/sys/fs/cgroup/memory", name)}
	limit := "memory.limit_in_bytes"
	if controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		if !slices.Contains(strings.Fields(string(controllers)), "memory") {
			return nil, fmt.Errorf("the controllers are %s", controllers)
		}
		g.dir, g.v2, limit = filepath.Join("/sys/fs/cgroup", name), true, "memory.max"
		// It is enabled already on most machines.
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0o600); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	t.Cleanup(g.remove)
	if err := os.WriteFile(filepath.Join(g.dir, limit), []byte(strconv.Itoa(limitBytes)), 0o600); err != nil {
		return nil, err
	}
	if g.v2 {
		// Swapping would defeat the limit. Without swap there is no such file.
		_ = os.WriteFile(filepath.Join(g.dir, "memory.swap.max"), []byte("0"), 0o600)
	}
	return g, nil
}

// remove removes the cgroup as soon as its processes have ended.
func (g *cgroup) remove() {
	var err error
	if !polltest.Within(polltest.Patience, func() bool {
		err = os.Remove(g.dir)
		return err == nil || os.IsNotExist(err)
	}) {
		g.t.Errorf("a cgroup is left: %v", err)
	}
}

// command returns a command that runs in the cgroup from its first instruction.
func (g *cgroup) command(bin string, args ...string) *exec.Cmd {
	script := fmt.Sprintf("echo $$ > %s/cgroup.procs && exec \"$@\"", g.dir)
	return exec.Command("sh", append([]string{"-c", script, "sh", bin}, args...)...)
}

// kills returns how many processes the kernel has killed because of the limit.
func (g *cgroup) kills() int {
	if g.v2 {
		return numberIn(g.t, filepath.Join(g.dir, "memory.events"), "oom_kill")
	}
	return numberIn(g.t, filepath.Join(g.dir, "memory.oom_control"), "oom_kill")
}

// numberIn returns a number from a file with lines that begin with "name number".
func numberIn(t testing.TB, file, name string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	try(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			n, err := strconv.Atoi(fields[1])
			try(t, err)
			return n
		}
	}
	t.Fatalf("%s does not show %s", file, name)
	return 0
}
