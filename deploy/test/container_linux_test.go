package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/deploy/test/dockerfile"
	"golang.org/x/sys/unix"
)

// A container runs commands as the Dockerfile and a hardened cluster require: with a
// separate root that is read-only except for the volume, as a random user ID in group
// 0, without capabilities or the means to gain any, and in separate namespaces for
// mounts, processes, IPC, the host name and the network.
//
// The test binary is also the container runtime: it starts itself with a containerPlan
// in the environment, sets up the container and executes the command.
type container struct {
	img  *dockerfile.Image
	plan containerPlan
	net  *network
}

// A containerPlan is the configuration of the container runtime.
type containerPlan struct {
	Root    string  // directory of the image's files
	Volumes []mount // directories of the host
	UID     int
	GID     int
	Groups  []int    // supplementary groups
	Dir     string   // working directory
	Args    []string // command line
	Env     []string
}

// A mount is a directory of the host in the container.
type mount struct {
	From, To string
	ReadOnly bool
}

const planEnv = "PULSEGATE_TEST_CONTAINER"

// runContainer executes the command of the plan in the environment. It returns false if
// there is none.
func runContainer() bool {
	text := os.Getenv(planEnv)
	if text == "" {
		return false
	}
	var plan containerPlan
	err := json.Unmarshal([]byte(text), &plan)
	if err == nil {
		err = plan.exec()
	}
	fmt.Fprintf(os.Stderr, "container: %v\n", err)
	os.Exit(125) // as container runtimes do when they fail
	return true
}

// exec sets up the container and replaces this process with its command. The process is
// already process 1 of new namespaces.
func (p *containerPlan) exec() error {
	// The following applies to this thread only, and after execve no other remains.
	runtime.LockOSThread()
	if err := p.mount(); err != nil {
		return err
	}
	if err := unix.Chroot(p.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := unix.Chdir(p.Dir); err != nil {
		return fmt.Errorf("chdir: %w", err)
	}
	if err := p.dropPrivileges(); err != nil {
		return err
	}
	return fmt.Errorf("exec %s: %w", p.Args[0], unix.Exec(p.Args[0], p.Args, p.Env))
}

func (p *containerPlan) mount() error {
	// Mounts in the container are not visible outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range append([]mount{{p.Root, "/", true}}, p.Volumes...) {
		to := filepath.Join(p.Root, m.To)
		if err := unix.Mount(m.From, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.To, err)
		}
		flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV)
		if m.ReadOnly {
			flags |= unix.MS_RDONLY
		}
		if err := unix.Mount("", to, "", flags, ""); err != nil {
			return fmt.Errorf("remount %s: %w", m.To, err)
		}
	}
	if err := unix.Mount("proc", filepath.Join(p.Root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// dropPrivileges drops all capabilities and switches to the user and groups.
func (p *containerPlan) dropPrivileges() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // no more capabilities
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// These apply to all threads.
	if err := syscall.Setgroups(p.Groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(p.GID, p.GID, p.GID); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := syscall.Setresuid(p.UID, p.UID, p.UID); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	return nil
}

// newContainer returns a container with the files of the image, a network, a random
// user in group 0, and no volumes.
func newContainer(t *testing.T) *container {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "containers need root")
	}
	img, err := readImage()
	try(t, err)
	program(t)
	c := &container{img: img, plan: containerPlan{
		Root: t.TempDir(),
		UID:  100_000 + rand.IntN(1_000_000_000),
		Dir:  img.Dir,
		Env:  img.Env,
	}}
	// Other users may not enter the test's directories by default.
	for dir := c.plan.Root; dir != filepath.Dir(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil && dir == c.plan.Root {
			t.Fatal(err)
		}
	}
	for _, copied := range img.Copied {
		c.copy(t, copied.SourcePaths[0], copied.DestPath)
	}
	try(t, os.Mkdir(filepath.Join(c.plan.Root, "proc"), 0o555))
	c.net = newNetwork(t)
	return c
}

// copy executes a COPY instruction.
func (c *container) copy(t *testing.T, from, to string) {
	t.Helper()
	if strings.HasPrefix(from, "/out/") || strings.HasPrefix(from, "/src/") {
		from = filepath.Join(built.dir, from)
	}
	to = filepath.Join(c.plan.Root, to)
	try(t, os.MkdirAll(filepath.Dir(to), 0o755))
	info, err := os.Stat(from)
	if errors.Is(err, os.ErrNotExist) && !strings.HasPrefix(from, built.dir) {
		return // a file of the build stage's system that this machine lacks
	}
	try(t, err)
	if info.IsDir() {
		try(t, os.Mkdir(to, 0o755))
		return
	}
	text, err := os.ReadFile(from)
	try(t, err)
	try(t, os.WriteFile(to, text, info.Mode().Perm()))
}

// mount adds a volume and returns its path on the host. It is owned by root and by the
// first supplementary group, or if there is none, the group of the container's user.
func (c *container) mount(t *testing.T, to string, mode os.FileMode, readOnly bool) string {
	t.Helper()
	from := filepath.Join(c.plan.Root, "..", "volume"+strings.ReplaceAll(to, "/", "-"))
	try(t, os.Mkdir(from, mode))
	t.Cleanup(func() { _ = os.RemoveAll(from) }) // t.TempDir removes its parent
	try(t, os.Chown(from, 0, c.group()))
	try(t, os.Chmod(from, mode))
	try(t, os.MkdirAll(filepath.Join(c.plan.Root, to), 0o755))
	c.plan.Volumes = append(c.plan.Volumes, mount{from, to, readOnly})
	return from
}

// group returns the group that owns the volumes.
func (c *container) group() int {
	if len(c.plan.Groups) > 0 {
		return c.plan.Groups[0]
	}
	return c.plan.GID
}

// command returns a command that runs args in the container with additional environment
// variables.
func (c *container) command(t *testing.T, args []string, env ...string) *exec.Cmd {
	t.Helper()
	plan := c.plan
	plan.Args = args
	plan.Env = settings(c.plan.Env, env)
	text, err := json.Marshal(plan)
	try(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{planEnv + "=" + string(text)}
	// The network namespace is inherited from the thread that starts the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd
}

// settings returns base, overridden by the variables in over.
func settings(base, over []string) []string {
	byName := map[string]string{}
	for _, setting := range slices.Concat(base, over) {
		name, _, _ := strings.Cut(setting, "=")
		byName[name] = setting
	}
	return slices.Sorted(maps.Values(byName))
}

// run runs a command line in the container and returns its output and exit code.
func (c *container) run(t *testing.T, args []string, env ...string) (output string, code int) {
	t.Helper()
	cmd := c.command(t, args, env...)
	return runWith(t, cmd, func() error { return c.net.do(cmd.Start) })
}

// start starts the image's command with additional environment variables.
func (c *container) start(t *testing.T, env ...string) *server {
	t.Helper()
	cmd := c.command(t, append(slices.Clone(c.img.Entry), c.img.Cmd...), env...)
	return start(t, cmd, func() error { return c.net.do(cmd.Start) })
}

// client returns a client that connects from the given address inside the container's
// network, as a port-forward does.
func (c *container) client(from string) *http.Client {
	dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = c.net.do(func() (err error) {
				conn, err = dialer.DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
}

// A network is a thread in a separate network namespace. Processes started and sockets
// opened by that thread are in the namespace too.
type network struct{ calls chan func() }

// neighbour is a non-loopback address in a network.
const neighbour = "192.0.2.1"

// newNetwork returns a network with a loopback device and the address neighbour. It is
// removed at the end of the test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{make(chan func())}
	ready, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		// Never unlocked: no other goroutine can use the thread, so it ends.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = setUpLoopback()
		}
		ready <- err
		for call := range n.calls {
			call()
		}
	}()
	t.Cleanup(func() { close(n.calls); <-ended })
	if err := <-ready; err != nil {
		missing(t, "cannot create a container network: %v", err)
	}
	return n
}

// do calls f on the network's thread. Calls are serialized.
func (n *network) do(f func() error) error {
	result := make(chan error)
	n.calls <- func() { result <- f() }
	return <-result
}

// setUpLoopback brings up the loopback device of this thread's network namespace and
// adds a second address to it.
func setUpLoopback() error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, up); err != nil {
		return fmt.Errorf("bring up loopback device: %w", err)
	}
	second, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := second.SetInet4Addr(net.ParseIP(neighbour).To4()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFADDR, second); err != nil {
		return fmt.Errorf("add address: %w", err)
	}
	return nil
}

// status returns the fields of /proc/PID/status of a server's process.
func status(t *testing.T, s *server) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	try(t, err)
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}
