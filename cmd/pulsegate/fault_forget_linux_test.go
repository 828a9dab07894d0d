package main_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

var (
	forgetRounds = flag.Int("forget.rounds", 1, "rounds of each kind of TestForgetCampaign and TestRepairCampaign")
	forgetOnly   = flag.String("forget.kind", "restored",
		"the kinds that they play, separated by commas: async, restored, equal, old, thawed")
	forgetSeed = flag.Uint64("forget.seed", 0, "their seed; 0: a random one, which is logged")
	forgetPage = flag.String("forget.page", "", "page into which they write their figures")
)

// A forgetKind is a way in which an earlier state of the database comes back. Before each step there is a primary with
// at least one standby in quorum.
type forgetKind struct {
	name, what string

	// split keeps an earlier state. What is acknowledged from then on is not in it.
	split func(r *forgetRun)

	// forget makes it the state of the primary, after all others were killed.
	forget func(r *forgetRun)
}

var forgetKinds = []forgetKind{
	{"async", "an asynchronous standby is promoted", func(r *forgetRun) {
		r.earlier = (r.primary + 1) % slots
		r.join(r.earlier, "async")
		r.members[r.earlier].Kill()
	}, func(r *forgetRun) {
		r.start(r.earlier).Promote(r.t)
	}},
	{"restored", "a base backup is restored", func(r *forgetRun) {
		r.backup = r.members[r.primary].Backup(r.t, r.settings()...)
	}, func(r *forgetRun) {
		r.earlier = (r.primary + 1) % slots
		r.members[r.earlier].Remove()
		r.members[r.earlier] = r.backup
		r.start(r.earlier)
	}},
	{"equal", "both standbys are promoted, one after the other, and have the same timeline number", func(r *forgetRun) {
		old := r.primary
		r.members[old].Kill()
		r.earlier = r.promoteOne()
		r.join(old, inQuorum(old))
	}, func(r *forgetRun) {
		timeline := r.timeline
		r.start(r.earlier).Promote(r.t)
		if r.noteTimeline(); r.timeline != timeline {
			r.t.Errorf("the timelines are %d and %d, want equal ones", timeline, r.timeline)
		}
	}},
	{"old", "an old primary is started again after a promotion", func(r *forgetRun) {
		r.earlier = r.primary
		r.members[r.primary].Kill()
		other := r.promoteOne()
		r.join(other, inQuorum(other))
	}, func(r *forgetRun) {
		r.start(r.earlier)
	}},
	{"thawed", "the machine of the primary freezes, and continues after a promotion", func(r *forgetRun) {
		r.earlier = r.primary
		r.thaw = r.members[r.primary].Freeze(r.t)
		other := r.promoteOne()
		r.join(other, inQuorum(other))
	}, func(r *forgetRun) {
		r.thaw()
		r.thaw = nil
		r.primary = r.earlier
	}},
}

// TestForgetCampaign plays rounds in which the primary of PostgreSQL is replaced by an earlier state of it, while two
// servers without a memory store a load each. They must refuse it. After each round the database is compared with what
// was acknowledged: readings by the ledgers of the loads, erasures and assignments one by one.
//
// Seen to fail with the mutant forget-marks.
func TestForgetCampaign(t *testing.T) {
	playForgetting(t, "forget", func(r *forgetRun) { r.args = []string{"--remember=0s"} })
}

// playForgetting plays the rounds of a campaign, and writes its figures.
func playForgetting(t *testing.T, marker string, prepare func(r *forgetRun)) {
	skipIfShort(t)
	pgtest.Need(t)
	t.Parallel()
	seed := *forgetSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("SEED=%d N=%d", seed, *forgetRounds)
	var done []*forgetRun
	t.Run("kinds", func(t *testing.T) {
		for i, name := range strings.Split(*forgetOnly, ",") {
			k := slices.IndexFunc(forgetKinds, func(k forgetKind) bool { return k.name == name })
			if k < 0 {
				t.Fatalf("there is no kind %q", name)
			}
			r := &forgetRun{pgLife: &pgLife{topology: topologies[0], rnd: rand.New(rand.NewPCG(seed, uint64(i)))},
				kind: &forgetKinds[k]}
			prepare(r)
			done = append(done, r)
			t.Run(name, func(t *testing.T) { r.play(t, *forgetRounds) })
		}
	})
	if t.Failed() {
		return
	}
	text := forgetTable(done)
	t.Log("\n" + text)
	updatePage(t, *forgetPage, marker, text)
}

// A forgetRun is a cluster of PostgreSQL with two servers.
type forgetRun struct {
	*pgLife
	kind     *forgetKind
	args     []string // of the servers
	remember bool     // the servers remember what they have acknowledged, and repair the primary
	servers  []*harness

	earlier  int            // the member with the earlier state
	backup   *pgtest.Server // that it will be, if it is not one yet
	thaw     func()         // ends that it is frozen; nil means it is not
	timeline int64          // of the primary, when it was last noted

	dirs    map[*harness]string // --remember-dir of servers
	lasting bool                // servers have them in this round

	rounds, erasures, repairs, kills, changes, restarts int
	// lines of a server that it has found such a primary, or repaired it
	noticed map[*harness]int

	killed *harness // the server that will be killed during the repair; nil means none is
	all    bool     // all servers are killed before the repair, with what they have acknowledged in their directories only
	begun  []*load  // the loads of this round

	timeMs int64 // of the last reading that is not of a load
	// heart rates, and oxygen saturations, that devices must have in the order of time, besides those of loads
	readings    map[string][]string
	times       map[string][]int64 // of readings
	assignments map[string]string  // those that devices must have, as JSON
}

// settings are those of every member of the cluster. No machine loses its power here, so nothing is synced, which takes
// long when a server starts.
func (r *forgetRun) settings() []string { return append(r.pgLife.settings(), "fsync=off") }

// play plays rounds.
func (r *forgetRun) play(t *testing.T, rounds int) {
	r.t, r.timeMs, r.readings, r.times, r.assignments, r.noticed = t, 1_700_000_000_000, map[string][]string{},
		map[string][]int64{}, map[string]string{}, map[*harness]int{}
	t.Cleanup(func() {
		for i, m := range r.members {
			if t.Failed() && m != nil {
				t.Logf("PostgreSQL %d (the primary is %d):\n%s", i, r.primary, m.Log())
			}
		}
	})
	r.members[0] = pgtest.Start(t, r.settings()...)
	store := r.store()
	r.args = append([]string{store, "--admin-addr=127.0.0.1:0"}, r.args...)
	r.dirs = map[*harness]string{}
	for range 2 {
		b := r.harness(r.args)
		r.servers, r.dirs[b] = append(r.servers, b), t.TempDir()
	}
	for n := range rounds {
		r.round(n)
	}
	for _, b := range r.servers {
		for _, l := range b.loads {
			v := l.verify()
			r.found.Acknowledged += v.Acknowledged
			r.found.Stored += v.Stored
			r.found.Unsettled += v.Unsettled
		}
		r.check(b)
		b.term()
	}
}

// round plays one round.
func (r *forgetRun) round(n int) {
	began := time.Now()
	r.joinAll()
	r.begun, r.killed, r.all = nil, nil, false
	lasting, sealing := r.remember && r.rnd.IntN(2) == 0, r.remember && n%2 == 0
	other := lasting != r.lasting || sealing != r.sealing
	r.lasting, r.sealing = lasting, sealing
	for _, b := range r.servers {
		if b.server != nil && (other || r.rnd.IntN(3) == 0) {
			b.server.kill()
			b.server = nil
		}
		if b.server == nil {
			if b.args = slices.Clip(r.args); lasting {
				b.args = append(b.args, "--remember-dir="+r.dirs[b])
			}
			after := "--seal-after=0s"
			if sealing {
				after = "--seal-after=1ms"
			}
			b.args = append(b.args, after)
			b.start()
			r.noticed[b] = 0
		}
		r.load(b)
	}
	r.awaitMore()
	switch {
	case r.lasting && r.rnd.IntN(2) == 0:
		r.all = true
	case r.remember && r.rnd.IntN(2) == 0:
		r.killed = r.any()
		if !r.lasting {
			r.silence(r.killed)
		}
	}
	name := func(what string) string { return fmt.Sprintf("%s-%d", what, n) }
	for _, what := range []string{"erased", "again", "left"} {
		r.post(r.any(), name(what), 61, 62, 63)
	}
	for _, what := range []string{"worn", "left"} {
		r.assign(r.any(), name(what), "")
	}
	sure := r.rnd.IntN(3) > 0
	if sure { // what is erased was received long before
		r.age(name("erased"), name("again"), name("left"))
		r.replicate()
	}
	if sealing {
		polltest.Until(r.t, "what will be erased is in segments", func() bool {
			var n int
			r.query("SELECT count(DISTINCT device) FROM pulsegate.segments WHERE device IN ('"+name("erased")+"', '"+name(
				"again")+"', '"+name("left")+"')", &n)
			return n == 3
		})
	}

	r.kind.split(r)
	r.route()
	r.noteTimeline()
	r.awaitMore()
	kept := name("kept")
	for _, b := range r.storing() {
		r.post(b, kept, 64+r.rnd.IntN(100), 64+r.rnd.IntN(100))
	}
	r.complete(r.any(), kept, len(r.readings[kept])-1)
	r.post(r.any(), name("fresh"), 61)
	for _, what := range []string{"erased", "again", "fresh"} {
		r.erase(r.any(), name(what))
	}
	r.eraseSubject(r.any(), name("left"))
	r.post(r.any(), name("again"), 64)
	r.complete(r.any(), name("again"), 0)
	r.assign(r.any(), kept, "")
	r.assign(r.any(), name("worn"), "2026-02-01T00:00:00.000Z")
	for _, b := range r.storing() { // each knows the erasures before it answers
		r.post(b, name("known"), 61)
	}
	r.awaitMore()
	r.complete(r.any(), kept, 0) // it is in a segment by now, where servers seal

	if r.all {
		for _, b := range r.servers {
			r.noteRepairs(b)
			b.server.kill()
		}
	}
	for i, m := range r.members {
		if m != nil && (r.thaw == nil || i != r.earlier) {
			m.Kill()
		}
	}
	right := r.primary
	r.kind.forget(r)
	if r.remember {
		r.mustRepair(right, sure)
	} else {
		r.mustRefuse(right)
	}
	r.awaitMore()
	for _, b := range r.servers {
		b.awaitReady(200)
	}
	for _, l := range r.begun {
		l.settle()
		l.verify()
	}
	for _, b := range r.servers {
		r.check(b)
	}
	if r.sealing {
		r.noteSealed(1)
	}
	r.rounds++
	r.t.Logf("round %d took %v", n, time.Since(began).Round(time.Second/10))
}

// load begins a load on a server.
func (r *forgetRun) load(b *harness) {
	r.begun = append(r.begun, b.load(fmt.Sprintf("--seed=%d", 1+r.rnd.IntN(1_000_000)),
		fmt.Sprintf("--users=%d", 1+r.rnd.IntN(20)),
		"--mix=real", "--share=malformed=0", "--rate=100", "--for=1h"))
}

// storing returns the servers that store something.
func (r *forgetRun) storing() []*harness {
	return slices.DeleteFunc(slices.Clone(r.servers), func(b *harness) bool { return b.loads[len(b.loads)-1].cut })
}

// any returns one of them.
func (r *forgetRun) any() *harness {
	all := r.storing()
	return all[r.rnd.IntN(len(all))]
}

// inQuorum returns the name of a member for synchronous_standby_names.
func inQuorum(member int) string { return fmt.Sprintf("m%d", member) }

// join creates a standby in the place of a member.
func (r *forgetRun) join(i int, name string) {
	if r.members[i] != nil {
		r.members[i].Remove()
	}
	r.members[i] = r.members[r.primary].Standby(r.t, name, r.settings()...)
	r.route()
}

// joinAll creates standbys in the place of all members but the primary.
func (r *forgetRun) joinAll() {
	for n := 1; n < slots; n++ {
		i := (r.primary + n) % slots
		r.join(i, inQuorum(i))
	}
}

// start starts a member that was killed, which becomes the primary.
func (r *forgetRun) start(i int) *pgtest.Server {
	r.members[i].Restart(r.t)
	r.primary = i
	return r.members[i]
}

// promoteOne kills the standby that has less of the log of the primary, which is down, promotes the other standby, and
// returns the one that was killed.
func (r *forgetRun) promoteOne() (other int) {
	best, other := (r.primary+1)%slots, (r.primary+2)%slots
	if r.received(other) > r.received(best) {
		best, other = other, best
	}
	r.members[other].Kill()
	r.members[best].Promote(r.t)
	r.primary = best
	return other
}

// received returns how much of the log a standby has.
func (r *forgetRun) received(i int) (at int64) {
	r.ask(i, "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::bigint", &at)
	return at
}

// noteTimeline notes the timeline of the primary.
func (r *forgetRun) noteTimeline() {
	r.query("SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint", &r.timeline)
}

// awaitMore waits until the load of each server that stores something has got some answers more.
func (r *forgetRun) awaitMore() {
	r.t.Helper()
	for _, b := range r.storing() {
		l := b.loads[len(b.loads)-1]
		l.awaitAcknowledged(l.acknowledged() + 20)
	}
}

// post stores readings of a device.
func (r *forgetRun) post(b *harness, device string, heartRates ...int) {
	r.t.Helper()
	for _, bpm := range heartRates {
		r.timeMs++
		r.send(b, device, r.timeMs, fmt.Sprintf(`"heart_rate_bpm":%d`, bpm))
		r.readings[device] = append(r.readings[device], fmt.Sprint(bpm))
		r.times[device] = append(r.times[device], r.timeMs)
	}
}

// complete stores a reading again, as a duplicate, and one that completes it.
func (r *forgetRun) complete(b *harness, device string, i int) {
	r.t.Helper()
	reading, timeMs := &r.readings[device][i], r.times[device][i]
	r.send(r.any(), device, timeMs, `"heart_rate_bpm":`+*reading)
	r.send(b, device, timeMs, `"spo2_pct":97`)
	*reading += "/97"
}

// send sends signs that a device has measured until they are acknowledged.
func (r *forgetRun) send(b *harness, device string, timeMs int64, signs string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"device":%q,"time":%d,%s}`, device, timeMs, signs)
	b.server.await("a reading is stored", func() bool {
		code, text, err := b.post(body, false)
		if code == 409 {
			r.t.Fatalf("%s is answered %s", body, text)
		}
		return err == nil && code == 200
	})
}

// erase erases a device.
func (r *forgetRun) erase(b *harness, device string) {
	r.t.Helper()
	r.remove(b, device, "--device="+device)
}

// eraseSubject erases what the subject of a device has measured, and that it was assigned to it.
func (r *forgetRun) eraseSubject(b *harness, device string) {
	r.t.Helper()
	r.remove(b, device, "--subject=S-"+device)
	r.assignments[device] = ""
}

// remove erases all readings of a device.
func (r *forgetRun) remove(b *harness, device, what string) {
	r.t.Helper()
	b.server.await("a device is erased", func() bool {
		_, errs, code := output(r.t, b.bin, "erase", "--target=http://"+b.server.admin, what, "--yes")
		return code == 0 || strings.Contains(errs, "404") // an attempt without an answer may have erased it
	})
	r.readings[device], r.times[device] = nil, nil
	r.erasures++
}

// assign assigns a device to a subject from a time on, or ends that.
func (r *forgetRun) assign(b *harness, device, end string) {
	r.t.Helper()
	const from = "2023-01-01T00:00:00.000Z" // before all readings
	subject := "S-" + device
	line := []string{"subject", "assign", "--subject=" + subject}
	listed := fmt.Sprintf(`{"device":%q,"subject":%q,"from":%q,"by":"hand"}`, device, subject, from)
	if end != "" {
		line = []string{"subject", "end", "--to=" + end}
		listed = fmt.Sprintf(`{"device":%q,"subject":%q,"from":%q,"to":%q,"by":"hand"}`, device, subject, from, end)
	}
	line = append(line, "--target=http://"+b.server.admin, "--device="+device, "--from="+from)
	b.server.await("an assignment is stored", func() bool {
		_, _, code := output(r.t, b.bin, line...)
		return code == 0
	})
	r.assignments[device] = listed
}

var (
	heartRate  = regexp.MustCompile(`"heart_rate_bpm":(\d+)`)
	saturation = regexp.MustCompile(`"spo2_pct":(\d+)`)
)

// check compares what devices have, besides those of loads, with what was acknowledged.
func (r *forgetRun) check(b *harness) {
	r.t.Helper()
	for device, want := range r.readings {
		var got []string
		for _, line := range b.readings(device) {
			if m := heartRate.FindStringSubmatch(line); m != nil {
				got = append(got, m[1])
			}
			if m := saturation.FindStringSubmatch(line); m != nil {
				got[len(got)-1] += "/" + m[1]
			}
		}
		if !slices.Equal(got, want) {
			r.t.Errorf("%s has readings with the heart rates and saturations %v, want %v", device, got, want)
		}
	}
	out, errs, _ := output(r.t, b.bin, "subject", "list", "--json", "--target=http://"+b.server.admin)
	var want []string
	for _, listed := range r.assignments {
		if listed != "" {
			want = append(want, listed)
		}
	}
	got := slices.Sorted(strings.Lines(out))
	slices.Sort(want)
	if text := strings.Join(want, "\n") + "\n"; strings.Join(got, "") != text {
		r.t.Errorf("the assignments are\n%s%s, want\n%s", out, errs, text)
	}
}

// mustRefuse checks that the servers notice that the primary lacks what they have acknowledged, and neither write to it
// nor read from it. Then the right one comes back.
func (r *forgetRun) mustRefuse(right int) {
	r.t.Helper()
	other := 3 - right - r.earlier // the standby of the right one
	follower := r.members[r.primary].Standby(r.t, inQuorum(other), r.settings()...)
	r.route()
	const notice = "the database lacks what was acknowledged"
	for _, b := range r.servers {
		b.server.awaitLine(notice, 1+r.noticed[b])
		r.noticed[b] = strings.Count(b.server.stderr(), notice)
		b.awaitReady(503)
	}
	var asking sync.WaitGroup
	for _, b := range r.servers {
		asking.Go(func() {
			if code, text, err := b.post(fmt.Sprintf(`{"device":"refused","time":%d,"heart_rate_bpm":60}`, r.timeMs),
				false); err != nil || code < 500 {
				r.t.Errorf("a reading is answered %d %s, %v; want 500 or 503", code, text, err)
			}
		})
		if resp, text := fetch(r.t, "GET", b.server.url("/v1/devices/refused/readings"), ""); resp.StatusCode < 500 {
			r.t.Errorf("a query is answered %d %s, want 500 or 503", resp.StatusCode, text)
		}
	}
	asking.Wait()
	var n int
	if r.query("SELECT count(*) FROM pulsegate.readings WHERE device = 'refused'", &n); n != 0 {
		r.t.Errorf("the primary has %d readings that were refused", n)
	}
	follower.Remove()
	r.members[r.earlier].Kill()
	r.start(right)
	r.members[other].Restart(r.t)
}

// forgetTable returns the figures for bench/results/reliability.txt.
func forgetTable(runs []*forgetRun) string {
	var b strings.Builder
	var found sim.Verification
	var erasures, repairs, kills, changes, restarts int
	var sealed []int
	fmt.Fprintf(&b, "| an earlier state comes back | rounds |\n|---|--:|\n")
	for _, r := range runs {
		fmt.Fprintf(&b, "| %s | %d |\n", r.kind.what, r.rounds)
		found.Acknowledged += r.found.Acknowledged
		found.Stored += r.found.Stored
		found.Unsettled += r.found.Unsettled
		erasures, repairs, kills, changes, restarts = erasures+r.erasures, repairs+r.repairs, kills+r.kills,
			changes+r.changes, restarts+r.restarts
		sealed = append(sealed, r.sealed...)
	}
	fmt.Fprintf(&b, "\n| | |\n|---|--:|\n| date | %s, %s, %s |\n%s| erasures, of which none came back | %d |\n",
		time.Now().Format(time.DateOnly), runtime.Version(), pgtest.Version(), foundRows(found), erasures)
	if repairs > 0 {
		fmt.Fprintf(&b, "| repairs | %d |\n| servers killed meanwhile | %d |\n| primaries replaced meanwhile | %d |\n"+
			"| rounds in which all servers were killed before the repair | %d |\n", repairs, kills, changes, restarts)
	}
	b.WriteString(sealedRows(sealed))
	return b.String()
}
