//go:build linux

package pgtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// Nodes is the number of machines of a [Cluster].
const Nodes = 3

// A Cluster is three machines that run PostgreSQL, Patroni and etcd: a primary and two standbys
// with quorum synchronous commit. Each machine is a process namespace with a network of its own,
// connected to the test's network by a bridge. All of it ends with the test's process.
//
// A machine has two addresses, so that its parts can be cut off apart: one for etcd and Patroni, and
// one for PostgreSQL. They are of networks that are reserved for documentation.
//
// Its methods must be called from the test's goroutine.
type Cluster struct {
	t        testing.TB
	dir      string
	etcd     string // the program
	patroni  string // directory of the package
	programs string // directory of PostgreSQL's programs
	nodes    [Nodes]node
	links    int // created so far; they name the next one
}

// A node is a machine.
type node struct {
	init *exec.Cmd // the first process; nil means the machine is down
	link string    // its port of the bridge
}

const bridge = "pgtest"

// StartCluster starts the machines and waits until the standbys follow a primary. tools is the
// directory that .ci/tools fills. The test must run in network and mount namespaces of its own.
// If it cannot, or a program is missing, the test is skipped, except in CI, where it fails.
func StartCluster(t testing.TB, tools string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	if err := c.prepare(tools); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for i := range c.nodes {
		c.configure(i)
		c.Boot(i)
	}
	c.AwaitWhole()
	return c
}

// prepare creates the directory and the bridge.
func (c *Cluster) prepare(tools string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root")
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 {
			return fmt.Errorf("a cluster needs a network namespace of its own, and this one has %s", i.Name)
		}
	}
	if c.programs, err = Programs(); err != nil {
		return err
	}
	if c.etcd, err = exec.LookPath(filepath.Join(tools, "etcd")); err != nil {
		if c.etcd, err = exec.LookPath("etcd"); err != nil {
			return fmt.Errorf("a cluster needs etcd, which .ci/setup fetches: %w", err)
		}
	}
	var err1, err2 error
	c.etcd, err1 = filepath.Abs(c.etcd)
	c.patroni, err2 = filepath.Abs(filepath.Join(tools, "patroni_python"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	const modules = "import patroni, psycopg2, etcd, psutil, yaml, dateutil"
	err = errors.Join(
		execute([]string{"sh", "-c", "command -v ip && command -v nsenter && command -v setpriv"}),
		execute([]string{"env", "PYTHONPATH=" + c.patroni, "/usr/bin/python3", "-c", modules}))
	if err != nil {
		return fmt.Errorf("a cluster needs programs and modules that .ci/setup installs: %w", err)
	}
	if c.dir, err = os.MkdirTemp("", "pgcluster"); err != nil {
		return err
	}
	c.t.Cleanup(c.stop)
	if _, err := user.Lookup("postgres"); err != nil {
		return err
	}
	if _, err := Unprivileged(c.dir); err != nil {
		return err
	}
	return errors.Join(
		ip("link", "add", bridge, "type", "bridge"),
		ip("addr", "add", controlNet+ofTest, "dev", bridge),
		ip("addr", "add", dataNet+ofTest, "dev", bridge),
		ip("link", "set", bridge, "up"))
}

// stop ends all machines.
func (c *Cluster) stop() {
	for i := range c.nodes {
		if c.t.Failed() {
			c.t.Logf("machine %d:\n%s\n%s", i+1, c.tail(i, "patroni.log"), c.tail(i, "etcd.log"))
		}
		c.Kill(i)
	}
	_ = ip("link", "del", bridge) // it may not exist yet
	_ = os.RemoveAll(c.dir)
}

// tail returns the end of a log.
func (c *Cluster) tail(i int, name string) string {
	text, _ := os.ReadFile(filepath.Join(c.path(i), name)) // a missing one is empty
	return string(text[max(0, len(text)-6000):])
}

// Addresses of the networks.
const (
	controlNet = "192.0.2."    // etcd and Patroni
	dataNet    = "198.51.100." // PostgreSQL
	ofTest     = "254/24"      // the test's own address in both
)

func control(i int) string { return controlNet + strconv.Itoa(i+1) }
func data(i int) string    { return dataNet + strconv.Itoa(i+1) }

func (c *Cluster) path(i int) string { return filepath.Join(c.dir, strconv.Itoa(i+1)) }

// DSN returns the address of the database with all of its hosts, for a user without a password.
func (c *Cluster) DSN() string {
	var hosts []string
	for i := range c.nodes {
		hosts = append(hosts, data(i))
	}
	return "postgres://pulsegate@" + strings.Join(hosts, ",") + "/pulsegate?sslmode=disable"
}

// ip runs ip(8).
func ip(args ...string) error { return execute(append([]string{"ip"}, args...)) }

// execute runs a command that may be in a directory for administrators, which need not be in PATH.
func execute(line []string) error {
	line = append([]string{"-c", `PATH=$PATH:/usr/sbin:/sbin exec "$@"`, "sh"}, line...)
	if text, err := exec.Command("/bin/sh", line...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(line[3:], " "), err, text)
	}
	return nil
}

// patroniConfig is the configuration of a machine. pg_hba belongs under postgresql: a standby that
// pg_rewind has changed would otherwise have an empty one.
var patroniConfig = template.Must(template.New("").Parse(`
scope: pulsegate
name: node{{.N}}
restapi: {listen: "{{.Control}}:8008", connect_address: "{{.Control}}:8008"}
etcd3: {hosts: "{{.Etcd}}"}
watchdog: {mode: "off"}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 5
    retry_timeout: 6
    synchronous_mode: quorum
    synchronous_mode_strict: true
    synchronous_node_count: 1
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters: {wal_log_hints: "on", wal_sender_timeout: 5s, wal_receiver_timeout: 5s, restart_after_crash: "off", max_connections: 100}
  initdb: [encoding: UTF8, locale: C, data-checksums]
  post_bootstrap: "{{.Dir}}/../bootstrap"
postgresql:
  listen: "{{.Data}}:5432"
  connect_address: "{{.Data}}:5432"
  data_dir: "{{.Dir}}/data"
  bin_dir: "{{.Programs}}"
  pgpass: "{{.Dir}}/pgpass"
  authentication:
    superuser: {username: postgres}
    replication: {username: replicator}
    rewind: {username: rewinder}
  parameters: {unix_socket_directories: "{{.Dir}}", logging_collector: "off", log_destination: stderr}
  pg_hba:
    - local all all trust
    - host all all 0.0.0.0/0 trust
    - host replication all 0.0.0.0/0 trust
  basebackup: [checkpoint: fast]
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
`))

// boot is what the first process of a machine runs once its network is connected, which is when it
// reads a line. The programs are mounted where their user can reach them. Process IDs begin at 1
// again, so those in the lock files of a machine that was killed may exist: PostgreSQL would not
// start.
var boot = template.Must(template.New("").Parse(`
read -r _
set -e
PATH=$PATH:/usr/sbin:/sbin
mount -t proc proc /proc
ip link set lo up
ip link set eth0 up
ip addr add {{.Control}}/24 dev eth0
ip addr add {{.Data}}/24 dev eth0
mount --bind {{.EtcdProgram}} {{.Dir}}/etcd
mount --bind {{.Patroni}} {{.Dir}}/python
cd {{.Dir}}
rm -f .s.PGSQL.* data/postmaster.pid
as="setpriv --reuid=postgres --regid=postgres --clear-groups"
nice -n -10 $as ./etcd --name node{{.N}} --data-dir etcd.data --listen-peer-urls http://{{.Control}}:2380 --initial-advertise-peer-urls http://{{.Control}}:2380 \
	--listen-client-urls http://{{.Control}}:2379 --advertise-client-urls http://{{.Control}}:2379 \
	--initial-cluster {{.Peers}} --heartbeat-interval 300 --election-timeout 3000 --logger zap >etcd.log 2>&1 &
while :; do
	nice -n -10 $as env PYTHONPATH="$PWD/python" /usr/bin/python3 -m patroni patroni.yml || sleep 1
done >patroni.log 2>&1 &
wait
`))

// bootstrap creates what the tests need in a new database. Its argument is an address.
const bootstrap = `#!/bin/sh
exec {{.Programs}}/psql -v ON_ERROR_STOP=1 -d "$1" -c 'CREATE ROLE pulsegate LOGIN' -c 'GRANT pg_monitor TO pulsegate' -c 'CREATE DATABASE pulsegate OWNER pulsegate'
`

// render executes a template for machine i.
func (c *Cluster) render(text *template.Template, i int) string {
	var etcd, peers []string
	for k := range c.nodes {
		etcd = append(etcd, control(k)+":2379")
		peers = append(peers, fmt.Sprintf("node%d=http://%s:2380", k+1, control(k)))
	}
	var b strings.Builder
	err := text.Execute(&b, map[string]any{
		"N": i + 1, "Control": control(i), "Data": data(i), "Dir": c.path(i), "EtcdProgram": c.etcd, "Patroni": c.patroni,
		"Programs": c.programs,
		"Etcd":     strings.Join(etcd, ","), "Peers": strings.Join(peers, ","),
	})
	if err != nil {
		panic(err)
	}
	return b.String()
}

// configure writes the files of a machine.
func (c *Cluster) configure(i int) {
	c.t.Helper()
	dir := c.path(i)
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "python"), 0o755),
		os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o755),
		os.WriteFile(filepath.Join(dir, "patroni.yml"), []byte(c.render(patroniConfig, i)), 0o644),
		os.WriteFile(filepath.Join(c.dir, "bootstrap"), []byte(c.render(template.Must(template.New("").Parse(bootstrap)), i)),
			0o755))
	if err == nil {
		_, err = Unprivileged(dir)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Boot starts a machine that is down.
func (c *Cluster) Boot(i int) {
	c.t.Helper()
	n := &c.nodes[i]
	cmd := exec.Command("/bin/sh", "-c", c.render(boot, i))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	connected, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatalf("boot machine %d: %v", i+1, err)
	}
	n.init = cmd
	c.links++
	n.link = fmt.Sprintf("pgtest%d", c.links)
	err = errors.Join(
		ip("link", "add", n.link, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(cmd.Process.Pid)),
		ip("link", "set", n.link, "master", bridge, "up"))
	if err == nil {
		_, err = io.WriteString(connected, "\n")
	}
	if err = errors.Join(err, connected.Close()); err != nil {
		c.t.Fatalf("boot machine %d: %v\n%s", i+1, err, &stderr)
	}
}

// Kill kills all processes of a machine at once, as when its power fails, except that what was
// written but not synced stays. A machine that is down stays down.
func (c *Cluster) Kill(i int) {
	n := &c.nodes[i]
	if n.init == nil {
		return
	}
	_ = n.init.Process.Kill() // the kernel kills the others of its namespace
	_ = n.init.Wait()
	n.init = nil
	_ = ip("link", "del", n.link) // the kernel removes it later
}

// signal sends a signal to the processes of a machine whose names are chosen.
func (n *node) signal(sig syscall.Signal, chosen func(name string) bool) error {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", n.init.Process.Pid))
	if err != nil {
		return err
	}
	// Twice: a process may start another one before it is stopped.
	for range 2 {
		all, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
		for _, link := range all {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(link)), "comm")) // it may have ended
			if of, err := os.Readlink(link); err == nil && of == space && chosen(strings.TrimSpace(string(name))) {
				pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
				_ = syscall.Kill(pid, sig) // it may have ended
			}
		}
	}
	return nil
}

func every(string) bool          { return true }
func notEtcd(name string) bool   { return name != "etcd" }
func isPatroni(name string) bool { return name == "python3" }

// Freeze stops all processes of a machine but etcd, and Thaw lets them go on. etcd counts as a
// machine of its own here, as docs/scaling.md demands it.
func (c *Cluster) Freeze(i int) { c.must(c.nodes[i].signal(syscall.SIGSTOP, notEtcd)) }

// Thaw ends Freeze.
func (c *Cluster) Thaw(i int) { c.must(c.nodes[i].signal(syscall.SIGCONT, notEtcd)) }

// FreezeWithLeader stops all processes of a machine, of which etcd is the leader by then. When such a machine goes on
// after the leases of the others have ended, its etcd sends requests to revoke them. If they arrive as the old primary
// goes on too, that may be the first to take the lock again, and what was acknowledged in between is lost.
func (c *Cluster) FreezeWithLeader(i int) {
	c.t.Helper()
	c.await("etcd has another leader", func() bool {
		var status struct {
			Header struct {
				MemberID string `json:"member_id"`
			}
			Leader string
		}
		if askEtcd(i, "maintenance/status", "{}", &status) != nil || status.Header.MemberID == "" {
			return false
		}
		for k := range c.nodes { // only the leader does it
			_ = askEtcd(k, "maintenance/transfer-leadership", `{"targetID":"`+status.Header.MemberID+`"}`, &struct{}{})
		}
		return status.Leader == status.Header.MemberID
	})
	c.must(c.nodes[i].signal(syscall.SIGSTOP, every))
}

// ThawAsPrimary ends FreezeWithLeader, and reports whether the old primary took the lock again. Without help that
// depends on chance: its Patroni must find the lock free before the others do, and must not know yet that another one
// has had it, or that there is a later timeline. So the keys that say so are removed, the Patroni of the other machines
// is stopped until then, and the machine's etcd is resumed last.
func (c *Cluster) ThawAsPrimary(i int) (again bool) {
	c.t.Helper()
	for k := range c.nodes {
		if k != i {
			c.must(c.nodes[k].signal(syscall.SIGSTOP, isPatroni))
		}
	}
	other := (i + 1) % Nodes
	key := func(name string) string {
		return base64.StdEncoding.EncodeToString([]byte("/service/pulsegate/" + name))
	}
	for _, name := range []string{"leader", "history"} {
		c.await(name+" is removed", func() bool {
			return askEtcd(other, "kv/deleterange", `{"key":"`+key(name)+`"}`, &struct{}{}) == nil
		})
	}
	c.must(c.nodes[i].signal(syscall.SIGCONT, notEtcd))
	again = polltest.Within(30*time.Second, func() bool {
		var answer struct{ Kvs []struct{ Value string } }
		err := askEtcd(other, "kv/range", `{"key":"`+key("leader")+`"}`, &answer)
		return err == nil && len(answer.Kvs) == 1 &&
			answer.Kvs[0].Value == base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "node%d", i+1))
	})
	for k := range c.nodes {
		c.must(c.nodes[k].signal(syscall.SIGCONT, every))
	}
	return again
}

// askEtcd sends a request to the etcd of machine i.
func askEtcd(i int, what, body string, answer any) error {
	resp, err := impatient.Post("http://"+control(i)+":2379/v3/"+what, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(answer)
}

// Unplug drops all packets of a machine, and Plug ends that.
func (c *Cluster) Unplug(i int) { c.must(ip("link", "set", c.nodes[i].link, "nomaster")) }

// Plug ends Unplug.
func (c *Cluster) Plug(i int) { c.must(ip("link", "set", c.nodes[i].link, "master", bridge)) }

func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// A Network is one of the networks between the machines.
type Network string

// The networks.
const (
	Control Network = controlNet // of etcd and Patroni
	Data    Network = dataNet    // of PostgreSQL
)

// Cut drops the packets between machine i and the others in these networks, but not those
// between machine i and the test. Mend ends that.
func (c *Cluster) Cut(i int, networks ...Network) {
	c.between(i, networks, func(from int, to string) error {
		// Frames to this address reach nobody.
		return c.nodes[from].neighbour("replace", to, "lladdr", "02:00:00:00:00:ff", "dev", "eth0", "nud", "permanent")
	})
}

// Mend ends Cut.
func (c *Cluster) Mend(i int, networks ...Network) {
	c.between(i, networks, func(from int, to string) error { return c.nodes[from].neighbour("del", to, "dev", "eth0") })
}

func (c *Cluster) between(i int, networks []Network, do func(from int, to string) error) {
	c.t.Helper()
	for k := range c.nodes {
		for _, n := range networks {
			if k != i {
				c.must(errors.Join(do(i, string(n)+strconv.Itoa(k+1)), do(k, string(n)+strconv.Itoa(i+1))))
			}
		}
	}
}

// neighbour changes the neighbour table of a machine that is up.
func (n *node) neighbour(args ...string) error {
	if n.init == nil {
		return nil
	}
	space := fmt.Sprintf("--net=/proc/%d/ns/net", n.init.Process.Pid)
	return execute(append([]string{"nsenter", space, "ip", "neigh"}, args...))
}

// impatient asks Patroni, which may be frozen.
var impatient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Primary returns the machine that Patroni reports to be the primary. It returns -1 if there is
// none, or two, one of which has not noticed yet that it was replaced.
func (c *Cluster) Primary() int {
	primary := -1
	for i := range c.nodes {
		resp, err := impatient.Get("http://" + control(i) + ":8008/primary")
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			if primary >= 0 {
				return -1
			}
			primary = i
		}
	}
	return primary
}

// Whole reports whether both standbys follow a primary and are in its quorum, according to
// PostgreSQL and to Patroni. What Patroni reports alone may be older than a machine's return: it
// then takes the standbys out of the quorum once more, and if the primary is lost at that moment, it
// promotes none of them.
func (c *Cluster) Whole() bool {
	p := c.Primary()
	if p < 0 {
		return false
	}
	const standbys = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'quorum'"
	count, err := exec.Command(filepath.Join(c.programs, "psql"), "-h", data(p), "-U", "postgres", "-Atc", standbys,
		"postgres").Output()
	if err != nil || strings.TrimSpace(string(count)) != strconv.Itoa(Nodes-1) {
		return false
	}
	resp, err := impatient.Get("http://" + control(p) + ":8008/cluster")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var state struct {
		Members []struct{ Role, State string }
	}
	if json.NewDecoder(resp.Body).Decode(&state) != nil {
		return false
	}
	members := 0
	for _, m := range state.Members {
		if m.Role == "quorum_standby" && m.State == "streaming" {
			members++
		}
	}
	return members == Nodes-1
}

// Astray returns a standby that waits for a log that no machine has, or -1. When a primary is lost in the middle of a
// record that one file of its log begins and the next one continues, and another machine is promoted, PostgreSQL 15
// asks that one for the second file only, and never finds the rest of the first one. Patroni does not notice it.
func (c *Cluster) Astray() int {
	primary := c.Primary()
	for i := range c.nodes {
		text := c.tail(i, "patroni.log")
		if i != primary && strings.Contains(text[max(0, len(text)-3000):], "waiting for WAL to become available") {
			return i
		}
	}
	return -1
}

// AwaitWhole waits until the cluster is whole. After a minute it builds a standby that has gone astray anew, as
// docs/scaling.md says: it does not follow the old primary either, if that comes back without the other timeline.
func (c *Cluster) AwaitWhole() {
	c.t.Helper()
	rebuildAt := time.Now().Add(time.Minute)
	c.await("both standbys follow a primary", func() bool {
		if astray := c.Astray(); astray >= 0 && time.Now().After(rebuildAt) {
			c.t.Logf("machine %d is built anew: %t", astray+1, c.reinitialize(astray))
			rebuildAt = time.Now().Add(time.Minute)
		}
		if !c.Whole() {
			return false
		}
		time.Sleep(time.Second)
		return c.Whole()
	})
}

// reinitialize is patronictl reinit of a standby. It reports whether Patroni has begun.
func (c *Cluster) reinitialize(i int) bool {
	resp, err := impatient.Post("http://"+control(i)+":8008/reinitialize", "application/json",
		strings.NewReader(`{"force": true}`))
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// await waits for a state that Patroni brings about, which takes longer than polltest.Patience on
// a busy machine.
func (c *Cluster) await(what string, holds func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(3 * polltest.Patience); !holds(); time.Sleep(300 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("the cluster has not recovered: %s", what)
		}
	}
}
