package main_test

import (
	"context"
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

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/pgtest"
)

var (
	forgetRounds = flag.Int("forget.rounds", 1, "rounds of each kind of TestForgetCampaign")
	forgetOnly   = flag.String("forget.kind", "restored", "the kinds that TestForgetCampaign plays, separated by commas: async, restored, equal, old")
	forgetSeed   = flag.Uint64("forget.seed", 0, "seed of TestForgetCampaign; 0: a random one, which is logged")
	forgetPage   = flag.String("forget.page", "", "page into which TestForgetCampaign writes its figures")
)

// A forgetKind is a way in which an earlier state of the database comes back. Before each step there is a primary with at
// least one standby in quorum.
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
		other := r.promoteOne()
		r.join(other, inQuorum(other))
	}, func(r *forgetRun) {
		r.start(r.earlier)
	}},
}

// TestForgetCampaign plays rounds in which the primary of PostgreSQL is replaced by an earlier state of it, while two servers
// store a load each. After each round the database is compared with what was acknowledged: readings by the ledgers of the loads,
// erasures and assignments one by one.
//
// Seen to fail with the mutant forget-marks.
func TestForgetCampaign(t *testing.T) {
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
			r := &forgetRun{pgLife: &pgLife{topology: topologies[0], rnd: rand.New(rand.NewPCG(seed, uint64(i)))}, kind: &forgetKinds[k]}
			done = append(done, r)
			t.Run(name, func(t *testing.T) { r.play(t, *forgetRounds) })
		}
	})
	if t.Failed() {
		return
	}
	text := forgetTable(done)
	t.Log("\n" + text)
	if *forgetPage != "" {
		if err := updatePage(*forgetPage, "forget", text); err != nil {
			t.Error(err)
		}
	}
}

// A forgetRun is a cluster of PostgreSQL with two servers.
type forgetRun struct {
	*pgLife
	kind    *forgetKind
	servers []*harness

	earlier  int            // the member with the earlier state
	backup   *pgtest.Server // that it will be, if it is not one yet
	timeline int64          // of the primary, when it was last noted

	rounds, erasures int
	noticed          map[*harness]int // lines of a server that it has found such a primary

	timeMs      int64               // of the last reading that is not of a load
	readings    map[string][]string // heart rates that devices must have, in the order of time, besides those of loads
	assignments map[string]string   // those that devices must have, as JSON
}

// play plays rounds.
func (r *forgetRun) play(t *testing.T, rounds int) {
	r.t, r.timeMs, r.readings, r.assignments, r.noticed = t, 1_700_000_000_000, map[string][]string{}, map[string]string{}, map[*harness]int{}
	t.Cleanup(func() {
		for i, m := range r.members {
			if t.Failed() && m != nil {
				t.Logf("PostgreSQL %d (the primary is %d):\n%s", i, r.primary, m.Log())
			}
		}
	})
	r.members[0] = pgtest.Start(t, r.settings()...)
	store := r.store()
	for range 2 {
		r.servers = append(r.servers, newHarness(t, fastLane, store, "--admin-addr=127.0.0.1:0", "--remember=0s"))
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
	for _, b := range r.servers {
		if b.server != nil && r.rnd.IntN(3) == 0 {
			b.server.kill()
			b.server = nil
		}
		if b.server == nil {
			b.start()
			r.noticed[b] = 0
		}
	}
	for _, b := range r.servers {
		b.load(fmt.Sprintf("--seed=%d", 1+r.rnd.IntN(1_000_000)), fmt.Sprintf("--users=%d", 1+r.rnd.IntN(20)), "--mix=real", "--share=malformed=0", "--rate=200", "--for=1h")
	}
	r.awaitMore()
	first := r.servers[r.rnd.IntN(2)]
	for _, name := range []string{"erased", "again"} {
		r.post(first, fmt.Sprintf("%s-%d", name, n), 61, 62, 63)
	}
	r.assign(first, fmt.Sprintf("worn-%d", n), "")

	r.kind.split(r)
	r.route()
	r.noteTimeline()
	r.awaitMore()
	for _, b := range r.servers {
		r.post(b, fmt.Sprintf("kept-%d", n), 64+r.rnd.IntN(100))
	}
	second := r.servers[r.rnd.IntN(2)]
	r.post(second, fmt.Sprintf("fresh-%d", n), 61)
	for _, name := range []string{"erased", "again", "fresh"} {
		r.erase(second, fmt.Sprintf("%s-%d", name, n))
	}
	r.post(second, fmt.Sprintf("again-%d", n), 64)
	r.assign(second, fmt.Sprintf("kept-%d", n), "")
	r.assign(second, fmt.Sprintf("worn-%d", n), "2026-02-01T00:00:00.000Z")
	r.awaitMore()

	for _, m := range r.members {
		if m != nil {
			m.Kill()
		}
	}
	right := r.primary
	r.kind.forget(r)
	other := 3 - right - r.earlier // the standby of the right one
	follower := r.members[r.primary].Standby(r.t, inQuorum(other), r.settings()...)
	r.route()
	r.mustRefuse()

	follower.Remove()
	r.members[r.earlier].Kill()
	r.start(right)
	r.members[other].Restart(r.t)
	r.awaitMore()
	for _, b := range r.servers {
		l := b.loads[len(b.loads)-1]
		b.awaitReady(200)
		l.settle()
		l.verify()
		r.check(b)
	}
	r.rounds++
	r.t.Logf("round %d took %v", n, time.Since(began).Round(time.Second/10))
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

// promoteOne kills the primary and the standby that has less of its log, promotes the other standby, and returns the one that was
// killed.
func (r *forgetRun) promoteOne() (other int) {
	r.members[r.primary].Kill()
	best, other := (r.primary+1)%slots, (r.primary+2)%slots
	if r.replayed(r.members[other]) > r.replayed(r.members[best]) {
		best, other = other, best
	}
	r.members[other].Kill()
	r.members[best].Promote(r.t)
	r.primary = best
	return other
}

// query asks the primary.
func (r *forgetRun) query(sql string, v any) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, r.members[r.primary].DSN())
	if err == nil {
		defer conn.Close(ctx)
		err = conn.QueryRow(ctx, sql).Scan(v)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// noteTimeline notes the timeline of the primary.
func (r *forgetRun) noteTimeline() {
	r.query("SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint", &r.timeline)
}

// awaitMore waits until the load of each server has got some answers more.
func (r *forgetRun) awaitMore() {
	r.t.Helper()
	for _, b := range r.servers {
		l := b.loads[len(b.loads)-1]
		l.awaitAcknowledged(l.acknowledged() + 20)
	}
}

// post stores readings of a device.
func (r *forgetRun) post(b *harness, device string, heartRates ...int) {
	r.t.Helper()
	for _, bpm := range heartRates {
		r.timeMs++
		body := fmt.Sprintf(`{"device":%q,"time":%d,"heart_rate_bpm":%d}`, device, r.timeMs, bpm)
		b.server.await("a reading is stored", func() bool {
			code, _, err := b.post(body, false)
			return err == nil && code == 200
		})
		r.readings[device] = append(r.readings[device], fmt.Sprint(bpm))
	}
}

// erase erases a device.
func (r *forgetRun) erase(b *harness, device string) {
	r.t.Helper()
	b.server.await("a device is erased", func() bool {
		_, errs, code := output(r.t, b.bin, "erase", "--target=http://"+b.server.admin, "--device="+device, "--yes")
		return code == 0 || strings.Contains(errs, "404") // an attempt without an answer may have erased it
	})
	r.readings[device] = nil
	r.erasures++
}

// assign assigns a device to a subject from a time on, or ends that.
func (r *forgetRun) assign(b *harness, device, end string) {
	r.t.Helper()
	const from = "2026-01-01T00:00:00.000Z"
	subject := "S-" + device
	line := []string{"subject", "assign", "--subject=" + subject}
	listed := fmt.Sprintf(`{"device":%q,"subject":%q,"from":%q}`, device, subject, from)
	if end != "" {
		line = []string{"subject", "end", "--to=" + end}
		listed = fmt.Sprintf(`{"device":%q,"subject":%q,"from":%q,"to":%q}`, device, subject, from, end)
	}
	line = append(line, "--target=http://"+b.server.admin, "--device="+device, "--from="+from)
	b.server.await("an assignment is stored", func() bool {
		_, _, code := output(r.t, b.bin, line...)
		return code == 0
	})
	r.assignments[device] = listed
}

var heartRate = regexp.MustCompile(`"heart_rate_bpm":(\d+)`)

// check compares what devices have, besides those of loads, with what was acknowledged.
func (r *forgetRun) check(b *harness) {
	r.t.Helper()
	for device, want := range r.readings {
		var got []string
		for _, line := range b.readings(device) {
			if m := heartRate.FindStringSubmatch(line); m != nil {
				got = append(got, m[1])
			}
		}
		if !slices.Equal(got, want) {
			r.t.Errorf("%s has readings with the heart rates %v, want %v", device, got, want)
		}
	}
	for device, want := range r.assignments {
		got, errs, _ := output(r.t, b.bin, "subject", "list", "--json", "--target=http://"+b.server.admin, "--device="+device)
		if strings.TrimSpace(got) != want {
			r.t.Errorf("%s has the assignments %s%s, want %s", device, got, errs, want)
		}
	}
}

// mustRefuse checks that the servers notice that the primary lacks what they have acknowledged, and neither write to it nor read
// from it.
func (r *forgetRun) mustRefuse() {
	r.t.Helper()
	const notice = "the database lacks what was acknowledged"
	for _, b := range r.servers {
		b.server.awaitLine(notice, 1+r.noticed[b])
		r.noticed[b] = strings.Count(b.server.stderr(), notice)
		b.awaitReady(503)
	}
	var asking sync.WaitGroup
	for _, b := range r.servers {
		asking.Go(func() {
			if code, text, err := b.post(fmt.Sprintf(`{"device":"refused","time":%d,"heart_rate_bpm":60}`, r.timeMs), false); err != nil || code < 500 {
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
}

// forgetTable returns the figures for docs/reliability.md.
func forgetTable(runs []*forgetRun) string {
	var b strings.Builder
	var found sim.Verification
	erasures := 0
	fmt.Fprintf(&b, "| an earlier state comes back | rounds |\n|---|--:|\n")
	for _, r := range runs {
		fmt.Fprintf(&b, "| %s | %d |\n", r.kind.what, r.rounds)
		found.Acknowledged += r.found.Acknowledged
		found.Stored += r.found.Stored
		found.Unsettled += r.found.Unsettled
		erasures += r.erasures
	}
	fmt.Fprintf(&b, "\n| | |\n|---|--:|\n| date | %s, %s, %s |\n| readings acknowledged | %d |\n| readings checked | %d |\n| readings without an answer, of which some are stored | %d |\n"+
		"| acknowledged and lost | %d |\n| altered | %d |\n| doubled | %d |\n| never sent | %d |\n| devices erased, of which none came back | %d |\n",
		time.Now().Format(time.DateOnly), runtime.Version(), pgtest.Version(), found.Acknowledged, found.Stored, found.Unsettled,
		found.Missing, found.Altered, found.Doubled, found.Unknown, erasures)
	return b.String()
}
