//go:build unix

package docs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var withKafka = flag.Bool("kafka", false, "test the loop to a Kafka broker, which takes minutes")

// TestKafka runs the loop of docs/reading-elsewhere.md to a broker of Kafka in KRaft mode. What a consumer of the topic
// has is what the server has, although all of the loop is killed, and the broker is stopped, in between.
func TestKafka(t *testing.T) {
	if !*withKafka {
		t.Skip("make kafka runs it")
	}
	for _, need := range []string{"java", "mvn", "kcat", "bash"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Fatalf("make kafka needs java 17, mvn and kcat: %v", err)
		}
	}
	k := newKafka(t)
	k.start(t)
	s := serve(t)
	loop := elsewhere(t, "bash")[0]
	command := strings.ReplaceAll(loop, "kafka:9092", k.addr)
	if command == loop {
		t.Fatalf("the loop of the page is %s", loop)
	}
	dir := t.TempDir()
	var running *exec.Cmd
	begin := func() {
		running = exec.Command("bash", "-c", command)
		running.Dir, running.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"),
			"PULSEGATE_TARGET="+s.url)
		running.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		try(t, running.Start())
	}
	kill := func() {
		_ = syscall.Kill(-running.Process.Pid, syscall.SIGKILL) // all of the loop; it may have ended
		_ = running.Wait()
	}
	devices := []string{"bed-1", "bed-2", "bed-3"}
	minute := 0
	store := func(n int) {
		t.Helper()
		for i := range n {
			minute++
			sign := []string{"spo2_pct", "heart_rate_bpm"}[i%2]
			body := fmt.Sprintf(`{"device":%q,"time":%q,%q:%d}`, devices[minute%len(devices)],
				time.Date(2026, 1, 2, 0, minute, 0, 0, time.UTC).Format(time.RFC3339), sign, 60+minute%40)
			resp, err := http.Post(s.url+"/v1/readings", "application/json", strings.NewReader(body))
			try(t, err, resp.Body.Close())
			if resp.StatusCode/100 != 2 {
				t.Fatalf("POST of %s: %s", body, resp.Status)
			}
		}
	}
	equal := func(when string) {
		t.Helper()
		var got, want string
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
			got, want = k.consume(t), copied(t, s, devices)
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s, the topic has\n%s\nwant\n%s", when, differing(got, want), differing(want, got))
			}
		}
	}
	begin()
	defer kill()
	store(60)
	equal("at first")
	try(t, exec.Command(program, "erase", "--target", s.admin, "--device", devices[0], "--yes").Run())
	equal("after an erasure")
	for range 10 {
		store(10)
		kill()
		store(10)
		begin()
	}
	equal("after kills")
	k.stop()
	store(30)
	k.start(t)
	store(30)
	equal("after a stop of the broker")
}

// differing returns the first line of a text in which it differs from another one.
func differing(text, other string) string {
	others := slices.Collect(strings.Lines(other))
	for line := range strings.Lines(text) {
		if len(others) == 0 || line != others[0] {
			return line
		}
		others = others[1:]
	}
	return ""
}

// A kafka is a broker that is its own controller, with one topic.
type kafka struct {
	addr, libs, properties string
	cmd                    *exec.Cmd
}

func newKafka(t *testing.T) *kafka {
	t.Helper()
	dir := t.TempDir()
	k := &kafka{libs: filepath.Join(dir, "libs"), properties: filepath.Join(dir, "server.properties")}
	run(t, "kafka", nil, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+k.libs)
	var ports [2]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		try(t, err)
		defer l.Close()
		ports[i] = l.Addr().String()
	}
	k.addr = ports[0]
	try(t, os.WriteFile(k.properties, []byte(strings.Join([]string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + ports[1],
		"listeners=PLAINTEXT://" + ports[0] + ",CONTROLLER://" + ports[1],
		"advertised.listeners=PLAINTEXT://" + ports[0],
		"controller.listener.names=CONTROLLER", "log.dirs=" + filepath.Join(dir, "log"), "num.partitions=1",
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1",
	}, "\n")), 0o600))
	id := strings.TrimSpace(k.java(t, "kafka.tools.StorageTool", "random-uuid"))
	k.java(t, "kafka.tools.StorageTool", "format", "-t", id, "-c", k.properties)
	t.Cleanup(k.stop)
	return k
}

// java runs a program of Kafka and returns its standard output.
func (k *kafka) java(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("java", append([]string{"-cp", k.libs + "/*"}, args...)...).Output()
	try(t, err)
	return string(out)
}

func (k *kafka) start(t *testing.T) {
	t.Helper()
	k.cmd = exec.Command("java", "-Xmx512m", "-cp", k.libs+"/*", "kafka.Kafka", k.properties)
	try(t, k.cmd.Start())
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		err := exec.Command("kcat", "-L", "-b", k.addr, "-m", "5").Run()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the broker does not answer: %v", err)
		}
	}
}

func (k *kafka) stop() {
	if k.cmd != nil {
		_ = k.cmd.Process.Signal(os.Interrupt)
		_ = k.cmd.Wait() // it exits with 130
		k.cmd = nil
	}
}

// consume reads the topic from its beginning, and returns what a consumer that applies the changes has, as copied does.
func (k *kafka) consume(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("kcat", "-C", "-b", k.addr, "-t", "readings", "-o", "beginning", "-e", "-q").Output()
	if err != nil {
		return err.Error() // there is no topic yet
	}
	type reading struct{ device, time string }
	copies := map[reading]map[string]float64{}
	for line := range strings.Lines(string(out)) {
		var c struct {
			Kind, Device, Time string
			Signs              json.RawMessage
		}
		try(t, json.Unmarshal([]byte(line), &c))
		switch at := (reading{c.Device, c.Time}); c.Kind {
		case "reading":
			if copies[at] == nil {
				copies[at] = map[string]float64{}
			}
			values := copies[at]
			try(t, json.Unmarshal(c.Signs, &values))
		case "erased":
			for r := range copies {
				if r.device == c.Device {
					delete(copies, r)
				}
			}
		}
	}
	var lines []string
	for r, values := range copies {
		for sign, value := range values {
			lines = append(lines, fmt.Sprintf("%s %s %s %.1f ", r.device, r.time, sign, value))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
