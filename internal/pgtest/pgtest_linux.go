//go:build linux

package pgtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

// User is the superuser of every server. It has no password.
const User = "postgres"

// A Server is a PostgreSQL server.
type Server struct {
	dir      string // holds the data directory and the socket
	port     int
	programs string
	attr     *syscall.SysProcAttr
	settings []string

	postmaster *exec.Cmd     // nil while it is down
	ended      chan struct{} // closed when the postmaster has ended
	stderr     *os.File
}

// Start creates a server with an empty database and starts it. Each of settings, such as
// "fsync=off", is a line of its configuration. If PostgreSQL is not installed, the test is
// skipped, except in CI, where it fails.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return StartOn(t, nil, settings...)
}

// StartOn is Start for a server whose data directory, and log, are on a file system that mount
// mounts on a directory, if mount is not nil. Files of the log have 1 MiB.
func StartOn(t testing.TB, mount func(dir string), settings ...string) *Server {
	t.Helper()
	s := create(t, mount, settings)
	if mount != nil {
		s.must(t, s.initialize(s.data(), "--wal-segsize=1"))
	} else {
		s.must(t, s.execute("cp", "-R", s.template(t), s.data()))
	}
	s.Restart(t)
	return s
}

// initialize creates a database cluster in dir.
func (s *Server) initialize(dir string, args ...string) error {
	return s.run("initdb", append(args, "-D", dir, "-U", User, "--auth=trust", "--encoding=UTF8", "--locale=C",
		"--no-sync")...)
}

// template returns the directory of a new database cluster, and creates it if no earlier test has: copying it
// costs a fraction of the CPU time of initdb. It stays, for tests of other processes.
func (s *Server) template(t testing.TB) string {
	t.Helper()
	initdb, err := os.Stat(filepath.Join(s.programs, "initdb"))
	s.must(t, err)
	owner := uint32(os.Geteuid())
	if s.attr.Credential != nil {
		owner = s.attr.Credential.Uid
	}
	version := filepath.Base(filepath.Dir(s.programs))
	path := filepath.Join(os.TempDir(), fmt.Sprintf("pgtest-template-%s-%d-%d", version, initdb.ModTime().Unix(), owner))
	exists := func() bool {
		info, err := os.Lstat(path)
		return err == nil && info.Mode() == os.ModeDir|0o700 && info.Sys().(*syscall.Stat_t).Uid == owner
	}
	if exists() {
		return path
	}
	created, err := os.MkdirTemp("", "pgtest-template")
	s.must(t, err)
	defer os.RemoveAll(created)
	_, err = Unprivileged(created)
	s.must(t, err)
	s.must(t, s.initialize(created))
	if err := os.Rename(created, path); err != nil && !exists() { // another process may have been faster
		t.Fatal(err)
	}
	return path
}

// create returns a server without data.
func create(t testing.TB, mount func(dir string), settings []string) *Server {
	t.Helper()
	programs, err := Programs()
	if err == nil {
		s := &Server{programs: programs, settings: settings}
		// A socket's path is limited to 107 bytes, so t.TempDir may be too long.
		if s.dir, err = os.MkdirTemp(tempDir(mount, settings), "pgtest"); err != nil {
			t.Fatal(err)
		}
		if s.stderr, err = os.CreateTemp("", "pgtest-log"); err != nil {
			t.Fatal(err)
		}
		if mount != nil {
			mount(s.dir)
		}
		t.Cleanup(s.Remove)
		if s.attr, err = Unprivileged(s.dir); err == nil {
			s.port = port(t)
			return s
		}
	}
	missing(t, err)
	return nil
}

// tempDir returns where the directory of a server is created. If nothing of it need be synced, that is in memory, where
// the thousand files of a server are created in a tenth of the CPU time that ext4 takes.
func tempDir(mount func(dir string), settings []string) string {
	const memory = "/dev/shm"
	var fs unix.Statfs_t
	if mount == nil && slices.Contains(settings, "fsync=off") && unix.Statfs(memory, &fs) == nil &&
		fs.Bavail*uint64(fs.Bsize) >= 4<<30 && unix.Access(memory, unix.W_OK) == nil {
		return memory
	}
	return os.TempDir()
}

// Need skips the test if PostgreSQL is not installed, as Start does.
func Need(t testing.TB) {
	t.Helper()
	if _, err := Programs(); err != nil {
		missing(t, err)
	}
}

func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// Version returns the name and version of PostgreSQL.
func Version() string {
	programs, err := Programs()
	if err != nil {
		return err.Error()
	}
	text, _ := exec.Command(filepath.Join(programs, "postgres"), "--version").Output()
	return strings.TrimSpace(string(text))
}

// Programs returns the directory with the programs of the newest PostgreSQL.
func Programs() (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if initdb, err = filepath.EvalSymlinks(initdb); err == nil { // the others may not be linked
			return filepath.Dir(initdb), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian has them there
	if len(found) == 0 {
		return "", errors.New("PostgreSQL is not installed")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// Unprivileged returns the attributes of PostgreSQL's processes, which must not run as root, and
// makes their user the owner of dir.
func Unprivileged(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
		}
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errUID, errGID, os.Chown(dir, int(uid), int(gid))); err != nil {
		return nil, fmt.Errorf("run PostgreSQL as %s: %w", u.Username, err)
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, nil
}

// port returns a port that is reserved until the test ends: PostgreSQL, like package net, sets
// SO_REUSEADDR before it binds.
func port(t testing.TB) int {
	return int(netip.MustParseAddrPort(porttest.Addr(t)).Port())
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// run runs one of PostgreSQL's programs.
func (s *Server) run(program string, args ...string) error {
	return s.execute(filepath.Join(s.programs, program), args...)
}

// execute runs a program as the user of the server's processes.
func (s *Server) execute(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.attr
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, text)
	}
	return nil
}

func (s *Server) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Addr returns the loopback address of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// DSN returns the address of the database, over TCP.
func (s *Server) DSN() string {
	return fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable", User, s.Addr())
}

// Execute runs SQL statements.
func (s *Server) Execute(t testing.TB, sql string) {
	t.Helper()
	s.must(t, s.run("psql", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", User, "-d", "postgres", "-qX", "-v",
		"ON_ERROR_STOP=1", "-c", sql))
}

// Shell runs commands as an administrator on the server's machine: as the user of its processes, in
// a directory of that user, and connected with the database if nothing else is said. It
// returns what they print.
func (s *Server) Shell(t testing.TB, commands, input string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", `PATH="$0:$PATH"`+"\n"+commands, s.programs)
	attr := *s.attr
	attr.Setpgid, attr.Setsid = false, true // without a terminal, prompts read the input
	cmd.Dir, cmd.SysProcAttr, cmd.Stdin = s.dir, &attr, strings.NewReader(input)
	cmd.Env = append(cmd.Environ(), "PGHOST="+s.dir, "PGPORT="+strconv.Itoa(s.port), "PGUSER="+User, "PGDATABASE=postgres")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, commands, text)
	}
	return string(text)
}

// Put writes a file into the directory of [Server.Shell], for its user.
func (s *Server) Put(t testing.TB, name string, content []byte) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	s.must(t, os.WriteFile(path, content, 0o600))
	_, err := Unprivileged(path)
	s.must(t, err)
}

// SetRules replaces the rules of authentication, the lines of pg_hba.conf, and restarts the server.
func (s *Server) SetRules(t testing.TB, rules string) {
	t.Helper()
	s.must(t, os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(rules), 0o600)) // the file keeps its owner
	s.Stop()
	s.Restart(t)
}

// Restart starts the server, after [Server.Kill] or [Server.Stop] or for the first time, and waits
// until it accepts connections.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	args := []string{"-D", s.data(), "-k", s.dir, "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "dynamic_shared_memory_type=mmap"} // in the data directory: a server that is killed leaves nothing elsewhere
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(filepath.Join(s.programs, "postgres"), args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Stderr = s.dir, s.attr, s.stderr
	s.must(t, cmd.Start())
	ended := make(chan struct{})
	s.postmaster, s.ended = cmd, ended
	go func() { _ = cmd.Wait(); close(ended) }()
	ready := polltest.Within(polltest.Patience, func() bool {
		select {
		case <-ended:
			return true
		default:
			return s.accepts()
		}
	})
	select {
	case <-ended:
		t.Fatalf("PostgreSQL ended: %s", s.Log())
	default:
	}
	if !ready {
		t.Fatalf("PostgreSQL does not accept connections: %s", s.Log())
	}
}

// accepts reports whether the server accepts connections, which the postmaster writes into its lock
// file. A server that was killed leaves that of another process.
func (s *Server) accepts() bool {
	text, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid")) // it may not exist yet
	lines := strings.Split(string(text), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(s.postmaster.Process.Pid) && strings.TrimSpace(lines[7]) == "ready"
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.stderr.Name()) // it exists until Remove
	return string(text)
}

// end sends a signal to the postmaster and waits for it to end.
func (s *Server) end(sig syscall.Signal) {
	if s.postmaster == nil {
		return
	}
	_ = s.postmaster.Process.Signal(sig)
	select {
	case <-s.ended:
	case <-time.After(polltest.Patience):
		_ = s.postmaster.Process.Kill()
		<-s.ended
	}
	s.postmaster = nil
}

// Stop stops the server in good order.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Abort stops the server at once: an immediate shutdown.
func (s *Server) Abort() { s.end(syscall.SIGQUIT) }

// Remove stops the server at once and removes its data.
func (s *Server) Remove() {
	s.Abort()
	// again after a test that has removed it
	_ = errors.Join(s.stderr.Close(), os.Remove(s.stderr.Name()), os.RemoveAll(s.dir))
}

// Ended reports whether the server is down, also by itself.
func (s *Server) Ended() bool {
	if s.postmaster == nil {
		return true
	}
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Kill kills all processes of the server at once, as when the machine fails, except that what was
// written but not synced stays.
func (s *Server) Kill() {
	if s.Ended() {
		return
	}
	// Backends have process groups of their own: stop the postmaster first, so that it
	// starts no others, and find its children.
	pid := s.postmaster.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	children := s.children()
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	<-s.ended
	s.postmaster = nil
	// The next server cannot start while one of them has the shared memory.
	polltest.Within(polltest.Patience, func() bool { return !slices.ContainsFunc(children, running) })
}

// Freeze stops all processes of the server, as when the machine freezes, until thaw is called.
func (s *Server) Freeze(t testing.TB) (thaw func()) {
	pids := []int{s.postmaster.Process.Pid}
	signal := func(sig syscall.Signal) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
	signal(syscall.SIGSTOP) // first, so that it starts no others
	pids = append(pids, s.children()...)
	signal(syscall.SIGSTOP)
	// Those that wait in the kernel stop when the wait ends.
	polltest.Within(polltest.Patience, func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return state(pid) == "R" || state(pid) == "S" })
	})
	thaw = sync.OnceFunc(func() { signal(syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}

// running reports whether a process has not ended.
func running(pid int) bool {
	is := state(pid)
	return is != "" && is != "Z"
}

// state returns the state of a process, as in proc(5); "" if there is none.
func state(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, _ := strings.Cut(string(text), ") ") // after the name
	return fields[:min(1, len(fields))]
}

// children returns the processes of the server, without the postmaster.
func (s *Server) children() (pids []int) {
	pid := s.postmaster.Process.Pid
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(child); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// CPU returns the CPU time of the server's processes so far, of those that have ended too.
func (s *Server) CPU(t testing.TB) (sum time.Duration) {
	t.Helper()
	for i, pid := range append([]int{s.postmaster.Process.Pid}, s.children()...) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has just ended
		}
		_, fields, _ := strings.Cut(string(text), ") ") // after the name
		values := strings.Fields(fields)
		used := values[11:13] // user and system time
		if i == 0 {
			used = values[11:15] // and those of children that have ended
		}
		for _, v := range used {
			ticks, _ := strconv.ParseInt(v, 10, 64)
			sum += time.Duration(ticks) * (time.Second / 100)
		}
	}
	return sum
}

// Standby creates a standby of the server with a name for synchronous_standby_names, and starts
// it.
func (s *Server) Standby(t testing.TB, name string, settings ...string) *Server {
	t.Helper()
	source := s.source() + " application_name=" + name
	standby := s.copy(t, source, slices.Concat(settings, []string{"primary_conninfo=" + source}), "-R")
	standby.Restart(t)
	return standby
}

// Backup returns a base backup of the server. Its first Restart makes a primary of it, with what the server had by the
// end of this call.
func (s *Server) Backup(t testing.TB, settings ...string) *Server {
	t.Helper()
	return s.copy(t, s.source(), settings)
}

// source returns how other servers connect to the server.
func (s *Server) source() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s", s.port, User)
}

// copy returns a server with a copy of the data.
func (s *Server) copy(t testing.TB, source string, settings []string, args ...string) *Server {
	t.Helper()
	c := create(t, nil, settings)
	s.must(t, c.run("pg_basebackup", append(args, "-D", c.data(), "-d", source, "--no-sync", "--checkpoint=fast")...))
	return c
}

// Promote makes a standby a primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.must(t, s.run("pg_ctl", "promote", "-s", "-D", s.data()))
}
