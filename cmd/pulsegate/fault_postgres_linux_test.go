package main_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

var (
	postgresRounds = flag.Int("postgres.rounds", 1, "rounds of TestPostgresCampaign")
	postgresSeed   = flag.Uint64("postgres.seed", 0, "seed of TestPostgresCampaign; 0: a random one, which is logged")
	postgresPage   = flag.String("postgres.page", "", "page into which TestPostgresCampaign writes its figures")
)

// The faults of the campaign over PostgreSQL.
const (
	faultNode      crashFault = "kill -9 of the server"
	faultPrimary   crashFault = "kill -9 of PostgreSQL, or its immediate shutdown"
	faultBoth      crashFault = "kill -9 of the server and PostgreSQL"
	faultCut       crashFault = "connections cut in answers of PostgreSQL"
	faultCancel    crashFault = "storm of pg_cancel_backend"
	faultTerminate crashFault = "storm of pg_terminate_backend"
	faultFull      crashFault = "PostgreSQL's disk is full"
	faultLogFull   crashFault = "PostgreSQL's disk is full, and it cannot write its log and ends"
	faultPromote   crashFault = "kill -9 of PostgreSQL, a standby is promoted"
	faultFrozen    crashFault = "the server is stopped while it seals, another one seals, then it continues"
	faultAlone     crashFault = "all standbys killed, storms, the server killed, then PostgreSQL; a standby is promoted"
)

// A topology is a kind of cluster and the faults that it may have.
type topology struct {
	name     string
	standbys int
	small    bool // on a file system that can be filled
	powered  bool // on a disk whose power can be cut
	faults   []crashFault
}

var anyFaults = []crashFault{faultNode, faultPrimary, faultBoth, faultCut, faultCancel, faultTerminate, faultFrozen}

var topologies = []topology{
	{"two standbys, ANY 1", 2, false, false, append(slices.Clone(anyFaults), faultPromote, faultAlone)},
	{"one server", 0, true, false, append(slices.Clone(anyFaults), faultFull, faultLogFull)},
	{"one standby", 1, false, false, append(slices.Clone(anyFaults), faultPromote, faultAlone)},
	{"one server, whose power fails", 0, false, true, []crashFault{faultPower, faultPower, faultPower, faultBoth}},
}

// A postgresCampaign adds up the results of its clusters.
type postgresCampaign struct {
	cut atomic.Int64 // bytes after which the next connection is cut

	mu       sync.Mutex // guards the following fields
	faults   map[crashFault]int
	clusters map[string]int // by topology
	rounds   int
	starts   int // servers started
	jumping  int // of rounds, with a clock that jumps
	sealed   []int
	cuts     int
	cutAt    map[int64]bool // bytes after which a connection was cut
	found    sim.Verification
}

func newPostgresCampaign() *postgresCampaign {
	return &postgresCampaign{faults: map[crashFault]int{}, clusters: map[string]int{}, cutAt: map[int64]bool{}}
}

// TestPostgresCampaign plays rounds of a load, a fault at a random moment, and a comparison of what
// PostgreSQL has with the ledger. In half of the rounds the server's clock jumps at each reading of
// it, and in half of them it seals all the time. Each cluster of PostgreSQL has a seed, which is logged; SEED=<seed>
// make crash-postgres begins with it. After a promotion only the promoted standby has the readings.
//
// Seen to fail with the mutants plain-postgres and cancel-commits.
func TestPostgresCampaign(t *testing.T) {
	skipIfShort(t)
	pgtest.Need(t)
	t.Parallel()
	kinds := uint64(len(topologies)) // the seed of a cluster modulo kinds is its topology
	seed := *postgresSeed
	if seed == 0 {
		seed = kinds + uint64(rand.Uint32())/kinds*kinds
	}
	t.Logf("SEED=%d N=%d", seed, *postgresRounds)
	c := newPostgresCampaign()
	start := time.Now()
	t.Run("clusters", func(t *testing.T) {
		seeds := rand.New(rand.NewPCG(seed, 0))
		for left := *postgresRounds; left > 0; {
			l := &pgLife{c: c, topology: topologies[seed%kinds], rnd: rand.New(rand.NewPCG(seed, 1))}
			faults := slices.Clone(l.topology.faults)
			if os.Geteuid() != 0 { // only root can mount a file system to fill
				faults = slices.DeleteFunc(faults, func(f crashFault) bool {
					return f == faultFull || f == faultLogFull ||
						f == faultPower
				})
			}
			l.rnd.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
			if i := slices.Index(faults, faultFull); i > 0 { // a short run comes to the first one alone
				faults[0], faults[i] = faults[i], faults[0]
			}
			faults = faults[:min(len(faults), left)]
			left -= len(faults)
			t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) {
				t.Parallel()
				l.play(t, faults)
			})
			seed = uint64(seeds.Uint32())/kinds*kinds + (seed+1)%kinds
		}
	})
	t.Logf("%s\nin %v", c.table(), time.Since(start).Round(time.Second))
	if t.Failed() {
		return
	}
	if c.rounds != *postgresRounds {
		t.Errorf("%d rounds were played, want %d", c.rounds, *postgresRounds)
	}
	if c.rounds >= 10 && c.found.Acknowledged == 0 { // a fault may come before the first acknowledgement
		t.Error("nothing was acknowledged")
	}
	if c.faults[faultCut] >= 10 && c.cuts == 0 { // the loads of a single one may have ended first
		t.Error("no connection was cut")
	}
	if len(c.sealed) >= 10 && slices.Max(c.sealed) == 0 {
		t.Error("nothing was sealed")
	}
	updatePage(t, *postgresPage, "crash-postgres", c.table())
}

// TestPostgresPowerLoss cuts the power of PostgreSQL while a server stores readings and seals them.
//
// Seen to fail with fsync off.
func TestPostgresPowerLoss(t *testing.T) {
	skipIfShort(t)
	pgtest.Need(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		unable(t, "a loop device is needed, and root to mount it")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	i := slices.IndexFunc(topologies, func(one topology) bool { return one.powered })
	l := &pgLife{c: newPostgresCampaign(), topology: topologies[i], rnd: rand.New(rand.NewPCG(seed, 0))}
	l.play(t, []crashFault{faultPower})
}

// table returns the figures as a table for bench/results/reliability.txt.
func (c *postgresCampaign) table() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | rounds |\n|---|--:|\n")
	for _, f := range append(slices.Clone(anyFaults), faultFull, faultLogFull, faultPower, faultPromote, faultAlone) {
		fmt.Fprintf(&b, "| %s | %d |\n", f, c.faults[f])
	}
	fmt.Fprintf(&b, "| **all** | **%d** |\n| of those, with a server whose clock jumps | %d |\n\n", c.rounds, c.jumping)
	fmt.Fprintf(&b, "| | |\n|---|--:|\n| date | %s, %s, %s |\n", time.Now().Format(time.DateOnly), runtime.Version(),
		pgtest.Version())
	for _, one := range topologies {
		fmt.Fprintf(&b, "| clusters: %s | %d |\n", one.name, c.clusters[one.name])
	}
	fmt.Fprintf(&b,
		"| servers started | %d |\n| connections cut in an answer | %d |\n| after different numbers of bytes of it | %d |\n"+
			"| readings acknowledged | %d |\n| readings checked | %d |\n| readings without an answer, of which some are "+
			"stored | %d |\n"+
			"| acknowledged and lost | %d |\n| altered | %d |\n| doubled | %d |\n| never sent | %d |\n",
		c.starts, c.cuts, len(c.cutAt), c.found.Acknowledged, c.found.Stored, c.found.Unsettled,
		c.found.Missing, c.found.Altered, c.found.Doubled, c.found.Unknown)
	return b.String() + sealedRows(c.sealed)
}

// sealedRows returns the rows of a table about rounds in which servers sealed.
func sealedRows(sealed []int) string {
	if len(sealed) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"| rounds in which servers sealed all the time | %d |\n| readings in segments at the end of each of those | "+
			"%d to %d |\n",
		len(sealed), slices.Min(sealed), slices.Max(sealed))
}

// slots is the number of servers that a cluster can have: the server knows an address for each.
const slots = 3

// A pgLife is a cluster of PostgreSQL and its history.
type pgLife struct {
	c        *postgresCampaign
	topology topology
	rnd      *rand.Rand
	t        *testing.T
	b        *harness
	disk     string // directory of the file system, if it has one of its own
	power    *disk  // nil: it cannot be cut

	sealing bool // servers that are started seal all the time

	net     pgtest.Sockets
	members [slots]*pgtest.Server
	primary int // in members
	addrs   [slots]atomic.Pointer[string]

	found  sim.Verification
	sealed []int // readings in segments at the end of each round in which servers sealed
}

// settings are those of every member of the cluster.
func (l *pgLife) settings() []string {
	settings := []string{"fsync=on", "full_page_writes=on", "restart_after_crash=off", "shared_buffers=16MB",
		"autovacuum=off", "wal_keep_size=256MB", "wal_retrieve_retry_interval=500ms"}
	if l.topology.small {
		settings = append(settings, "max_wal_size=16MB", "min_wal_size=2MB")
	}
	if l.topology.standbys > 0 {
		settings = append(settings, "synchronous_standby_names=ANY 1 (m0, m1, m2)")
	}
	return settings
}

// play plays a round of each of the faults.
func (l *pgLife) play(t *testing.T, faults []crashFault) {
	l.t = t
	t.Cleanup(func() {
		for i, m := range l.members {
			if t.Failed() && m != nil {
				t.Logf("PostgreSQL %d (the primary is %d):\n%s", i, l.primary, m.Log())
			}
		}
	})
	l.net.Mark = []byte("\x00generation\x00")
	var mount func(dir string)
	if (l.topology.small || l.topology.powered) && os.Geteuid() == 0 {
		mount = func(dir string) {
			t.Cleanup(func() { _ = os.Remove(dir) })
			if l.disk = dir; l.topology.powered {
				l.power = newDiskOn(t, dir, 512<<20)
			} else {
				mountTmpfs(t, dir, 128<<20)
			}
		}
	}
	l.members[0] = pgtest.StartOn(t, mount, l.settings()...)
	if l.power != nil {
		l.power.control("sync", unix.Syncfs) // initdb does not
	}
	l.follow()
	l.route()
	args := []string{l.store(), "--max-ahead=900000h"}
	if l.topology.standbys == 0 {
		args = append(args, "--postgres-single")
	}
	l.b = l.harness(args)
	for n, fault := range faults {
		l.round(n, fault)
	}
	for _, load := range l.b.loads {
		v := load.verify()
		l.found.Acknowledged += v.Acknowledged
		l.found.Stored += v.Stored
		l.found.Unsettled += v.Unsettled
	}
	l.b.term()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.clusters[l.topology.name]++
	l.c.found.Acknowledged += l.found.Acknowledged
	l.c.found.Stored += l.found.Stored
	l.c.found.Unsettled += l.found.Unsettled
	l.c.sealed = append(l.c.sealed, l.sealed...)
}

// query asks the primary.
func (l *pgLife) query(sql string, v any) { l.ask(l.primary, sql, v) }

// ask asks a member.
func (l *pgLife) ask(i int, sql string, v any) {
	l.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, l.members[i].DSN())
	if err == nil {
		defer conn.Close(ctx)
		err = conn.QueryRow(ctx, sql).Scan(v)
	}
	try(l.t, err)
}

// noteSealed waits until some readings are in segments, and checks that each is in one place.
func (l *pgLife) noteSealed(atLeast int) {
	l.t.Helper()
	var n, twice int
	polltest.Until(l.t, "there are segments", func() bool {
		l.query("SELECT coalesce(sum(n), 0)::bigint FROM pulsegate.segments", &n)
		return n >= atLeast
	})
	l.query("SELECT count(*) FROM (SELECT FROM pulsegate.all_readings GROUP BY device, time_ms HAVING count(*) > "+
		"1) AS twice", &twice)
	if twice > 0 {
		l.t.Errorf("%d readings are stored twice", twice)
	}
	l.sealed = append(l.sealed, n)
}

// harness returns a harness whose server can be altered.
func (l *pgLife) harness(args []string) *harness {
	b := newHarness(l.t, fastLane, args...)
	bin, err := altered()
	try(l.t, err)
	b.bin = bin
	return b
}

// store returns the flag that names the members as hosts of one address. It must be called once.
func (l *pgLife) store() string {
	var hosts []string
	for i := range l.addrs {
		hosts = append(hosts, l.net.Forward(l.t, func() string {
			if addr := l.addrs[i].Load(); addr != nil {
				return *addr
			}
			return ""
		}))
	}
	return "--store=postgres://" + pgtest.User + "@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable"
}

// follow creates standbys in the place of members that are not the primary.
func (l *pgLife) follow() {
	for n := 1; n <= l.topology.standbys; n++ {
		i := (l.primary + n) % slots
		l.members[i] = l.members[l.primary].Standby(l.t, fmt.Sprintf("m%d", i), l.settings()...)
	}
}

// route makes the members reachable for the server.
func (l *pgLife) route() {
	for i, m := range l.members {
		l.addrs[i].Store(nil)
		if m != nil {
			addr := m.Addr()
			l.addrs[i].Store(&addr)
		}
	}
}

// round plays one round. The server and PostgreSQL are running when it returns.
func (l *pgLife) round(n int, fault crashFault) {
	jumping := l.rnd.IntN(2) == 0
	sealing := l.rnd.IntN(2) == 0 || fault == faultFrozen || fault == faultPower
	// on a full disk, gateways wait for half a minute
	survives := l.rnd.IntN(2) == 0 && fault != faultFull && fault != faultLogFull
	args := []string{fmt.Sprintf("--seed=%d", 1+l.rnd.IntN(1_000_000)), fmt.Sprintf("--users=%d", 1+l.rnd.IntN(40))}
	switch l.rnd.IntN(4) {
	case 0:
		args = append(args, fmt.Sprintf("--batch=%d", 2+l.rnd.IntN(50)), fmt.Sprintf("--share=batch=%.2f", l.rnd.Float64()))
	case 1:
		args = append(args, "--mix=real", fmt.Sprintf("--share=drop=%.2f,forward=%.2f,reorder=%.2f,malformed=0",
			l.rnd.Float64()/4, l.rnd.Float64()/4, l.rnd.Float64()/4))
	}
	length := "--for=1h"
	if survives {
		ms := 200 + l.rnd.IntN(400)
		if fault == faultAlone {
			ms += 1000 // so that it meets a primary without standbys
		}
		length = fmt.Sprintf("--for=%dms", ms)
	}
	after := time.Duration(l.rnd.Int64N(int64(300 * time.Millisecond)))
	l.t.Logf("round %d, %s: %s after %v, gateways survive %t, the clock jumps %t, sealing %t, sim %s", n, l.topology.name,
		fault, after.Round(time.Millisecond), survives, jumping, sealing, strings.Join(args, " "))
	if l.b.server != nil {
		l.b.server.kill() // while it is idle
	}
	l.sealing = sealing
	l.startNode(jumping)
	load := l.b.load(append(args, length)...)
	survives = load.awaitSent() && survives
	time.Sleep(after) // the moment of the fault
	l.strike(fault, jumping)
	if l.rnd.IntN(4) == 0 {
		l.b.server.kill()
		l.startNode(jumping)
	}
	l.b.awaitReady(200)
	if survives {
		load.wait()
	} else {
		load.settle()
	}
	load.verify()
	if sealing {
		l.noteSealed(0) // a short round may have nothing to seal
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.faults[fault]++
	l.c.rounds++
	if jumping {
		l.c.jumping++
	}
}

// startNode starts a server.
func (l *pgLife) startNode(jumping bool) {
	l.b.lane = []lane{fastLane, fullLane}[l.rnd.IntN(2)]
	var wrapper []string
	if jumping {
		wrapper = clockJumps
	}
	after := "--seal-after=0s"
	if l.sealing {
		after = "--seal-after=1ms"
	}
	l.b.startUnder(wrapper, after)
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.starts++
}

// strike applies a fault. The server and PostgreSQL are running when it returns.
func (l *pgLife) strike(fault crashFault, jumping bool) {
	primary := l.members[l.primary]
	pause := time.Duration(l.rnd.Int64N(int64(200 * time.Millisecond)))
	switch fault {
	case faultNode:
		l.b.server.kill()
		l.startNode(jumping)
	case faultPrimary:
		if l.rnd.IntN(2) == 0 {
			primary.Kill()
		} else {
			primary.Abort()
		}
		time.Sleep(pause)
		primary.Restart(l.t)
	case faultBoth:
		l.b.server.kill()
		primary.Kill()
		primary.Restart(l.t)
		l.startNode(jumping)
	case faultCut:
		l.cut(20 + l.rnd.IntN(20))
	case faultCancel:
		l.storm("pg_cancel_backend", 300*time.Millisecond+pause)
	case faultTerminate:
		l.storm("pg_terminate_backend", 300*time.Millisecond+pause)
	case faultFrozen:
		l.freezeSealer()
	case faultPower:
		primary.Freeze(l.t) // see harness.losePower
		l.power.cutPower()
		primary.Kill()
		l.power.revive()
		primary.Restart(l.t)
	case faultFull:
		f := leave(l.t, l.disk, -1)
		l.awaitRejected()
		time.Sleep(pause)
		f.remove()
		if primary.Ended() {
			primary.Restart(l.t)
		}
	case faultLogFull:
		f := leave(l.t, l.disk, -1)
		l.writeLog()
		f.remove()
		primary.Restart(l.t)
	case faultPromote:
		primary.Kill()
		time.Sleep(pause)
		l.promote()
	case faultAlone:
		for i, m := range l.members {
			if m != nil && i != l.primary {
				m.Kill()
			}
		}
		// What the primary commits from now on must not be acknowledged.
		l.storm("pg_cancel_backend", 100*time.Millisecond+pause)
		l.storm("pg_terminate_backend", 100*time.Millisecond+pause)
		if l.rnd.IntN(2) == 0 {
			l.b.server.kill()
			l.startNode(jumping)
		}
		if l.rnd.IntN(2) == 0 {
			primary.Kill()
			primary.Restart(l.t) // it shows what it has alone
		}
		time.Sleep(300*time.Millisecond + pause) // gateways send again
		primary.Kill()
		for i, m := range l.members {
			if m != nil && i != l.primary {
				m.Restart(l.t)
			}
		}
		l.promote()
	}
}

// freezeSealer stops the server in a transaction with which it seals, until another one has looked through all devices.
func (l *pgLife) freezeSealer() {
	l.b.server.await("the server is stopped while it seals", func() bool {
		l.b.server.signal(syscall.SIGSTOP)
		l.b.server.await("it is stopped", func() bool { return !l.b.server.running() })
		var seals bool
		l.query(`SELECT EXISTS (SELECT FROM pg_stat_activity JOIN pg_locks USING (pid)
			WHERE state = 'idle in transaction' AND locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted)`, &seals)
		if !seals {
			l.b.server.signal(syscall.SIGCONT)
			time.Sleep(time.Duration(l.rnd.Int64N(int64(10 * time.Millisecond))))
		}
		return seals
	})
	var before, passed int64
	const look = "SELECT passed_ms FROM pulsegate.state"
	l.query(look, &before)
	other := l.harness(l.b.args)
	other.start("--seal-after=1ms")
	other.server.await("another server seals", func() bool {
		l.query(look, &passed)
		return passed > before
	})
	l.b.server.signal(syscall.SIGCONT)
	time.Sleep(time.Duration(l.rnd.Int64N(int64(time.Second)))) // it finds out
	other.term()
}

// cut cuts this many connections off, each after one more byte of an answer, as far as there are
// answers.
func (l *pgLife) cut(times int) {
	for range times {
		after := l.c.cut.Add(1) - 1
		l.net.CutAfter(after)
		before := l.net.Answers()
		polltest.Within(polltest.Patience, func() bool {
			return l.net.HasCut() || l.loadsOver() ||
				l.net.Answers() > before+10
		})
		if !l.net.CutNone() {
			if l.loadsOver() {
				return
			}
			l.c.cut.Store(0) // answers are shorter
			continue
		}
		l.c.mu.Lock()
		l.c.cuts++
		l.c.cutAt[after] = true
		l.c.mu.Unlock()
	}
}

// loadsOver reports whether no load is running.
func (l *pgLife) loadsOver() bool {
	return !slices.ContainsFunc(l.b.loads, func(one *load) bool { return !one.over() })
}

// storm calls a function for all backends of the server, again and again.
func (l *pgLife) storm(function string, d time.Duration) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, l.members[l.primary].DSN())
	try(l.t, err)
	defer conn.Close(ctx)
	for end := time.Now().Add(d); time.Now().Before(end); {
		_, err := conn.Exec(ctx,
			"SELECT "+function+"(pid) FROM pg_stat_activity WHERE application_name = 'pulsegate' AND pid <> pg_backend_pid()")
		try(l.t, err)
		time.Sleep(time.Duration(l.rnd.Int64N(int64(10 * time.Millisecond))))
	}
}

// awaitRejected waits until readings are rejected because the disk is full, or PostgreSQL ends.
func (l *pgLife) awaitRejected() {
	ms := 1_700_000_000_000 + int64(len(l.b.loads))
	l.b.server.await("the full disk is noticed", func() bool {
		ms += 1000
		status, _, err := l.b.post(fmt.Sprintf(`{"device":"filler","time":%d,"spo2_pct":97}`, ms), false)
		return err == nil && status == 503 || l.members[l.primary].Ended()
	})
}

// writeLog adds to PostgreSQL's log until it ends because it cannot.
func (l *pgLife) writeLog() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, l.members[l.primary].DSN())
	try(l.t, err)
	defer conn.Close(ctx)
	polltest.Until(l.t, "PostgreSQL ends", func() bool {
		_, _ = conn.Exec(ctx, "SELECT pg_logical_emit_message(false, '', repeat('x', 300000))") // the last one fails
		return l.members[l.primary].Ended()
	})
}

// promote makes that standby the primary that has most of the log of the last one, and replaces
// the other members.
func (l *pgLife) promote() {
	best, most := -1, int64(0)
	for i, m := range l.members {
		if m == nil || i == l.primary {
			continue
		}
		if at := l.replayed(m); best < 0 || at > most {
			best, most = i, at
		}
	}
	l.members[best].Promote(l.t)
	l.primary = best
	for i, m := range l.members {
		if m != nil && i != best {
			m.Remove()
			l.members[i] = nil
		}
	}
	l.route()
	l.follow()
	l.route()
}

// replayed waits until a standby without a primary has replayed all that it has received, and
// returns the position in the log.
func (l *pgLife) replayed(m *pgtest.Server) (at int64) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, m.DSN())
	try(l.t, err)
	defer conn.Close(ctx)
	polltest.Until(l.t, "the standby has replayed what it has", func() bool {
		var waits bool
		err := conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint,
			EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'startup' AND wait_event = 'RecoveryRetrieveRetryInterval')`).Scan(&at, &waits)
		try(l.t, err)
		return waits
	})
	return at
}
