package main_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
)

// A receiver is an Alertmanager that keeps the newest state of each alert.
type receiver struct {
	*httptest.Server
	want string // header Authorization; "" means none

	mu     sync.Mutex
	states map[string]bool // guarded by mu; whether an alert is active, by name and device
	wrong  int             // guarded by mu; requests without the right credentials
}

// receive starts a receiver, with TLS if pair is not nil.
func receive(t *testing.T, want string, pair *certtest.Pair) *receiver {
	r := &receiver{want: want, states: map[string]bool{}}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	if pair != nil {
		r.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}
		r.StartTLS()
	} else {
		r.Start()
	}
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var alerts []struct {
		Labels map[string]string
		EndsAt time.Time
	}
	text, err := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Header.Get("Authorization") != r.want {
		r.wrong++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if err != nil || q.URL.Path != "/api/v2/alerts" || json.Unmarshal(text, &alerts) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, a := range alerts {
		r.states[a.Labels["alertname"]+" "+a.Labels["device"]] = a.EndsAt.After(time.Now())
	}
}

// texts returns the alerts that were received.
func (r *receiver) texts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, key := range slices.Sorted(maps.Keys(r.states)) {
		all = append(all, fmt.Sprintf("%s %v", key, r.states[key]))
	}
	return strings.Join(all, ", ")
}

// awaitAlerts waits until a server lists alerts, as "name device", in order.
func awaitAlerts(p *process, want ...string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%q are active", want), func() bool {
		_, text := fetch(p.t, http.MethodGet, p.url("/v1/alerts"), "")
		var body struct {
			Ready  bool
			Alerts []struct{ Name, Device string }
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			p.t.Fatalf("%v: %s", err, text)
		}
		var got []string
		for _, a := range body.Alerts {
			got = append(got, a.Name+" "+a.Device)
		}
		slices.Sort(got)
		return body.Ready && slices.Equal(got, want)
	})
}

// send stores a value that a device has measured now.
func send(p *process, device string, spo2 float64) {
	p.t.Helper()
	resp, text := fetch(p.t, http.MethodPost, p.url("/v1/readings"), fmt.Sprintf(`{"device":%q,"time":%d,"spo2_pct":%v}`,
		device, time.Now().UnixMilli(), spo2))
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%d %s", resp.StatusCode, text)
	}
}

// rule returns a rule in a file.
func rule(name string, below int) string {
	return fmt.Sprintf("[[alert]]\nname = %q\nsign = \"spo2_pct\"\nbelow = %d\n", name, below)
}

// The rules of a running server are those of the file: after a change, and after SIGHUP. A file that cannot
// be used leaves them in force; the log, a metric and the answer to SIGHUP say so. Alerts with the same
// labels stay active. Nothing is sent while the states are read.
func TestAlertsReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "alerts.toml")
	write := func(text string) { t.Helper(); certtest.Write(t, file, []byte(text)) }
	write(rule("Low", 90) + rule("Other", 90))
	am := receive(t, "", nil)
	p := start(t, program(t), filepath.Join(dir, "data"), "--admin-addr=127.0.0.1:0", "--alerts="+file,
		"--alertmanager="+am.URL)
	send(p, "a", 85.25)
	awaitAlerts(p, "Low a", "Other a")

	write(rule("Low", 89) + rule("New", 90))
	awaitAlerts(p, "Low a", "New a")
	p.await("the Alertmanager knows", func() bool { return am.texts() == "Low a true, New a true, Other a false" })

	write(rule("Low", 89) + "[[alert]]\nname = \"New\"\nsign = \"sp02_pct\"\nbelow = 1\n")
	p.await("the metric says that the file cannot be used",
		func() bool { return metric(t, p, "pulsegate_alert_rules_stale") == 1 })
	p.awaitLine(`alerts.toml:7: sign: \"sp02_pct\" is not a sign`, 1)
	p.awaitLine("the rules of alerts cannot be used; the previous ones stay in force", 1)
	p.signal(syscall.SIGHUP)
	p.awaitLine("reload failed in part", 1)
	send(p, "b", 85.25)
	awaitAlerts(p, "Low a", "Low b", "New a", "New b")
	if n := metric(t, p, "pulsegate_alert_rules"); n != 2 {
		t.Errorf("%d rules are in force", n)
	}

	write(rule("Low", 80)) // an alert with the labels of one that is active, which does not hold any more
	p.signal(syscall.SIGHUP)
	awaitAlerts(p)
	p.await("the Alertmanager knows that all have ended", func() bool { return !strings.Contains(am.texts(), "true") })
	if n := metric(t, p, "pulsegate_alert_rules_stale"); n != 0 {
		t.Errorf("stale is %d after a good file", n)
	}
	if text := p.stderr(); strings.Contains(text, "85.25") {
		t.Errorf("a measured value is in the log:\n%s", text)
	}
	p.stopCleanly()
}

// The alerts of erased readings end, whether a device or a subject is erased, and live streams see it.
func TestAlertsErased(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "alerts.toml")
	certtest.Write(t, file, []byte(rule("Low", 90)+"[[alert]]\nname = \"Silent\"\nsilent = \"1h\"\n"))
	am := receive(t, "", nil)
	p := start(t, program(t), filepath.Join(dir, "data"), "--admin-addr=127.0.0.1:0", "--alerts="+file,
		"--alertmanager="+am.URL)
	admin := func(path, body string) {
		t.Helper()
		if resp, text := fetch(t, http.MethodPost, "http://"+p.admin+path, body, "Content-Type",
			"application/json"); resp.StatusCode/100 != 2 {
			t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	resp, err := http.Get(p.url("/v1/live?device=a&device=b"))
	try(t, err)
	defer resp.Body.Close()
	admin("/admin/subject/assign", fmt.Sprintf(`{"device":"b","subject":"P-17","from":%q}`,
		time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)))
	for _, device := range []string{"a", "b", "c"} {
		send(p, device, 85.25)
	}
	awaitAlerts(p, "Low a", "Low b", "Low c")
	p.await("the Alertmanager knows", func() bool { return strings.Count(am.texts(), "true") == 3 })
	admin("/admin/erase", `{"device":"a"}`)
	awaitAlerts(p, "Low b", "Low c")
	admin("/admin/erase", `{"subject":"P-17"}`)
	awaitAlerts(p, "Low c")
	p.await("the Alertmanager knows", func() bool { return am.texts() == "Low a false, Low b false, Low c true" })
	var events []string
	for in := bufio.NewScanner(resp.Body); len(events) < 4 && in.Scan(); {
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok && strings.Contains(data, `"name"`) {
			var a struct{ Name, Device, Ended string }
			try(t, json.Unmarshal([]byte(data), &a))
			events = append(events, fmt.Sprint(a.Name, " ", a.Device, " ", a.Ended == ""))
		}
	}
	slices.Sort(events)
	if want := []string{"Low a false", "Low a true", "Low b false", "Low b true"}; !slices.Equal(events, want) {
		t.Errorf("the stream has %q, want %q", events, want)
	}
	if text := p.stderr(); strings.Contains(text, "P-17") || strings.Contains(text, "85.25") {
		t.Errorf("the log has a subject or a value:\n%s", text)
	}
}

// Several Alertmanagers get all alerts, with TLS and credentials from files. One that never answers delays
// neither the others nor readings, and readyz says that it is missing.
func TestAlertmanagers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := certtest.New("ca")
	certtest.Write(t, filepath.Join(dir, "ca.pem"), ca.PEM)
	certtest.Write(t, filepath.Join(dir, "alerts.toml"), []byte(rule("Low", 90)))
	certtest.Write(t, filepath.Join(dir, "password"), []byte("pulsegate:s3cret\n"))
	certtest.Write(t, filepath.Join(dir, "token"), []byte("s3cret\n"))
	for name, tt := range map[string]struct {
		header string
		file   string
	}{
		"basic authentication": {"Basic cHVsc2VnYXRlOnMzY3JldA==", "password"},
		"bearer token":         {"Bearer s3cret", "token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair, other := ca.Server(2), certtest.New("other").Server(3)
			first, second := receive(t, tt.header, &pair), receive(t, tt.header, &pair)
			stranger := receive(t, tt.header, &other)
			silent, err := net.Listen("tcp", "127.0.0.1:0") // connections wait in its backlog for ever
			try(t, err)
			defer silent.Close()
			args := []string{
				"--admin-addr=127.0.0.1:0", "--alerts=" + filepath.Join(dir, "alerts.toml"), "--alertmanager-ca=" +
					filepath.Join(dir, "ca.pem"),
				"--alertmanager-every=1s", "--alertmanager-credentials-file=" + filepath.Join(dir, tt.file),
			}
			for _, url := range []string{first.URL, "https://" + silent.Addr().String(), stranger.URL, second.URL} {
				args = append(args, "--alertmanager="+url)
			}
			p := start(t, program(t), filepath.Join(t.TempDir(), "data"), args...)
			send(p, "a", 85.25)
			for _, am := range []*receiver{first, second} {
				p.await("an Alertmanager knows", func() bool { return am.texts() == "Low a true" })
			}
			p.awaitLine("the Alertmanager does not accept alerts; active ones are sent again and again", 2)
			p.await("readyz is degraded", func() bool {
				resp, text := fetch(t, http.MethodGet, p.url("/readyz"), "")
				return resp.StatusCode == http.StatusOK && strings.Contains(text, `"degraded":["alertmanager"]`)
			})
			send(p, "a", 97.25)
			for _, am := range []*receiver{first, second} {
				p.await("an Alertmanager knows the end", func() bool { return am.texts() == "Low a false" })
				if am.wrong != 0 {
					t.Errorf("%d requests with wrong credentials", am.wrong)
				}
			}
			if stranger.texts() != "" {
				t.Errorf("an Alertmanager with another certificate got %s", stranger.texts())
			}
			_, page := fetch(t, http.MethodGet, "http://"+p.admin+"/metrics", "")
			for _, am := range []*receiver{first, stranger} {
				if fails := !strings.Contains(page, fmt.Sprintf("pulsegate_alertmanager_failing_since_seconds{url=%q} 0\n",
					am.URL)); fails != (am == stranger) {
					t.Errorf("by the metric, %s fails: %v", am.URL, fails)
				}
			}
			if text := p.stderr(); strings.Contains(text, "s3cret") || strings.Contains(text, "85.25") {
				t.Errorf("a secret or a measured value is in the log:\n%s", text)
			}
			p.stopCleanly()
		})
	}
}
