package main_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A server in a control group of 160 MiB is sent far more than that: the first
// halves of 48 batches of 16 MiB at one time. It refuses what its bound of 40 MiB
// does not hold with 503 and Retry-After, stays alive, and takes readings meanwhile.
// Then it is loaded with batches.
//
// Seen to fail with the mutant unbounded-bodies: the kernel ends the server.
func TestMemoryLimit(t *testing.T) {
	onBothLanes(t, func(t *testing.T, lane lane) {
		t.Parallel()
		const limitBytes, bodyBytes, batches, batchBytes = 160 << 20, 40 << 20, 48, 16 << 20
		group := newMemoryGroup(t, limitBytes)
		b := newBed(t, lane, "--max-body-bytes="+strconv.Itoa(bodyBytes), "--max-queued=20000")
		b.startUnder(append(group.wrapper(), "env", "GOMEMLIMIT="+strconv.Itoa(limitBytes*3/4)))

		refused := make(chan string, batches)
		head := fmt.Sprintf("POST /v1/readings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n[", batchBytes)
		half := strings.Repeat(" ", batchBytes/2)
		var conns []net.Conn
		for range batches {
			conn, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns = append(conns, conn)
			go func() { _, _ = io.WriteString(conn, head+half) }() // a refusal may come before all is sent
			go func() {
				answer := make([]byte, 4096)
				if n, _ := conn.Read(answer); n > 0 { // otherwise it has found room, until it is closed
					refused <- string(answer[:n])
				}
			}()
		}
		for range batches - bodyBytes/batchBytes {
			select {
			case answer := <-refused:
				if !strings.HasPrefix(answer, "HTTP/1.1 503 ") || !strings.Contains(answer, "Retry-After: ") {
					t.Errorf("a batch that does not fit is answered %q, want 503 and Retry-After", answer)
				}
			case <-b.server.exited:
				t.Fatalf("the server has ended, %v, in a control group that was killed in %d times", b.server.cmd.ProcessState, group.kills())
			case <-time.After(30 * time.Second):
				t.Fatalf("batches of %d MiB are not refused, with room for %d MiB", batches*batchBytes>>20, bodyBytes>>20)
			}
		}
		b.mustPost(reading(1), `200 {"status":"stored"}`)
		if got := status(b.server.url("/livez")); got != 200 {
			t.Errorf("livez says %d, want 200", got)
		}
		for _, conn := range conns {
			conn.Close()
		}
		b.load("--users=40", "--batch=500", "--posts=8").wait()
		b.verify()
		if n := group.kills(); n > 0 {
			t.Errorf("the kernel has ended processes %d times for want of memory", n)
		}
		b.term()
		b.check()
	})
}

// A memoryGroup is a control group whose processes may have so much memory.
type memoryGroup struct {
	testing.TB
	dir    string
	events string // the file that counts kills
}

// newMemoryGroup makes a control group, of version 2 where its memory controller
// is in use, and otherwise of version 1.
func newMemoryGroup(t testing.TB, limitBytes int) *memoryGroup {
	t.Helper()
	name := fmt.Sprintf("pulsegate-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	g := &memoryGroup{TB: t, dir: filepath.Join("/sys/fs/cgroup", name)}
	limit, events := "memory.max", "memory.events"
	controllers, _ := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control")
	if !strings.Contains(string(controllers), "memory") {
		g.dir = filepath.Join("/sys/fs/cgroup/memory", name)
		limit, events = "memory.limit_in_bytes", "memory.oom_control"
	}
	g.events = filepath.Join(g.dir, events)
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		unable(t, "a control group with a memory limit is needed: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(g.dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(g.dir, limit), []byte(strconv.Itoa(limitBytes)), 0o644); err != nil {
		unable(t, "limit the memory of a control group: %v", err)
	}
	return g
}

// wrapper returns the command that runs another one in the group.
func (g *memoryGroup) wrapper() []string {
	return []string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs")}
}

// kills returns how many processes the kernel has ended in the group.
func (g *memoryGroup) kills() int {
	g.Helper()
	text, err := os.ReadFile(g.events)
	if err != nil {
		g.Fatal(err)
	}
	_, rest, _ := strings.Cut("\n"+string(text), "\noom_kill ")
	n, err := strconv.Atoi(strings.Fields(rest + " ?")[0])
	if err != nil {
		g.Fatalf("%s does not show oom_kill: %s", g.events, text)
	}
	return n
}
