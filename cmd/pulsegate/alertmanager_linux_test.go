package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

// An alertmanager is Prometheus Alertmanager, one process after another with the same files and address.
type alertmanager struct {
	dir, addr string
	cmd       *exec.Cmd // nil while it is down
	exited    chan struct{}
	log       bytes.Buffer // of all processes; not to be read while one runs
}

// newAlertmanager returns an Alertmanager that delivers to a pager, each group this often.
func newAlertmanager(t *testing.T, p *pager, every time.Duration) *alertmanager {
	webhook := httptest.NewServer(p)
	t.Cleanup(webhook.Close)
	return withConfig(t, fmt.Sprintf(`
route: {receiver: pager, group_by: [device], group_wait: 200ms, group_interval: %s, repeat_interval: 4h}
receivers: [{name: pager, webhook_configs: [{url: %s, send_resolved: true}]}]
`, every, webhook.URL))
}

// withConfig returns an Alertmanager with a configuration.
func withConfig(t *testing.T, config string) *alertmanager {
	a := &alertmanager{dir: t.TempDir(), addr: porttest.Addr(t)}
	certtest.Write(t, filepath.Join(a.dir, "config.yml"), []byte(config))
	t.Cleanup(func() {
		a.end(t, syscall.SIGKILL)
		if t.Failed() {
			t.Logf("the log of Alertmanager:\n%s", a.log.String())
		}
	})
	return a
}

func (a *alertmanager) url() string { return "http://" + a.addr }

func (a *alertmanager) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(filepath.Join(*alertPrograms, "alertmanager"), "--config.file="+filepath.Join(a.dir, "config.yml"),
		"--storage.path="+filepath.Join(a.dir, "data"),
		"--web.listen-address="+a.addr, "--cluster.listen-address=", "--log.level=info")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &a.log, &a.log
	try(t, cmd.Start())
	exited := make(chan struct{})
	a.cmd, a.exited = cmd, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // it is killed
	}()
	polltest.Until(t, "Alertmanager is ready", func() bool { return status(a.url()+"/-/ready") == http.StatusOK })
}

func (a *alertmanager) end(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Signal(sig) // it may have ended
	polltest.Until(t, "Alertmanager has ended", func() bool {
		select {
		case <-a.exited:
			return true
		default:
			return false
		}
	})
	a.cmd = nil
}

func (a *alertmanager) pause(d time.Duration) {
	_ = a.cmd.Process.Signal(syscall.SIGSTOP) // it may have ended
	time.Sleep(d)
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
}

// An imitation behaves like Alertmanager, as far as the campaign needs it: with groups of one alert.
type imitation struct {
	addr  string
	every time.Duration
	pager *pager

	notified map[string]bool // alerts that were notified and have not ended; the log of notifications
	now      *imitated       // nil while it is down
}

// An imitated is one process of an imitation.
type imitated struct {
	server *http.Server
	stop   chan struct{}
	tasks  sync.WaitGroup

	mu     sync.Mutex
	alerts map[string]*postedAlert // guarded by mu; by device and rule
}

type postedAlert struct {
	Labels           map[string]string `json:"labels"`
	StartsAt, EndsAt time.Time
}

func (m *imitation) url() string { return "http://" + m.addr }

func (m *imitation) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", m.addr)
	try(t, err)
	if m.notified == nil {
		m.notified = map[string]bool{}
		t.Cleanup(func() { m.end(t, syscall.SIGKILL) })
	}
	now := &imitated{stop: make(chan struct{}), alerts: map[string]*postedAlert{}}
	now.server = &http.Server{Handler: now}
	m.now = now
	now.tasks.Go(func() { _ = now.server.Serve(listener) }) // until it is closed
	now.tasks.Go(func() {
		for {
			select {
			case <-now.stop:
				return
			case <-time.After(m.every):
				m.flush(now)
			}
		}
	})
}

func (m *imitation) end(t *testing.T, sig syscall.Signal) {
	if m.now == nil {
		return
	}
	try(t, m.now.server.Close())
	close(m.now.stop)
	m.now.tasks.Wait()
	if m.now = nil; sig == syscall.SIGKILL {
		clear(m.notified)
	}
}

func (m *imitation) pause(d time.Duration) {
	m.now.mu.Lock()
	time.Sleep(d)
	m.now.mu.Unlock()
}

// flush notifies what has changed since it was notified.
func (m *imitation) flush(now *imitated) {
	now.mu.Lock()
	defer now.mu.Unlock()
	for key, a := range now.alerts {
		active := a.EndsAt.After(time.Now())
		if active != m.notified[key] {
			m.notified[key] = active
			m.pager.deliver(page{a.Labels["device"], a.Labels["alertname"], active, a.StartsAt})
		}
		if !active {
			delete(now.alerts, key)
		}
	}
}

// ServeHTTP takes alerts, and lists the active ones.
func (now *imitated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var posted []*postedAlert
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&posted); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
	}
	now.mu.Lock()
	defer now.mu.Unlock()
	for _, a := range posted {
		key := a.Labels["device"] + " " + a.Labels["alertname"]
		if old := now.alerts[key]; old != nil && old.EndsAt.After(a.StartsAt) && old.StartsAt.Before(a.StartsAt) {
			a.StartsAt = old.StartsAt
		}
		now.alerts[key] = a
	}
	active := []*postedAlert{}
	for _, a := range now.alerts {
		if a.EndsAt.After(time.Now()) {
			active = append(active, a)
		}
	}
	_ = json.NewEncoder(w).Encode(active) // the client may have gone
}

// The example of a configuration is valid, and Alertmanager does with it what docs/alerts.md says: a device
// that is silent is notified as silent, and its other alerts are not, until it is heard again.
func TestAlertmanagerExample(t *testing.T) {
	if *alertPrograms == "" {
		t.Skip("make alerts runs it, with Alertmanager")
	}
	t.Parallel()
	const example = root + "/examples/alertmanager.yml"
	if out, err := exec.Command(filepath.Join(*alertPrograms, "amtool"), "check-config", example).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(example)
	try(t, err)
	mail, onCall := &pager{}, &pager{}
	receivers := "receivers:\n"
	for name, p := range map[string]*pager{"mail": mail, "on-call": onCall} {
		webhook := httptest.NewServer(p)
		t.Cleanup(webhook.Close)
		receivers += fmt.Sprintf("  - {name: %s, webhook_configs: [{url: %s, send_resolved: true}]}\n", name, webhook.URL)
	}
	config, rest, cut := strings.Cut(string(text), "receivers:\n")
	_, rest, cutToo := strings.Cut(rest, "\n\n")
	slow := "group_interval: 5m\n"
	if !cut || !cutToo || strings.Count(config, slow) != 1 || !strings.Contains(rest, "inhibit_rules:\n") {
		t.Fatalf("the example has another form:\n%s", text)
	}
	am := withConfig(t, strings.Replace(config, slow, "group_interval: 1s\n", 1)+receivers+rest)
	am.start(t)

	dir := t.TempDir()
	rules := filepath.Join(dir, "alerts.toml")
	certtest.Write(t, rules,
		[]byte(rule("SpO2Low",
			90)+"max_age = \"3h\"\nlabels = { severity = \"page\" }\n[[alert]]\nname = \"Silent\"\nsilent = \"1h\"\n"))
	p := start(t, program(t), filepath.Join(dir, "data"), "--alerts="+rules, "--alertmanager="+am.url(),
		"--alertmanager-every=1s")
	post := func(device string, spo2 int, age time.Duration) {
		t.Helper()
		resp, text := fetch(t, http.MethodPost, p.url("/v1/readings"), fmt.Sprintf(`{"device":%q,"time":%d,"spo2_pct":%d}`,
			device, time.Now().Add(-age).UnixMilli(), spo2))
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
	}
	post("a", 97, 2*time.Hour)
	awaitAlerts(p, "Silent a")
	polltest.Until(t, "Alertmanager knows that the device is silent", func() bool {
		_, text := fetch(t, http.MethodGet, am.url()+"/api/v2/alerts", "")
		return strings.Contains(text, `"alertname":"Silent"`)
	})
	post("a", 85, 90*time.Minute)
	post("b", 85, 0)
	awaitAlerts(p, "Silent a", "SpO2Low a", "SpO2Low b")
	suppressed := func() (names []string) {
		var alerts []struct {
			Labels map[string]string
			Status struct{ InhibitedBy []string }
		}
		_, text := fetch(t, http.MethodGet, am.url()+"/api/v2/alerts", "")
		if err := json.Unmarshal([]byte(text), &alerts); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, a := range alerts {
			if len(a.Status.InhibitedBy) > 0 {
				names = append(names, a.Labels["alertname"]+" "+a.Labels["device"])
			}
		}
		return names
	}
	polltest.Until(t, "the other alert of the silent device is inhibited",
		func() bool { return slices.Equal(suppressed(), []string{"SpO2Low a"}) })
	polltest.Until(t, "both devices are notified", func() bool { return mail.now() > 0 && onCall.now() > 0 })
	if got := onCall.of("a", 0, onCall.now()); len(got) > 0 {
		t.Errorf("on-call has %+v of the silent device", got)
	}
	mail.mu.Lock()
	if got := mail.pages[0]; got.rule != "Silent" || got.device != "a" {
		t.Errorf("mail has %+v", got)
	}
	mail.mu.Unlock()
	post("a", 85, 0)
	polltest.Until(t, "the device that is heard again is notified",
		func() bool { return len(onCall.of("a", 0, onCall.now())) > 0 })
}
