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

	"golang.org/x/sys/unix"
)

// A container runs commands the way that the Dockerfile and a hardened cluster
// say: in a root of its own that is read-only but for the volume, under a random
// user id in group 0, without capabilities, with no way to get any, and in name
// spaces of its own for mounts, processes, IPC, the host's name and the network.
//
// This program plays the container runtime: it starts itself with a containerPlan
// in the environment, makes the container and becomes the command.
type container struct {
	img  *image
	plan containerPlan
	net  *network
}

// A containerPlan is what the started runtime is told.
type containerPlan struct {
	Root    string  // folder of the image's files
	Volumes []mount // from the host
	UID     int
	GID     int
	Groups  []int    // further ones
	Dir     string   // working directory
	Args    []string // command line
	Env     []string
}

// A mount is a folder of the host in the container.
type mount struct {
	From, To string
	ReadOnly bool
}

const planEnv = "PULSEGATE_TEST_CONTAINER"

// runContainer becomes the command of the plan in the environment. It reports false
// when there is none.
func runContainer() bool {
	text := os.Getenv(planEnv)
	if text == "" {
		return false
	}
	var plan containerPlan
	err := json.Unmarshal([]byte(text), &plan)
	if err == nil {
		err = plan.become()
	}
	fmt.Fprintf(os.Stderr, "container: %v\n", err)
	os.Exit(125) // as container runtimes do when they fail themselves
	return true
}

// become makes the container and replaces this process by its command. It is
// process 1 of new name spaces already.
func (p *containerPlan) become() error {
	// What follows is of this thread, which execve makes the only one.
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
	// Nothing that is mounted here shows outside.
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
	if err := unix.Mount("proc", filepath.Join(p.Root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// dropPrivileges gives up everything.
func (p *containerPlan) dropPrivileges() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // there are no further ones
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// These are of the whole process, and this thread goes on as it.
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

// newContainer makes an image's files and a network. The user is a random one, in
// group 0, and there is no volume so far.
func newContainer(t *testing.T) *container {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "a container is made by root")
	}
	img, err := readImage()
	if err != nil {
		t.Fatal(err)
	}
	program(t)
	c := &container{img: img, plan: containerPlan{
		Root: t.TempDir(),
		UID:  100_000 + rand.IntN(1_000_000_000),
		Dir:  img.workdir,
		Env:  img.env,
	}}
	// The test's folders are closed to other users.
	for dir := c.plan.Root; dir != filepath.Dir(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil && dir == c.plan.Root {
			t.Fatal(err)
		}
	}
	for _, copied := range img.copied {
		c.copy(t, copied.SourcePaths[0], copied.DestPath)
	}
	if err := os.Mkdir(filepath.Join(c.plan.Root, "proc"), 0o555); err != nil {
		t.Fatal(err)
	}
	c.net = newNetwork(t)
	return c
}

// copy does what a COPY of the build stage does.
func (c *container) copy(t *testing.T, from, to string) {
	t.Helper()
	if strings.HasPrefix(from, "/out/") || strings.HasPrefix(from, "/src/") {
		from = filepath.Join(built.dir, from)
	}
	to = filepath.Join(c.plan.Root, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(from)
	if errors.Is(err, os.ErrNotExist) && !strings.HasPrefix(from, built.dir) {
		return // of the build stage's system, which this machine's is not
	}
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, info.Mode().Perm()); err != nil {
		t.Fatal(err)
	}
}

// mount adds a folder of the host, which belongs to root and the group of the
// container's user, or the first further one, and returns its path there.
func (c *container) mount(t *testing.T, to string, mode os.FileMode, readOnly bool) string {
	t.Helper()
	from := filepath.Join(c.plan.Root, "..", "volume"+strings.ReplaceAll(to, "/", "-"))
	if err := os.Mkdir(from, mode); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(from) }) // its parent goes too
	if err := os.Chown(from, 0, c.group()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(from, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.plan.Root, to), 0o755); err != nil {
		t.Fatal(err)
	}
	c.plan.Volumes = append(c.plan.Volumes, mount{from, to, readOnly})
	return from
}

// group is the group that volumes are handed out to.
func (c *container) group() int {
	if len(c.plan.Groups) > 0 {
		return c.plan.Groups[0]
	}
	return c.plan.GID
}

// command returns a command line to run in the container, with further settings.
func (c *container) command(t *testing.T, args []string, env ...string) *exec.Cmd {
	t.Helper()
	plan := c.plan
	plan.Args = args
	plan.Env = settings(c.plan.Env, env)
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{planEnv + "=" + string(text)}
	// The network name space is that of the thread that starts it.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd
}

// settings returns base with the settings of over in place of those of the same
// name.
func settings(base, over []string) []string {
	byName := map[string]string{}
	for _, setting := range slices.Concat(base, over) {
		name, _, _ := strings.Cut(setting, "=")
		byName[name] = setting
	}
	return slices.Sorted(maps.Values(byName))
}

// run runs a command line in the container to its end.
func (c *container) run(t *testing.T, args []string, env ...string) (output string, code int) {
	t.Helper()
	cmd := c.command(t, args, env...)
	return runWith(t, cmd, func() error { return c.net.do(cmd.Start) })
}

// start starts the image's command with further settings.
func (c *container) start(t *testing.T, env ...string) *server {
	t.Helper()
	cmd := c.command(t, append(slices.Clone(c.img.entry), c.img.cmd...), env...)
	return start(t, cmd, func() error { return c.net.do(cmd.Start) })
}

// client returns a client that asks from inside of the container's network, as a
// port-forward does, from the given address.
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

// A network is a thread in a network name space of its own. What is started or
// opened by that thread is in it too.
type network struct{ calls chan func() }

// neighbour is an address of a network that is not a loopback one.
const neighbour = "192.0.2.1"

// newNetwork makes a network with a loopback device and neighbour. It ends with the
// test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{make(chan func())}
	ready, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		// Never unlocked: the thread is of no use to others, and ends.
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
		missing(t, "a container has no network: %v", err)
	}
	return n
}

// do calls f on the network's thread. Calls take turns.
func (n *network) do(f func() error) error {
	result := make(chan error)
	n.calls <- func() { result <- f() }
	return <-result
}

// setUpLoopback starts the loopback device of this thread's network and gives it a
// second address.
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
		return fmt.Errorf("start loopback device: %w", err)
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

// status returns fields of /proc/PID/status of a process of a container.
func status(t *testing.T, s *server) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}
