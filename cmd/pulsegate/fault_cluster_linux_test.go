package main_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
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
	clusterTime = flag.Duration("cluster.time", 0,
		"how long TestCluster injects faults; at least one of the first three")
	clusterFrozen = flag.Int("cluster.frozen", 0,
		"rounds of TestCluster in which the primary's machine is frozen together with etcd's leader, in place of "+
			"other faults")
	clusterPage = flag.String("cluster.page", "", "page into which TestCluster writes its figures")
)

// A clusterFault is what happens to a machine in TestCluster.
type clusterFault struct {
	name string
	do   func(r *clusterRun, primary, standby int)
}

// clusterFaults are the faults of TestCluster. A short run has one of the first three, at random. Each ends
// when readings are stored again and nothing is broken any more; a fault that takes the primary
// away ends after another one has stored readings, so that the old one comes back to a
// newer history.
var clusterFaults = []clusterFault{
	{"the primary's machine is killed", func(r *clusterRun, primary, _ int) {
		r.Kill(primary)
		r.awaitStored(primary)
		r.Boot(primary)
	}},
	{"the primary's machine is frozen, and thaws", func(r *clusterRun, primary, _ int) {
		r.Freeze(primary)
		r.awaitStored(primary)
		r.Thaw(primary)
	}},
	{"the primary is cut off from the other machines, but not from the servers", func(r *clusterRun, primary, _ int) {
		r.Cut(primary, pgtest.Control, pgtest.Data)
		r.awaitStored(primary)
		r.Mend(primary, pgtest.Control, pgtest.Data)
	}},
	{"the primary is cut off from everything", func(r *clusterRun, primary, _ int) {
		r.Unplug(primary)
		r.awaitStored(primary)
		r.Plug(primary)
	}},
	{"the primary is cut off from its standbys, but not from etcd", func(r *clusterRun, primary, _ int) {
		r.Cut(primary, pgtest.Data)
		time.Sleep(15 * time.Second) // longer than a server waits for a commit
		r.Mend(primary, pgtest.Data)
	}},
	{"a standby's machine is killed", func(r *clusterRun, _, standby int) {
		r.Kill(standby)
		r.awaitStored(-1)
		r.Boot(standby)
	}},
	{"both standbys' machines are killed", func(r *clusterRun, primary, _ int) {
		for i := range pgtest.Nodes {
			if i != primary {
				r.Kill(i)
			}
		}
		time.Sleep(15 * time.Second)
		for i := range pgtest.Nodes {
			if i != primary {
				r.Boot(i)
			}
		}
	}},
	{"a server is killed", func(r *clusterRun, _, _ int) {
		s := r.servers[r.rnd.IntN(len(r.servers))]
		s.server.kill()
		s.start()
	}},
}

// A clusterRun is a run of TestCluster.
type clusterRun struct {
	*testing.T
	*pgtest.Cluster
	servers []*harness
	rnd     *rand.Rand
	start   time.Time
	stalls  map[string][]time.Duration
	astray  int // times that a standby went astray

	mu      sync.Mutex    // guards the following fields
	answers int           // requests answered, as of the last look
	changed time.Time     // when answers has grown
	stall   time.Duration // the longest time without an answer since the fault
}

// TestCluster injects faults into a cluster of PostgreSQL with a primary and two standbys, run by
// Patroni, while three servers store the readings of one load each. At the end the store is
// compared with the ledgers.
//
// It takes a minute, most of which it waits.
//
// Seen to fail with synchronous_mode off in the cluster and --postgres-single: of 25,686
// acknowledged readings of one load, 2,054 were lost.
func TestCluster(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	if *clusterFrozen > 0 {
		freezeWithLeader(t)
		return
	}
	r := startCluster(t)
	found := r.during(func() {
		first := r.rnd.IntN(3)
		for n := 0; n == 0 || time.Since(r.start) < *clusterTime; n++ {
			if n < len(clusterFaults) {
				r.inject(clusterFaults[(first+n)%len(clusterFaults)])
			} else {
				r.inject(clusterFaults[r.rnd.IntN(len(clusterFaults))])
			}
		}
	})
	text := r.table(found)
	t.Log("\n" + text)
	updatePage(t, *clusterPage, "cluster", text)
}

// freezeWithLeader freezes the primary's machine together with etcd's leader, again and again. When it thaws, it mostly
// becomes the primary again, with an earlier state: see pgtest.Cluster.ThawAsPrimary. Servers, which seal all the time,
// must put back what that lacks, and lose nothing.
func freezeWithLeader(t *testing.T) {
	r := startCluster(t, "--seal-after=1ms")
	forgot, sealed := 0, 0
	found := r.during(func() {
		for range *clusterFrozen {
			if r.freeze() {
				forgot++
			}
		}
		for _, s := range r.servers {
			sealed += metric(t, s.server, "pulsegate_postgres_sealed_readings_total")
		}
	})
	text := fmt.Sprintf(
		"| | |\n|---|--:|\n| date | %s, %s, %s |\n| times that the machine was frozen | %d |\n| of those, the old primary "+
			"became the primary again, and was repaired | %d |\n"+
			"| nothing was stored meanwhile, because the standby that was left went astray | %d |\n| readings that servers "+
			"sealed meanwhile | %d |\n%s",
		time.Now().Format(time.DateOnly), runtime.Version(), pgtest.Version(), *clusterFrozen, forgot, r.astray, sealed,
		foundRows(found))
	t.Log("\n" + text)
	updatePage(t, *clusterPage, "cluster-frozen", text)
}

// freeze freezes the primary's machine until another one has stored readings, waits until readings are stored again,
// and reports whether servers have repaired the primary.
func (r *clusterRun) freeze() bool {
	primary := r.awaitPrimary()
	before := r.repairs()
	r.FreezeWithLeader(primary)
	r.awaitStored(primary)
	r.Logf("the old primary takes the lock again: %t", r.ThawAsPrimary(primary))
	r.AwaitWhole()
	r.awaitStored(-1)
	r.await("all servers are ready, and report no loss", func() bool {
		for _, s := range r.servers {
			if _, text := fetch(r, "GET", s.server.url("/readyz"), ""); text != `{"status":"ready"}`+"\n" {
				return false
			}
		}
		return true
	})
	repairs := r.repairs() - before
	r.Logf("%d servers have repaired the primary", repairs)
	return repairs > 0
}

// repairs returns how often servers have repaired the database.
func (r *clusterRun) repairs() (n int) {
	for _, s := range r.servers {
		n += strings.Count(s.server.stderr(), "the database is repaired")
	}
	return n
}

// startCluster starts a cluster, and three servers with a load each.
func startCluster(t *testing.T, args ...string) *clusterRun {
	r := &clusterRun{T: t, Cluster: pgtest.StartCluster(t, root+"/bin/tools"),
		rnd: rand.New(rand.NewPCG(rand.Uint64(), 0)), stalls: map[string][]time.Duration{}}
	for range 3 {
		s := newHarness(t, fastLane, append(slices.Clip(args), "--store="+r.DSN(), "--admin-addr=127.0.0.1:0")...)
		if len(args) > 0 {
			bin, err := altered()
			try(t, err)
			s.bin = bin
		}
		s.start()
		s.load("--users=20", "--rate=20", "--batch=10", "--devices=200", "--mix=real",
			"--share=batch=0.9,drop=0.05,forward=0.1,reorder=0.1",
			"--for=24h", "--patience=10m")
		r.servers = append(r.servers, s)
	}
	return r
}

// during calls inject, which injects faults, and then ends everything and compares the store with the ledgers.
func (r *clusterRun) during(inject func()) (found sim.Verification) {
	r.start, r.changed = time.Now(), time.Now()
	stop := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() { r.look(stop) })
	defer looking.Wait()
	defer close(stop)

	r.awaitStored(-1)
	inject()
	for _, s := range r.servers {
		for _, l := range s.loads {
			l.settle()
			v := l.verify()
			found.Acknowledged += v.Acknowledged
			found.Stored += v.Stored
			found.Unsettled += v.Unsettled
		}
	}
	for _, s := range r.servers {
		s.term()
	}
	if found.Acknowledged == 0 {
		r.Error("nothing was acknowledged")
	}
	return found
}

// inject injects a fault into the whole cluster, and waits until it is whole again.
func (r *clusterRun) inject(f clusterFault) {
	r.Helper()
	primary := r.awaitPrimary()
	r.mu.Lock()
	r.stall, r.changed = 0, time.Now()
	r.mu.Unlock()
	began := time.Now()
	f.do(r, primary, (primary+1+r.rnd.IntN(pgtest.Nodes-1))%pgtest.Nodes)
	r.AwaitWhole()
	r.awaitStored(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalls[f.name] = append(r.stalls[f.name], r.stall)
	r.Logf("%s: no request was acknowledged for up to %v; whole after %v", f.name, r.stall.Round(time.Second/10),
		time.Since(began).Round(time.Second/10))
}

// awaitPrimary waits until a machine is the primary, and returns it. On a busy machine, Patroni may not answer in time
// at first.
func (r *clusterRun) awaitPrimary() (primary int) {
	r.Helper()
	r.await("a machine is the primary", func() bool { primary = r.Primary(); return primary >= 0 })
	return primary
}

// awaitStored waits until further readings are stored, by another primary than lost. If that has no standby either,
// because the other one went astray, it is left to the return of lost.
func (r *clusterRun) awaitStored(lost int) {
	r.Helper()
	const enough = 100 // more than what may have been answered already
	if lost >= 0 {
		r.await("another machine is the primary", func() bool { p := r.Primary(); return p >= 0 && p != lost })
	}
	before, began, astray := r.acknowledged(), time.Now(), false
	r.await("readings are stored", func() bool {
		astray = lost >= 0 && time.Since(began) > time.Minute && r.Astray() >= 0
		return astray || r.acknowledged() >= before+enough
	})
	if astray {
		r.Log("the standby of the new primary went astray")
		r.astray++
	}
}

// await waits for what takes longer than polltest.Patience on a busy machine.
func (r *clusterRun) await(what string, holds func() bool) {
	r.Helper()
	for deadline := time.Now().Add(3 * polltest.Patience); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("not within %v: %s; the log of a server:\n%s", 3*polltest.Patience, what, r.servers[0].server.stderr())
		}
	}
}

func (r *clusterRun) acknowledged() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers
}

// look counts the answers in the ledgers until stop is closed.
func (r *clusterRun) look(stop <-chan struct{}) {
	var ledgers []*bufio.Reader
	for _, s := range r.servers {
		file, err := os.Open(s.loads[0].ledger)
		if err != nil {
			r.Error(err)
			return
		}
		defer file.Close()
		ledgers = append(ledgers, bufio.NewReader(file))
	}
	for {
		answers := 0
		for _, ledger := range ledgers {
			for line, err := ledger.ReadSlice('\n'); ; line, err = ledger.ReadSlice('\n') {
				// At the end of the file, a line may be cut: its rest does not begin with A.
				if bytes.HasPrefix(line, []byte("A ")) {
					answers++
				}
				if err != nil {
					break
				}
			}
		}
		r.mu.Lock()
		r.answers += answers
		if r.stall = max(r.stall, time.Since(r.changed)); answers > 0 {
			r.changed = time.Now()
		}
		r.mu.Unlock()
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// table returns the figures for bench/results/reliability.txt.
func (r *clusterRun) table(found sim.Verification) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | times | longest time without an answer, s: median | greatest |\n|---|--:|--:|--:|\n")
	for _, f := range clusterFaults {
		if all := slices.Sorted(slices.Values(r.stalls[f.name])); len(all) > 0 {
			fmt.Fprintf(&b, "| %s | %d | %.0f | %.0f |\n", f.name, len(all), all[len(all)/2].Seconds(),
				all[len(all)-1].Seconds())
		}
	}
	fmt.Fprintf(&b, "\n| | |\n|---|--:|\n| time | %.0f min, %s, %s, %d processors |\n%s",
		time.Since(r.start).Minutes(), time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(),
		foundRows(found))
	return b.String()
}

// foundRows returns the rows of a table about a verification.
func foundRows(found sim.Verification) string {
	return fmt.Sprintf(
		"| readings acknowledged | %d |\n| readings checked | %d |\n| readings without an answer, of which some are "+
			"stored | %d |\n"+
			"| acknowledged and lost | %d |\n| altered | %d |\n| doubled | %d |\n| never sent | %d |\n",
		found.Acknowledged, found.Stored, found.Unsettled, found.Missing, found.Altered, found.Doubled, found.Unknown)
}
