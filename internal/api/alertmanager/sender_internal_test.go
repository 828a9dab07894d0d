package alertmanager

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
	"github.com/pulsegate/pulsegate/vitals"
)

// A peer is an Alertmanager that keeps what it gets.
type peer struct {
	mu       sync.Mutex
	down     bool
	status   int
	requests []*http.Request
	bodies   []string
}

func (p *peer) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.requests, p.bodies = append(p.requests, r), append(p.bodies, string(body))
	status := p.status
	if status == 0 {
		status = 200
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"http://other/"}},
		Body: io.NopCloser(strings.NewReader("85.25")), Request: r}, nil
}

// taken returns the alerts of the requests since the call before, and the number of requests.
func (p *peer) taken(t *testing.T) (alerts []posted, n int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, body := range p.bodies {
		var some []posted
		if err := json.Unmarshal([]byte(body), &some); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		alerts = append(alerts, some...)
	}
	n, p.bodies = len(p.bodies), nil
	return alerts, n
}

func (p *peer) set(f func()) { p.mu.Lock(); f(); p.mu.Unlock() }

// A fixture is an engine with rules and a sender, in a bubble.
type fixture struct {
	rules  []alert.Rule
	engOpt alert.Options
	store  *storetest.Memory
	away   atomic.Bool // the store cannot be read
	engine *alert.Engine
	peer   *peer
	sender *Sender
	opt    Options
	log    []string
}

var lowRule = alert.Rule{
	Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, Values: 1,
	MaxAge: 10 * time.Minute,
	Labels: map[string]string{"severity": "page"}, Field: "spo2_pct", Condition: "spo2_pct flagged as low",
}

func newFixture(t *testing.T, opt Options) *fixture {
	f := &fixture{rules: []alert.Rule{lowRule}, store: storetest.NewMemory(), peer: &peer{}, opt: opt}
	if f.opt.URL == nil {
		f.opt.URL = &url.URL{Scheme: "http", Host: "alertmanager:9093", Path: "/x"}
	}
	f.opt.Page = "https://vitals.example/"
	f.opt.OnTrouble = func(_ *Sender, err error) { f.log = append(f.log, fmt.Sprint(err)) }
	return f
}

// A reader reads the store of a fixture.
type reader struct {
	*storetest.Memory
	f *fixture
}

func (r reader) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	if r.f.away.Load() {
		return errors.New("the store is away")
	}
	return r.Memory.WalkDevices(ctx, visit)
}

// start starts the engine and the sender, as a server does.
func (f *fixture) start(t *testing.T) (stop func()) {
	f.engine = alert.NewEngine(reader{f.store, f}, f.rules, f.engOpt)
	f.sender = New(f.engine, f.opt)
	f.sender.client.Transport = f.peer
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	tasks.Go(func() { f.engine.Run(ctx) })
	tasks.Go(func() { f.sender.Run(ctx) })
	return func() { cancel(); tasks.Wait() }
}

// store1 stores a value of a device, measured now.
func (f *fixture) store1(t *testing.T, device string, v vitals.Value) {
	t.Helper()
	f.storeAt(t, device, v, time.Now())
}

// storeAt stores a value of a device, by its clock.
func (f *fixture) storeAt(t *testing.T, device string, v vitals.Value, at time.Time) {
	t.Helper()
	name, err := vitals.ParseName(device)
	try(t, err)
	r := vitals.Reading{Device: name, TimeUnixMs: at.UnixMilli()}
	r.Values.Set(vitals.SpO2, v)
	group := []*storage.Entry{{Reading: &r, ReceivedUnixMs: time.Now().UnixMilli()}}
	try(t, f.store.Append(group))
	f.engine.Publish(group)
}

// texts returns alerts as device, start and whether they are active, in order.
func texts(alerts []posted) (all []string) {
	for _, a := range alerts {
		ends, err := time.Parse(time.RFC3339, a.EndsAt)
		if err != nil {
			panic(err)
		}
		state := "active"
		if !ends.After(time.Now()) {
			state = "ended"
		}
		all = append(all, a.Labels["device"]+" "+state)
	}
	return all
}

// pass lets time pass, and waits for what the sender does then.
func (f *fixture) pass(d time.Duration) {
	f.peer.set(func() {}) // what the test has read of the peer comes before what the sender does next
	time.Sleep(d)
	synctest.Wait()
}

// An alert has the label and the group that its device had when it was first sent, until it ends: a change of the file
// must not end an alert, which Alertmanager knows by its labels. One that begins after the change has the present ones,
// also while another alert of the device is active, or if Alertmanager gets its former end later, and the
// summaries have. Labels of a rule come first.
func TestPlaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices.toml")
	write := func(label string) {
		t.Helper()
		text := fmt.Appendf(nil, "[[device]]\ndevice = \"a1\"\nlabel = %q\ngroup = \"ward 3\"\n", label)
		try(t, os.WriteFile(path, text, 0o600))
	}
	write("Bed 12")
	limits := new(vitals.NewSigns().DefaultLimits())
	synctest.Test(t, func(t *testing.T) {
		book, err := roster.Open(path, limits, func(*roster.Roster, error) {})
		try(t, err)
		defer book.Close()
		f := newFixture(t, Options{Roster: book})
		other := lowRule
		other.Name, other.Labels, other.Met.Max = "Other", map[string]string{"group": "mine"}, 80_00
		f.rules = append(f.rules, other)
		stop := f.start(t)
		defer stop()
		sent := func(d time.Duration) (all []string) {
			f.pass(d)
			alerts, _ := f.peer.taken(t)
			for i, a := range alerts {
				all = append(all, strings.Join([]string{
					texts(alerts)[i], a.Labels["alertname"], a.Labels["device_label"], a.Labels["group"], a.Annotations.Summary,
				}, " "))
			}
			slices.Sort(all)
			return slices.Compact(all)
		}
		low := func(state, label, now string) string {
			return "a1 " + state + " Low " + label + " ward 3 " + now + " (a1): spo2_pct flagged as low"
		}
		others := func(state string) string {
			return "a1 " + state + " Other Bed 13 mine Bed 13 (a1): spo2_pct flagged as low"
		}
		check := func(when string, got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s %q, want %q", when, got, want)
			}
		}
		sent(2 * time.Second)
		f.store1(t, "a1", 85_25)
		check("at the beginning", sent(3*time.Second), low("active", "Bed 12", "Bed 12"))
		write("Bed 13")
		try(t, book.Reload())
		check("after a change", sent(2*time.Minute), low("active", "Bed 12", "Bed 13"))
		f.store1(t, "a1", 75_00)
		check("when another alert begins", sent(2*time.Minute), low("active", "Bed 12", "Bed 13"), others("active"))
		f.store1(t, "a1", 97_00)
		check("at the end", sent(3*time.Second), low("ended", "Bed 12", "Bed 13"), others("ended"))
		f.store1(t, "a1", 85_25)
		check("when it begins again", sent(3*time.Second), low("active", "Bed 13", "Bed 13"))

		// Alertmanager learns of an end and of the next beginning together.
		f.peer.set(func() { f.peer.down = true })
		write("Bed 14")
		try(t, book.Reload())
		f.pass(time.Second)
		f.store1(t, "a1", 97_00)
		f.pass(2 * time.Second)
		f.store1(t, "a1", 85_25)
		f.pass(2 * time.Minute)
		write("Bed 15") // what the request that failed had may have arrived
		try(t, book.Reload())
		f.peer.set(func() { f.peer.down = false })
		again := []string{low("active", "Bed 14", "Bed 15"), low("ended", "Bed 13", "Bed 15")}
		check("when it ended and began while Alertmanager was away", sent(time.Minute), again...)
		check("after that", sent(2*time.Minute), again[0])
	})
}

// An alert is sent at once and then every minute while it is active; its end is sent once.
func TestSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		stop := f.start(t)
		defer stop()
		f.pass(2 * time.Second)
		if alerts, n := f.peer.taken(t); n != 1 || len(alerts) != 0 {
			t.Errorf("at the start %v in %d requests, want an empty one", alerts, n)
		}
		since := time.Now().UTC()
		f.store1(t, "a1", 85_25)
		f.pass(3 * time.Second)
		alerts, _ := f.peer.taken(t)
		if got := texts(alerts); !slices.Equal(got, []string{"a1 active"}) {
			t.Fatalf("got %v", got)
		}
		until := time.Now().Add(5 * time.Minute)
		a := alerts[0]
		ends, err := time.Parse(time.RFC3339, a.EndsAt)
		want := posted{
			Labels:      map[string]string{"alertname": "Low", "device": "a1", "sign": "spo2_pct", "severity": "page"},
			Annotations: annotations{"a1: spo2_pct flagged as low", alert.Notice},
			StartsAt:    since.Format("2006-01-02T15:04:05.000Z"), EndsAt: a.EndsAt,
			Generator: "https://vitals.example/#device?" + url.Values{
				"device": {"a1"}, "from": {since.Add(-30 * time.Minute).Format(time.RFC3339)},
				"to": {since.Add(30 * time.Minute).Format(time.RFC3339)},
			}.Encode(),
		}
		if fmt.Sprint(a) != fmt.Sprint(want) || err != nil || ends.After(until) || ends.Before(until.Add(-3*time.Second)) {
			t.Errorf("got %+v\nwant %+v until %v", a, want, until)
		}
		if r := f.peer.requests[0]; r.Method != "POST" || r.URL.String() != "http://alertmanager:9093/x/api/v2/alerts" ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		f.pass(3 * time.Minute)
		alerts, n := f.peer.taken(t)
		if got := texts(alerts); n != 3 || !slices.Equal(got, []string{"a1 active", "a1 active", "a1 active"}) {
			t.Errorf("in three minutes, %d requests: %v", n, got)
		}
		f.store1(t, "a1", 97_00)
		f.pass(3 * time.Minute)
		alerts, _ = f.peer.taken(t)
		if got := texts(alerts); !slices.Equal(got, []string{"a1 ended"}) {
			t.Errorf("after its end, got %v", got)
		}
	})
}

// Rules that are changed while the store is away resolve nothing until it is known what holds; what is erased ends.
func TestRulesWhileAway(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, Options{})
			f.engOpt.Shared = shared
			stop := f.start(t)
			defer stop()
			f.store1(t, "a1", 85_25)
			f.store1(t, "a2", 85_25)
			f.pass(30 * time.Second)
			f.away.Store(true)
			try(t, f.engine.SetRules(append(slices.Clone(f.rules), alert.Rule{Name: "Silent", Silent: time.Hour})))
			f.pass(time.Second)
			f.peer.taken(t)
			f.pass(4 * time.Minute)
			if alerts, _ := f.peer.taken(t); len(alerts) < 6 ||
				slices.ContainsFunc(texts(alerts), func(text string) bool { return strings.Contains(text, "ended") }) {
				t.Errorf("shared is %v, while the store is away: %v", shared, texts(alerts))
			}
			a1, err := vitals.ParseName("a1")
			try(t, err)
			if _, err := f.store.Erase(a1); err != nil {
				t.Fatal(err)
			}
			f.engine.Erased(a1)
			f.pass(2 * time.Second)
			if alerts, _ := f.peer.taken(t); !slices.Equal(texts(alerts), []string{"a1 ended"}) {
				t.Errorf("shared is %v, after an erasure: %v", shared, texts(alerts))
			}
			f.away.Store(false)
			f.pass(2 * time.Minute)
			if alerts, _ := f.peer.taken(t); len(alerts) < 2 ||
				slices.ContainsFunc(texts(alerts), func(text string) bool { return text != "a2 active" }) {
				t.Errorf("shared is %v, at the end: %v", shared, texts(alerts))
			}
		})
	}
}

// After a restart, an active alert is sent as it was, and one that has ended is not sent.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		stop := f.start(t)
		f.store1(t, "a1", 85_25)
		f.store1(t, "a2", 85_25)
		f.pass(3 * time.Second)
		before, _ := f.peer.taken(t)
		f.store1(t, "a2", 97_00)
		stop()
		stop = f.start(t)
		defer stop()
		f.pass(3 * time.Second)
		after, _ := f.peer.taken(t)
		if got := texts(after); !slices.Equal(got, []string{"a1 active"}) {
			t.Fatalf("got %v", got)
		}
		i := slices.IndexFunc(before, func(a posted) bool { return a.Labels["device"] == "a1" })
		if before[i].EndsAt = after[0].EndsAt; fmt.Sprint(before[i]) != fmt.Sprint(after[0]) {
			t.Errorf("before %+v, after %+v", before[i], after[0])
		}
	})
}

// After a start, no alert about silence begins until a gateway had time to send again what it could not
// send. One that began before is sent soon enough, so that Alertmanager does not resolve it.
func TestRestartSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.rules = []alert.Rule{{Name: "Silent", Silent: 10 * time.Minute}}
		f.engOpt.Grace = time.Minute
		stop := f.start(t)
		f.store1(t, "gone", 97_00)
		f.pass(4 * time.Minute)
		f.store1(t, "a1", 97_00)
		f.store1(t, "a2", 97_00)
		f.pass(7 * time.Minute)
		before, _ := f.peer.taken(t)
		if got := texts(before); len(got) == 0 ||
			slices.ContainsFunc(got, func(text string) bool { return text != "gone active" }) {
			t.Fatalf("before the restart, got %v", got)
		}
		stop()
		f.pass(2*time.Minute + 50*time.Second) // a1 and a2 have been silent for less
		stop = f.start(t)
		defer stop()
		f.pass(30 * time.Second) // and now for longer
		f.store1(t, "a1", 97_00)
		f.pass(2 * time.Minute)
		after, _ := f.peer.taken(t)
		if got := texts(after); !slices.Equal(got[:2], []string{"a2 active", "gone active"}) &&
			!slices.Equal(got[:2], []string{"gone active", "a2 active"}) || slices.Contains(got, "a1 active") {
			t.Errorf("after the restart, got %v", got)
		}
		for _, a := range after {
			if a.Labels["device"] == "gone" && a.StartsAt != before[0].StartsAt {
				t.Errorf("it began %s, and after the restart %s", before[0].StartsAt, a.StartsAt)
			}
		}
		last := before[len(before)-1]
		ends, err := time.Parse(time.RFC3339, last.EndsAt)
		if sent, _ := time.Parse(time.RFC3339, after[0].EndsAt); err != nil || sent.Add(-5*time.Minute).After(ends) {
			t.Errorf("it ended %s, before it was sent again", last.EndsAt)
		}
	})
}

// A server does not raise again what another one with the same store has resolved, whenever that was.
func TestTwoServers(t *testing.T) {
	for offset := time.Duration(0); offset < time.Minute; offset += 500 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			a := newFixture(t, Options{})
			a.engOpt.Shared = true
			b := newFixture(t, Options{Every: 56 * time.Second}) // at some times after a sweep
			b.engOpt, b.store, b.peer = a.engOpt, a.store, a.peer
			stopA := a.start(t)
			defer stopA()
			a.store1(t, "a1", 85_25)
			stopB := b.start(t)
			defer stopB()
			a.pass(2*time.Minute + offset)
			before, _ := a.peer.taken(t)
			if got := texts(before); len(got) < 4 || slices.Contains(got, "a1 ended") {
				t.Fatalf("got %v", got)
			}
			a.store1(t, "a1", 97_00)
			a.pass(2 * time.Minute)
			after, _ := a.peer.taken(t)
			got := texts(after)
			ended := slices.Index(got, "a1 ended")
			if ended < 0 || slices.Contains(got[ended:], "a1 active") {
				t.Errorf("after %v: %v", offset, got)
			}
		})
	}
}

// What begins and ends within the second for which changes are gathered is sent in this order, so that
// Alertmanager knows that it has ended.
func TestShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		stop := f.start(t)
		defer stop()
		f.pass(2 * time.Second)
		f.peer.taken(t)
		f.store1(t, "a1", 85_25)
		f.pass(300 * time.Millisecond)
		f.store1(t, "a1", 97_00)
		f.pass(3 * time.Second)
		alerts, _ := f.peer.taken(t)
		if len(alerts) != 2 || alerts[0].EndsAt <= alerts[1].EndsAt || alerts[0].StartsAt != alerts[1].StartsAt ||
			texts(alerts)[1] != "a1 ended" {
			t.Errorf("got %+v", alerts)
		}
	})
}

// An alert of a device whose clock is ahead is valid for Alertmanager, and has ended when it ends.
func TestClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		stop := f.start(t)
		defer stop()
		f.storeAt(t, "a1", 85_25, time.Now().Add(4*time.Minute))
		f.pass(3 * time.Second)
		f.storeAt(t, "a1", 97_00, time.Now().Add(4*time.Minute))
		f.pass(3 * time.Second)
		alerts, _ := f.peer.taken(t)
		if got := texts(alerts); !slices.Equal(got, []string{"a1 active", "a1 ended"}) {
			t.Errorf("got %v", got)
		}
		for _, a := range alerts {
			if a.StartsAt > a.EndsAt {
				t.Errorf("it ends %s, before it starts %s", a.EndsAt, a.StartsAt)
			}
		}
	})
}

// While an Alertmanager is away for an hour, nothing is lost of what is active, and the end of what was
// reported is reported. What it gets afterwards is bounded, although more alerts have begun and ended.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		stop := f.start(t)
		defer stop()
		f.store1(t, "a1", 85_25)
		f.store1(t, "a2", 85_25)
		f.pass(3 * time.Second)
		f.peer.taken(t)
		f.peer.set(func() { f.peer.down = true })
		away := time.Now()
		for i := range 60 {
			f.store1(t, fmt.Sprint("b", i), 85_25)
			if i == 50 {
				f.store1(t, "a2", 97_00)
			}
			for j := range 300 {
				f.store1(t, fmt.Sprint("flaps", j), []vitals.Value{85_25, 97_00}[i%2])
			}
			f.pass(time.Minute)
		}
		since, cause := f.sender.Failing()
		if cause == nil || since.Sub(away) > 3*time.Second || Senders([]*Sender{f.sender}).Check(t.Context()) == nil {
			t.Errorf("failing since %v: %v", since, cause)
		}
		f.peer.set(func() { f.peer.down, f.peer.status = false, 500 })
		f.pass(time.Minute)
		f.peer.taken(t)
		f.peer.set(func() { f.peer.status = 0 })
		f.pass(time.Minute)
		alerts, _ := f.peer.taken(t)
		got := map[string]bool{}
		for _, text := range texts(alerts) {
			if !strings.HasPrefix(text, "flaps") {
				got[text] = true
			} else if strings.HasSuffix(text, "active") {
				t.Errorf("%s is sent, though it has ended", text)
			}
		}
		if len(alerts) < 1000 || len(alerts) > 1<<14+100 {
			t.Errorf("%d alerts are sent", len(alerts))
		}
		if len(got) != 62 || !got["a1 active"] || !got["a2 ended"] || !got["b0 active"] || !got["b59 active"] {
			t.Errorf("%d: %v", len(got), got)
		}
		if _, cause := f.sender.Failing(); cause != nil ||
			!slices.Equal(f.log, []string{"dial tcp: connection refused", "<nil>"}) {
			t.Errorf("%v, reported %q", cause, f.log)
		}
	})
}

// A redirect is not followed: it could lead anywhere, with the credentials. Files of credentials may
// change. Neither they nor the answer are in an error.
func TestCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write := func(name, text string) string {
			path := filepath.Join(dir, name)
			try(t, os.WriteFile(path, []byte(text), 0o600))
			return path
		}
		credentials := write("credentials", "pulsegate:secret-1\n")
		f := newFixture(t, Options{CredentialsFile: credentials, Every: time.Second})
		stop := f.start(t)
		defer stop()
		f.pass(2 * time.Second)
		if user, got, ok := f.peer.requests[0].BasicAuth(); !ok || user != "pulsegate" || got != "secret-1" {
			t.Errorf("got %q %q", user, got)
		}
		write("credentials", "pulsegate:secret-2")
		f.pass(2 * time.Second)
		if _, got, _ := f.peer.requests[len(f.peer.requests)-1].BasicAuth(); got != "secret-2" {
			t.Errorf("after a change got %q", got)
		}
		f.peer.set(func() { f.peer.status = 307 })
		f.pass(2 * time.Second)
		if _, cause := f.sender.Failing(); cause == nil || cause.Error() != "it answers with status 307" {
			t.Errorf("got %v", cause)
		}
		write("credentials", "pulsegate:secret\n-3")
		f.pass(time.Minute)
		if _, cause := f.sender.Failing(); cause == nil || cause.Error() != credentials+": not a line of text" {
			t.Errorf("got %v", cause)
		}
		for _, r := range f.peer.requests {
			if r.URL.Host != "alertmanager:9093" {
				t.Errorf("a request to %s", r.URL)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		token := filepath.Join(t.TempDir(), "token")
		try(t, os.WriteFile(token, []byte("abc"), 0o600))
		f := newFixture(t, Options{CredentialsFile: token})
		stop := f.start(t)
		defer stop()
		f.pass(2 * time.Second)
		if got := f.peer.requests[0].Header.Get("Authorization"); got != "Bearer abc" {
			t.Errorf("got %q", got)
		}
	})
}

// Requests are bounded, and all alerts are sent.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.rules[0].Labels = map[string]string{"note": strings.Repeat("x", 256)}
		stop := f.start(t)
		defer func() { stop() }()
		const n = 2500
		for i := range n {
			f.store1(t, fmt.Sprint("a", i), 85_25)
		}
		f.pass(3 * time.Second)
		for _, body := range f.peer.bodies {
			if len(body) > maxBatchBytes {
				t.Errorf("a request of %d bytes", len(body))
			}
		}
		alerts, requests := f.peer.taken(t)
		if len(alerts) != n || requests < 5 || requests > 8 {
			t.Errorf("%d alerts in %d requests", len(alerts), requests)
		}
		stop()
		stop = f.start(t)
		f.pass(3 * time.Second)
		if alerts, _ := f.peer.taken(t); len(alerts) != n {
			t.Errorf("%d alerts after a restart", len(alerts))
		}
	})
}

// Neither a measured value nor a subject is in what is sent, reported or counted, though an Alertmanager
// fails and answers with a value.
func TestPrivate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		stop := f.start(t)
		defer stop()
		f.pass(2 * time.Second)
		device, err := vitals.ParseName("a1")
		try(t, err)
		f.store1(t, "a1", 85_25)
		try(t, f.store.Assign(t.Context(), storage.Assignment{Device: device, Subject: "P-17", FromUnixMs: 1,
			ToUnixMs: storage.OpenEnd}))
		f.pass(2 * time.Minute)
		f.peer.set(func() { f.peer.status = 500 })
		f.store1(t, "a1", 97_25)
		f.pass(3 * time.Second)
		failing := Senders{f.sender}.Check(t.Context())
		if failing == nil {
			t.Error("a failure is not noticed")
		}
		metrics := prometheus.NewPedanticRegistry()
		metrics.MustRegister(Senders{f.sender}, alert.Collector{Engine: f.engine, File: &filewatch.Follower{}})
		families, err := metrics.Gather()
		if err != nil || len(families) < 8 {
			t.Errorf("%d metrics, error %v", len(families), err)
		}
		f.peer.set(func() { f.peer.status = 0 })
		f.pass(time.Minute)
		if len(f.peer.bodies) < 5 || len(f.log) != 2 {
			t.Errorf("%d requests, reported %q", len(f.peer.bodies), f.log)
		}
		text := fmt.Sprint(f.peer.bodies, f.log, failing, families)
		for _, r := range f.peer.requests {
			text += fmt.Sprint("\n", r.Method, r.URL, r.Header)
		}
		if !strings.Contains(text, `"device":"a1"`) {
			t.Error("no alert is sent")
		}
		for _, private := range []string{"85.25", "85,25", "8525", "97.25", "97,25", "9725", "P-17"} {
			if strings.Contains(text, private) {
				t.Errorf("%s is in %s", private, text)
			}
		}
	})
}

// What is not an answer of HTTP may repeat what was sent, the token included: no error has it.
func TestEcho(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	try(t, os.WriteFile(token, []byte("s3cret"), 0o600))
	for _, before := range []string{"", "HTTP/1.1 200 OK\r\n"} { // the line is that of a status, or of a header
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		try(t, err)
		defer listener.Close()
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			for in := bufio.NewScanner(conn); in.Scan(); {
				if _, credentials, ok := strings.Cut(in.Text(), "Authorization: "); ok {
					_, _ = conn.Write([]byte(before + credentials + "\r\n\r\n")) // the sender may have gone
					return
				}
			}
		}()
		s := New(nil, Options{URL: &url.URL{Scheme: "http", Host: listener.Addr().String()}, CredentialsFile: token})
		err = s.send(t.Context(), nil)
		s.client.CloseIdleConnections()
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("after %q, the error is %v", before, err)
		}
	}
}

var try = polltest.Try
