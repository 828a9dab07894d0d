package main_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

var (
	alertRounds   = flag.Int("alerts.rounds", 4, "rounds of TestAlertCampaign")
	alertSeed     = flag.Uint64("alerts.seed", 0, "seed of TestAlertCampaign; 0: a random one, which is logged")
	alertPage     = flag.String("alerts.page", "", "page into which TestAlertCampaign writes its figures")
	alertPrograms = flag.String("alerts.programs", "",
		"directory with alertmanager and amtool; without it, TestAlertCampaign imitates Alertmanager")
)

// The faults of the campaign with alerts.
const (
	faultServerTerm   crashFault = "SIGTERM to the server"
	faultServerPause  crashFault = "SIGSTOP and SIGCONT of the server"
	faultServerTwice  crashFault = "kill -9 of the server, and again while it starts"
	faultAllServers   crashFault = "kill -9 of all servers"
	faultManager      crashFault = "kill -9 of Alertmanager"
	faultManagerTerm  crashFault = "SIGTERM to Alertmanager"
	faultManagerPause crashFault = "SIGSTOP and SIGCONT of Alertmanager"
	faultEither       crashFault = "kill -9 of the servers and Alertmanager"
)

var alertFaults = []crashFault{
	faultNode, faultServerTerm, faultServerPause, faultServerTwice, faultAllServers, faultManager, faultManagerTerm,
	faultManagerPause, faultEither, faultPrimary,
}

// alertRules are the rules of the campaign. No condition depends on how fast the test is.
const alertRules = `
[[alert]]
name = "Low"
sign = "spo2_pct"
below = 90
devices = "low-"

[[alert]]
name = "Fast"
sign = "heart_rate_bpm"
flag = "high"
for = "2m"
values = 3
devices = "fast-"
labels = { severity = "page" }

[[alert]]
name = "Cold"
sign = "skin_c"
below = 30
max_age = "3h"
devices = "own-"

[[alert]]
name = "Silent"
silent = "10h"
devices = "silent-"
`

// alertSigns has the sign of the rule Cold.
const alertSigns = `
[[sign]]
field = "skin_c"
label = "Skin temperature"
unit = "Cel"
accepted = { min = 0, max = 50 }
decimals = 1
`

// An alertCampaign adds up the results of its lives.
type alertCampaign struct {
	seed uint64 // of the first life

	mu         sync.Mutex // guards the following fields
	faults     map[crashFault]int
	lives      map[string]int // by store
	rounds     int
	conditions map[string]int // by rule
	others     int            // devices that never had a condition
	pages      int            // notifications
	repeated   int            // notifications of an active alert after the first, because Alertmanager was restarted
	starts     int            // of servers and Alertmanagers
}

// TestAlertCampaign plays rounds in which readings raise and clear conditions, while servers, PostgreSQL
// and Alertmanager are killed, stopped and paused at random moments. Each condition is notified; no
// restart makes an alert begin or end; and nothing is notified of one that has ended, for which all
// servers are started again. Half of the lives have two servers on one PostgreSQL. SEED=<seed of the life> make alerts
// begins with that life.
//
// make alerts runs it with Alertmanager; make test with an imitation.
//
// Seen to fail with the mutant resolve-alerts-at-stop.
func TestAlertCampaign(t *testing.T) {
	skipIfShort(t)
	pgtest.Need(t)
	t.Parallel()
	seed := *alertSeed
	if seed == 0 {
		seed = 2 + uint64(rand.Uint32())/2*2 // its lowest bit is the store
	}
	t.Logf("SEED=%d ROUNDS=%d", seed, *alertRounds)
	c := &alertCampaign{seed: seed, faults: map[crashFault]int{}, lives: map[string]int{}, conditions: map[string]int{}}
	start := time.Now()
	t.Run("lives", func(t *testing.T) {
		seeds := rand.New(rand.NewPCG(seed, 0))
		for left := *alertRounds; left > 0; {
			l := &alertLife{c: c, rnd: rand.New(rand.NewPCG(seed, 1)), pager: &pager{}}
			rounds := min(2+l.rnd.IntN(3), (*alertRounds+1)/2, left)
			left -= rounds
			shared := seed%2 == 1
			t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) {
				t.Parallel()
				l.t = t
				l.play(shared, rounds)
			})
			seed = uint64(seeds.Uint32())/2*2 + (seed+1)%2
		}
	})
	t.Logf("%s\nin %v", c.table(), time.Since(start).Round(time.Second))
	if t.Failed() {
		return
	}
	if c.rounds != *alertRounds {
		t.Errorf("%d rounds were played, want %d", c.rounds, *alertRounds)
	}
	updatePage(t, *alertPage, "alerts", c.table())
}

// table returns the figures as a table for bench/results/reliability.txt.
func (c *alertCampaign) table() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	b.WriteString("| fault | times |\n|---|--:|\n")
	for _, f := range alertFaults {
		fmt.Fprintf(&b, "| %s | %d |\n", f, c.faults[f])
	}
	manager := "an imitation"
	if *alertPrograms != "" {
		text, _ := exec.Command(filepath.Join(*alertPrograms, "alertmanager"), "--version").CombinedOutput() // it has run
		manager, _, _ = strings.Cut(string(text), " (")
	}
	fmt.Fprintf(&b,
		"\n| | |\n|---|--:|\n| date | %s, %s |\n| command | `make alerts ROUNDS=%d SEED=%d` |\n| Alertmanager | %s |\n| "+
			"rounds | %d |\n| lives with the embedded store | %d |\n| lives with two servers on PostgreSQL | %d |\n| servers "+
			"and Alertmanagers started | %d |\n",
		time.Now().Format(time.DateOnly), runtime.Version(), c.rounds, c.seed, manager, c.rounds, c.lives["embedded"],
		c.lives["PostgreSQL"], c.starts)
	total := 0
	for _, rule := range []string{"Low", "Fast", "Cold", "Silent"} {
		fmt.Fprintf(&b, "| conditions of the rule %s | %d |\n", rule, c.conditions[rule])
		total += c.conditions[rule]
	}
	fmt.Fprintf(&b,
		"| **conditions notified** | **%d of %d** |\n| notified again, by an Alertmanager that was restarted | %d |\n| "+
			"notifications | %d |\n| devices without a condition | %d |\n"+
			"| begun or ended by a restart | 0 |\n| notified after the end | 0 |\n", total, total, c.repeated, c.pages, c.others)
	return b.String()
}

// A page is what is delivered to a person about an alert.
type page struct {
	device, rule string
	firing       bool
	startsAt     time.Time
}

// A pager keeps the pages that were delivered.
type pager struct {
	mu    sync.Mutex
	pages []page // guarded by mu
}

func (p *pager) deliver(one page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pages = append(p.pages, one)
}

// now returns the number of pages so far.
func (p *pager) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pages)
}

// of returns the pages about a device that came from one moment to another.
func (p *pager) of(device string, from, to int) (some []page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.pages[from:min(to, len(p.pages))] {
		if one.device == device {
			some = append(some, one)
		}
	}
	return some
}

// ServeHTTP takes the notifications of Alertmanager's webhook.
func (p *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Alerts []struct {
			Status   string
			Labels   map[string]string
			StartsAt time.Time
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, a := range body.Alerts {
		p.deliver(page{a.Labels["device"], a.Labels["alertname"], a.Status == "firing", a.StartsAt})
	}
}

// An alertReceiver is an Alertmanager, or an imitation, that pages.
type alertReceiver interface {
	url() string
	start(t *testing.T)
	end(t *testing.T, sig syscall.Signal) // SIGKILL or SIGTERM
	pause(d time.Duration)
}

// A condition is of a device that has one for a time.
type condition struct {
	device, rule string
	raise        []string // bodies of readings
	since        int64    // the time at which it begins; 0 means that it never does
	clear        string   // how it ends
	hold         time.Duration

	raised, cleared, quiet int   // numbers of pages, at these moments
	managers               int64 // restarts of Alertmanager before raised
	sameManager            bool  // it was not restarted until cleared
}

// An alertLife is a store, its servers, an Alertmanager, and their history.
type alertLife struct {
	c       *alertCampaign
	t       *testing.T
	rnd     *rand.Rand
	pager   *pager
	manager alertReceiver
	every   time.Duration  // between the notifications of a group
	db      *pgtest.Server // nil means the embedded store
	nodes   []*alertNode
	devices int
	all     []*condition

	restarts atomic.Int64 // of Alertmanager, begun
}

// An alertNode is one server after another.
type alertNode struct {
	dir  string
	args []string
	now  atomic.Pointer[process] // nil while it is down
}

// play plays rounds, and one more without faults, after which all that was sent has arrived.
func (l *alertLife) play(shared bool, rounds int) {
	l.begin(shared)
	for range rounds {
		l.round(3+l.rnd.IntN(4), 1+l.rnd.IntN(4))
		if l.t.Failed() {
			break
		}
		l.c.mu.Lock()
		l.c.rounds++
		l.c.mu.Unlock()
	}
	if !l.t.Failed() {
		l.round(1, 0)
		l.verify()
	}
	if l.t.Failed() {
		l.t.Logf("pages: %+v", l.pager.pages)
		for _, n := range l.nodes {
			if p := n.now.Load(); p != nil {
				l.t.Logf("the log of a server:\n%s", p.stderr())
			}
		}
	}
}

// begin starts all parts.
func (l *alertLife) begin(shared bool) {
	rules := filepath.Join(l.t.TempDir(), "alerts.toml")
	certtest.Write(l.t, rules, []byte(alertRules))
	signs := filepath.Join(l.t.TempDir(), "signs.toml")
	certtest.Write(l.t, signs, []byte(alertSigns))
	l.every = 300 * time.Millisecond
	switch {
	case *alertPrograms == "":
		l.manager = &imitation{addr: porttest.Addr(l.t), every: l.every, pager: l.pager}
	default:
		if l.every = time.Second; shared {
			// A server that does not know yet that an alert has ended sends it again: for 10 s, and longer while
			// PostgreSQL is down.
			l.every = 20 * time.Second
		}
		l.manager = newAlertmanager(l.t, l.pager, l.every)
	}
	l.startManager()
	args := []string{"--admin-addr=127.0.0.1:0", "--signs=" + signs, "--alerts=" + rules,
		"--alertmanager=" + l.manager.url(), "--alertmanager-every=1s"}
	store, nodes := "embedded", 1
	if shared {
		store, nodes = "PostgreSQL", 2
		l.db = pgtest.Start(l.t)
		args = append(args, "--store="+l.db.DSN(), "--postgres-single")
	}
	for range nodes {
		n := &alertNode{dir: filepath.Join(l.t.TempDir(), "data"), args: args}
		l.nodes = append(l.nodes, n)
		l.startNode(n)
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.lives[store]++
}

func (l *alertLife) started() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.starts++
}

func (l *alertLife) startNode(n *alertNode) {
	l.t.Helper()
	n.now.Store(start(l.t, program(l.t), n.dir, n.args...))
	l.started()
}

func (l *alertLife) startManager() {
	l.t.Helper()
	l.manager.start(l.t)
	l.started()
}

// endNode ends a server, if it runs.
func (l *alertLife) endNode(n *alertNode, sig syscall.Signal) {
	p := n.now.Swap(nil)
	switch {
	case p == nil:
	case sig == syscall.SIGKILL:
		p.kill()
	default:
		p.stopCleanly()
	}
}

// round plays a round: conditions that begin and end, faults meanwhile, and then a restart of all
// servers, which have nothing to report.
func (l *alertLife) round(conditions, faults int) {
	first := len(l.all)
	for range conditions {
		l.all = append(l.all, l.draw())
	}
	now := l.all[first:]
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for _, c := range now {
		tasks.Go(func() { l.live(c) })
	}
	for range faults {
		time.Sleep(l.upTo(1500 * time.Millisecond)) // the moment of the fault
		l.strike()
	}
	tasks.Wait()
	if l.t.Failed() {
		return
	}
	managers := l.restarts.Load()
	l.await("no server and no Alertmanager has active alerts", func() bool { return l.knowsNone() })
	for _, c := range now {
		if c.since != 0 && c.managers == managers && len(l.pager.of(c.device, c.raised, c.cleared)) > 0 {
			l.await("the end is notified", func() bool {
				return slices.ContainsFunc(l.pager.of(c.device, c.cleared, l.pager.now()), func(p page) bool { return !p.firing })
			})
		}
	}
	for _, n := range l.nodes {
		l.endNode(n, []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[l.rnd.IntN(2)])
	}
	time.Sleep(l.every) // what is delivered until now was on its way
	l.await("Alertmanager has no active alerts", func() bool { return l.managerKnowsNone() })
	if l.rnd.IntN(2) == 0 {
		l.restartManager(syscall.SIGKILL, 0)
	}
	for _, c := range now {
		c.quiet = l.pager.now()
	}
	for _, n := range l.nodes {
		l.startNode(n)
	}
}

// upTo returns a random duration.
func (l *alertLife) upTo(d time.Duration) time.Duration { return time.Duration(l.rnd.Int64N(int64(d))) }

// await waits until something holds, or the test fails.
func (l *alertLife) await(what string, holds func() bool) {
	l.t.Helper()
	if !l.t.Failed() && !polltest.Within(polltest.Patience, holds) {
		l.t.Errorf("not within %v: %s", polltest.Patience, what)
	}
}

// draw returns the condition of a new device.
func (l *alertLife) draw() *condition {
	l.devices++
	now := time.Now()
	at := func(age time.Duration) int64 { return now.Add(-age).UnixMilli() }
	c := &condition{hold: l.upTo(2 * time.Second)}
	reading := func(sign string, value int, age time.Duration) {
		c.raise = append(c.raise, fmt.Sprintf(`{"device":"%s","time":%d,"%s":%d}`, c.device, at(age), sign, value))
	}
	anyOf := func(texts ...string) string { return texts[l.rnd.IntN(len(texts))] }
	switch c.rule = anyOf("Low", "Fast", "Cold", "Silent", "none"); c.rule {
	case "Low":
		c.device = fmt.Sprint("low-", l.devices)
		reading("spo2_pct", 85, 0)
		c.since, c.clear = at(0), anyOf("newer", "newer", "erase")
	case "Fast":
		c.device = fmt.Sprint("fast-", l.devices)
		for _, age := range l.rnd.Perm(3) {
			reading("heart_rate_bpm", 180, time.Duration(age)*90*time.Second)
		}
		c.since, c.clear = at(0), anyOf("newer", "late", "erase")
	case "Cold": // of an age that is below max_age, but not below its default
		c.device = fmt.Sprint("own-", l.devices)
		reading("skin_c", 29, 2*time.Hour)
		c.since, c.clear = at(2*time.Hour), anyOf("newer", "newer", "erase")
	case "Silent":
		c.device = fmt.Sprint("silent-", l.devices)
		reading("spo2_pct", 97, 11*time.Hour)
		c.since, c.clear = at(time.Hour), anyOf("newer", "newer", "erase")
	case "none": // values that are late, too few, or usual
		c.device = anyOf("low-", "fast-", "own-", "silent-") + fmt.Sprint(l.devices)
		reading("skin_c", 29, 4*time.Hour)
		reading("heart_rate_bpm", 180, 3*time.Minute)
		reading("spo2_pct", 85, time.Hour)
		reading("spo2_pct", 97, 0)
	}
	return c
}

// live raises a condition, waits until it is notified, and clears it. It runs beside faults.
func (l *alertLife) live(c *condition) {
	c.raised, c.managers = l.pager.now(), l.restarts.Load()
	for _, body := range c.raise {
		l.send(func(p *process) string { return p.url("/v1/readings") }, body)
	}
	if c.since == 0 {
		return
	}
	l.await(c.rule+" of "+c.device+" is notified",
		func() bool { return len(l.pager.of(c.device, c.raised, l.pager.now())) > 0 })
	time.Sleep(c.hold)
	l.await(c.rule+" of "+c.device+" is known to Alertmanager, also after its restart", func() bool {
		active, _ := l.managerKnows()
		return slices.Contains(active, c.device)
	})
	c.cleared = l.pager.now()
	c.sameManager = c.managers == l.restarts.Load()
	switch c.clear {
	case "erase":
		l.send(func(p *process) string { return "http://" + p.admin + "/admin/erase" },
			fmt.Sprintf(`{"device":"%s"}`, c.device))
	default:
		ms := time.Now().UnixMilli()
		if c.clear == "late" { // it divides the run
			ms = c.since - 30_000
		}
		l.send(func(p *process) string { return p.url("/v1/readings") },
			fmt.Sprintf(`{"device":"%s","time":%d,"spo2_pct":97,"heart_rate_bpm":70,"skin_c":33}`, c.device, ms))
	}
}

// send sends a body to any of the servers until it is accepted, as a gateway does.
func (l *alertLife) send(url func(*process) string, body string) {
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	last := "nothing"
	if !polltest.Within(polltest.Patience, func() bool {
		p := l.nodes[rand.IntN(len(l.nodes))].now.Load()
		if p == nil {
			return false
		}
		resp, err := client.Post(url(p), "application/json", strings.NewReader(body))
		if err != nil {
			last = err.Error()
			return false
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body) // the status decides
		last = fmt.Sprint(resp.StatusCode, " ", string(text))
		return resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotFound // erased by an attempt without an answer
	}) {
		l.t.Errorf("%s is not accepted: %s", body, last)
	}
}

// knowsNone reports whether nobody has active alerts.
func (l *alertLife) knowsNone() bool {
	for _, n := range l.nodes {
		text, err := askOnce(http.DefaultClient, http.MethodGet, n.now.Load().url("/v1/alerts"), "")
		var body struct {
			Ready  bool
			Alerts []any
		}
		if err != nil || json.Unmarshal([]byte(text), &body) != nil || !body.Ready || len(body.Alerts) > 0 {
			return false
		}
	}
	return l.managerKnowsNone()
}

func (l *alertLife) managerKnowsNone() bool {
	active, ok := l.managerKnows()
	return ok && len(active) == 0
}

// managerKnows returns the devices with alerts that are active in Alertmanager, unless that is down.
func (l *alertLife) managerKnows() (devices []string, ok bool) {
	text, err := askOnce(http.DefaultClient, http.MethodGet, l.manager.url()+"/api/v2/alerts", "")
	var alerts []struct{ Labels map[string]string }
	if err != nil || json.Unmarshal([]byte(text), &alerts) != nil {
		return nil, false
	}
	for _, a := range alerts {
		devices = append(devices, a.Labels["device"])
	}
	return devices, true
}

// strike applies a random fault. All parts run when it returns.
func (l *alertLife) strike() {
	faults := alertFaults
	if l.db == nil {
		faults = faults[:len(faults)-1]
	}
	fault := faults[l.rnd.IntN(len(faults))]
	n, pause := l.nodes[l.rnd.IntN(len(l.nodes))], l.upTo(2*time.Second)
	restart := func(sig syscall.Signal, some ...*alertNode) {
		for _, n := range some {
			l.endNode(n, sig)
		}
		time.Sleep(pause)
		for _, n := range some {
			l.startNode(n)
		}
	}
	switch fault {
	case faultNode:
		restart(syscall.SIGKILL, n)
	case faultServerTerm:
		restart(syscall.SIGTERM, n)
	case faultAllServers:
		restart(syscall.SIGKILL, l.nodes...)
	case faultServerPause:
		n.now.Load().signal(syscall.SIGSTOP)
		time.Sleep(pause)
		n.now.Load().signal(syscall.SIGCONT)
	case faultServerTwice:
		l.endNode(n, syscall.SIGKILL)
		l.killStarting(n, pause/4)
		l.startNode(n)
	case faultManager:
		l.restartManager(syscall.SIGKILL, pause)
	case faultManagerTerm:
		l.restartManager(syscall.SIGTERM, pause)
	case faultManagerPause:
		l.manager.pause(pause)
	case faultEither:
		for _, n := range l.nodes {
			l.endNode(n, syscall.SIGKILL)
		}
		l.restartManager(syscall.SIGKILL, pause)
		restart(syscall.SIGKILL, l.nodes...)
	case faultPrimary:
		l.db.Kill()
		time.Sleep(pause)
		l.db.Restart(l.t)
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.faults[fault]++
}

func (l *alertLife) restartManager(sig syscall.Signal, pause time.Duration) {
	l.restarts.Add(1)
	l.manager.end(l.t, sig)
	time.Sleep(pause)
	l.startManager()
}

// killStarting starts a server and kills it after a time, in which it may have become ready.
func (l *alertLife) killStarting(n *alertNode, after time.Duration) {
	ctx, cancel := context.WithTimeout(l.t.Context(), after)
	defer cancel()
	_ = serveCommand(ctx, program(l.t), n.dir, n.args...).Run() // it is killed
	l.started()
}

// verify compares the pages with the conditions.
func (l *alertLife) verify() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	end := l.pager.now()
	l.c.pages += end
	for _, c := range l.all {
		if c.since == 0 {
			l.c.others++
			if got := l.pager.of(c.device, 0, end); len(got) > 0 {
				l.t.Errorf("%s never has a condition: %+v", c.device, got)
			}
			continue
		}
		l.c.conditions[c.rule]++
		active := l.pager.of(c.device, c.raised, c.cleared)
		for _, p := range active {
			switch {
			case !p.firing:
				l.t.Errorf("%s of %s has not ended, and its end is notified", c.rule, c.device)
			case p.rule != c.rule || p.startsAt.UnixMilli() != c.since:
				l.t.Errorf("%s of %s since %v: notified %s since %v", c.rule, c.device, time.UnixMilli(c.since), p.rule, p.startsAt)
			}
		}
		if l.c.repeated += len(active) - 1; c.sameManager && len(active) != 1 {
			l.t.Errorf("%s of %s is notified %d times by one Alertmanager", c.rule, c.device, len(active))
		}
		ended := false
		for _, p := range l.pager.of(c.device, c.cleared, end) {
			if ended = ended || !p.firing; p.firing && ended && (l.db == nil || *alertPrograms != "") {
				l.t.Errorf("%s of %s is notified after its end was", c.rule, c.device)
			}
		}
		for _, p := range l.pager.of(c.device, c.quiet, end) {
			if p.firing {
				l.t.Errorf("%s of %s is notified after it has ended", c.rule, c.device)
			}
		}
	}
}
