package main_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

var (
	crashRounds = flag.Int("crash.rounds", 5, "rounds of TestCrashCampaign")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of TestCrashCampaign; 0: a random one, which is logged")
	crashPage   = flag.String("crash.page", "", "page into which TestCrashCampaign writes its figures")
)

// An input is how the loads of a life come.
type input string

const (
	inputJSON   input = "JSON"
	inputMQTT   input = "MQTT"
	inputMapped input = "mapped"
	inputHL7    input = "HL7"
	inputInflux input = "InfluxDB"
)

// The seed of a life modulo the number of inputs is its input.
var inputs = []input{inputJSON, inputMQTT, inputMapped, inputHL7, inputInflux}

// A crashFault is what happens to a server in a round of the campaign.
type crashFault string

// The faults of the campaign.
const (
	faultKill      crashFault = "kill -9"
	faultKillSync  crashFault = "kill -9 in place of a sync"
	faultSlowKill  crashFault = "kill -9 with a slow disk"
	faultPauseKill crashFault = "SIGSTOP, then kill -9"
	faultPause     crashFault = "SIGSTOP and SIGCONT"
	faultTorn      crashFault = "kill -9, then garbage after the log"
	faultTerm      crashFault = "SIGTERM"
	faultSyncError crashFault = "sync fails with EIO"
	faultPower     crashFault = "loss of power"
	faultStall     crashFault = "disk stalls"
	faultStallKill crashFault = "disk stalls, then kill -9"
)

var (
	processFaults = []crashFault{faultKill, faultKillSync, faultSlowKill, faultPauseKill, faultPause, faultTorn, faultTerm,
		faultSyncError}
	// these need a disk whose power can be cut
	diskFaults = []crashFault{faultPower, faultPower, faultStall, faultStallKill}
)

// A campaign adds up the results of its lives.
type campaign struct {
	mu      sync.Mutex // guards the following fields
	rounds  int
	tallies map[input]*tally
}

// A tally has the results of the lives with one input.
type tally struct {
	faults  map[crashFault]int
	loads   map[string]int // over MQTT, by version and QoS
	lives   int
	secured int // of lives, with TLS
	starts  int // servers started
	killed  int // of those, servers killed during startup
	refused int // of those, servers that rejected a damaged file
	found   sim.Verification
}

// TestCrashCampaign plays random rounds of a load, a fault at a random moment, a restart, and a
// comparison of the store with the ledger. A life is a sequence of rounds on one directory, with loads of one
// input. Its seed determines it and is logged; SEED=<seed of the life> make crash repeats it. The moments are
// then the same, but not what the processes are doing in them.
//
// Seen to fail with the mutants answer-before-commit, answer-before-sync, drop-a-reading, drop-mapped-decimals and
// acknowledge-hl7-before-the-store.
func TestCrashCampaign(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	kinds := uint64(len(inputs))
	seed, longest, c := *crashSeed, *crashRounds, &campaign{tallies: map[input]*tally{}}
	if seed == 0 {
		seed = kinds + uint64(rand.Uint32())
		longest = max(*crashRounds/len(inputs), 1) // so that a short campaign has loads of each input
	}
	for _, in := range inputs {
		c.tallies[in] = &tally{faults: map[crashFault]int{}, loads: map[string]int{}}
	}
	t.Logf("SEED=%d N=%d", seed, *crashRounds)
	start := time.Now()
	t.Run("lives", func(t *testing.T) {
		seeds := rand.New(rand.NewPCG(seed, 0))
		for left := *crashRounds; left > 0; {
			in := inputs[seed%kinds]
			l := &life{c: c, input: in, tally: c.tallies[in], seed: seed, rnd: rand.New(rand.NewPCG(seed, 1))}
			rounds := min(3+l.rnd.IntN(6), longest, left)
			left -= rounds
			t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) {
				t.Parallel()
				l.play(t, rounds)
			})
			seed = (uint64(seeds.Uint32())/kinds+1)*kinds + (seed+1)%kinds
		}
	})
	t.Logf("%s\nin %v", c.table(), time.Since(start).Round(time.Second))
	if !t.Failed() && c.rounds != *crashRounds {
		t.Errorf("%d rounds were played, want %d", c.rounds, *crashRounds)
	}
	for in, n := range c.tallies {
		if !t.Failed() && c.rounds >= 20 && n.lives > 0 && n.found.Acknowledged == 0 { // a fault may come before the first
			t.Errorf("%s: nothing was acknowledged", in)
		}
	}
	updatePage(t, *crashPage, "crash", c.table())
}

// table returns the figures as a table for bench/results/reliability.txt.
func (c *campaign) table() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	head := func(what string) {
		b.WriteString("| " + what + " |")
		for _, in := range inputs {
			fmt.Fprintf(&b, " %s |", in)
		}
		b.WriteString(" all |\n|---|" + strings.Repeat("--:|", len(inputs)+1) + "\n")
	}
	row := func(what string, of func(*tally) int) {
		fmt.Fprintf(&b, "| %s |", what)
		all := 0
		for _, in := range inputs {
			n := of(c.tallies[in])
			fmt.Fprintf(&b, " %d |", n)
			all += n
		}
		fmt.Fprintf(&b, " %d |\n", all)
	}
	count := func(n *tally) (all int) {
		for _, rounds := range n.faults {
			all += rounds
		}
		return all
	}
	head("fault")
	for _, f := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(processFaults, harmFaults, diskFaults)))) {
		row(string(f), func(n *tally) int { return n.faults[f] })
	}
	row("all", count)
	b.WriteString("\n| load | rounds |\n|---|--:|\n")
	for _, in := range inputs {
		loads := c.tallies[in].loads
		for _, kind := range slices.Sorted(maps.Keys(loads)) {
			fmt.Fprintf(&b, "| %s | %d |\n", kind, loads[kind])
		}
	}
	fmt.Fprintf(&b, "\n%s, %s\n\n", time.Now().Format(time.DateOnly), runtime.Version())
	head("")
	row("data directories", func(n *tally) int { return n.lives })
	row("of those, with TLS", func(n *tally) int { return n.secured })
	row("servers started", func(n *tally) int { return n.starts })
	row("of those, killed while they started", func(n *tally) int { return n.killed })
	row("of those, which rejected a damaged file", func(n *tally) int { return n.refused })
	row("readings acknowledged", func(n *tally) int { return int(n.found.Acknowledged) })
	row("readings checked", func(n *tally) int { return int(n.found.Stored) })
	row("readings without an answer, of which some are stored", func(n *tally) int { return int(n.found.Unsettled) })
	row("acknowledged and lost", func(n *tally) int { return int(n.found.Missing) })
	row("altered", func(n *tally) int { return int(n.found.Altered) })
	row("doubled", func(n *tally) int { return int(n.found.Doubled) })
	row("never sent", func(n *tally) int { return int(n.found.Unknown) })
	return b.String()
}

// A life is a data directory and its history.
type life struct {
	c     *campaign
	input input
	tally *tally // guarded by c.mu
	seed  uint64
	rnd   *rand.Rand
	t     *testing.T
	disk  *disk // nil: none
	b     *harness

	older map[string]string // the files of the store at an earlier stop

	found sim.Verification // as of the last look at each ledger
}

// play plays this many rounds.
func (l *life) play(t *testing.T, rounds int) {
	l.t = t
	dir := filepath.Join(t.TempDir(), "data")
	if os.Geteuid() == 0 {
		l.disk = newDisk(t, 2<<30)
		dir = filepath.Join(l.disk.dir, "data")
	}
	l.b = newHarnessIn(t, dir, l.anyLane())
	switch l.input {
	case inputJSON:
		l.b.measureMore()
	case inputMQTT:
		l.b.mqtt = porttest.Addr(t)
	case inputHL7:
		l.b.mllp = porttest.Addr(t)
	case inputMapped:
		l.b.args = append(l.b.args, "--mapping=../../examples/mappings/sim.toml")
	}
	if l.rnd.IntN(2) == 0 {
		l.b.secure()
		l.c.mu.Lock()
		l.tally.secured++
		l.c.mu.Unlock()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat: make crash SEED=%d N=%d\nthe state is in %s", l.seed, rounds, l.keep())
		}
	})
	for n := range rounds {
		l.round(n)
	}
	for _, load := range l.b.loads {
		l.add(load.verify())
	}
	l.b.term()
	l.b.check()

	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.tally.lives++
	l.c.rounds += rounds
	l.tally.found.Acknowledged += l.found.Acknowledged
	l.tally.found.Stored += l.found.Stored
	l.tally.found.Unsettled += l.found.Unsettled
}

func (l *life) add(v *sim.Verification) {
	l.found.Acknowledged += v.Acknowledged
	l.found.Stored += v.Stored
	l.found.Unsettled += v.Unsettled
}

// keep copies the data directory and the ledgers of a failed life.
func (l *life) keep() string {
	l.b.server.kill()
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("pulsegate-crash-%d", l.seed))
	err := errors.Join(os.RemoveAll(kept),
		os.CopyFS(filepath.Join(kept, "data"), os.DirFS(l.b.dir)),
		os.CopyFS(filepath.Join(kept, "ledgers"), os.DirFS(l.b.scratch)))
	if err != nil {
		return fmt.Sprintf("%s, in part: %v", kept, err)
	}
	return kept
}

func (l *life) anyLane() lane {
	if l.rnd.IntN(2) == 0 {
		return fullLane
	}
	return fastLane
}

// round plays one round. A server is running when it returns.
func (l *life) round(n int) {
	faults := slices.Concat(processFaults, harmFaults)
	if l.disk != nil {
		faults = append(faults, diskFaults...)
	}
	drawn := faults[l.rnd.IntN(len(faults))]
	fault, harm, harmed := harmOf(drawn)
	// The gateways survive and retry, or end with the server. Gateways that wait for seconds
	// because of Retry-After are killed.
	survives := l.rnd.IntN(2) == 0 && !harmed &&
		!slices.Contains([]crashFault{faultTerm, faultSyncError, faultPower}, fault)
	args := l.loadArgs(survives)
	switch l.input {
	case inputMQTT:
		args = append(args, l.mqttArgs()...)
	case inputInflux:
		args = append(args, "--influx")
	case inputMapped:
		args = append(args, "--mapped=sim")
	case inputHL7:
		args = append(args, l.b.mllpTarget())
	}
	after := time.Duration(l.rnd.Int64N(int64(400 * time.Millisecond)))
	answers := l.rnd.IntN(40) // on a slow machine there may be none yet
	l.b.lane = l.anyLane()
	l.t.Logf("round %d: %s after %v, fast lane %s, gateways survive %t, sim %s", n, drawn, after.Round(time.Millisecond),
		l.b.lane, survives, strings.Join(args, " "))

	if l.b.server != nil {
		l.b.server.kill() // while it is idle
	}
	wrapper := l.wrapper(fault)
	alive := l.launch(wrapper)
	var load *load
	if alive {
		load = l.b.load(args...)
		sent := load.awaitSent()
		if !sent && wrapper == nil {
			l.t.Fatalf("the load sends nothing:\n%s%s", &load.stderr, &load.out)
		}
		survives = sent && survives
		l.b.server.exitsWithin(after) // less if an injected fault ends the server
		polltest.Within(polltest.Patience, func() bool {
			return l.b.server.exitsWithin(0) || load.over() || load.acknowledged() >= answers
		})
		alive = l.strike(fault)
	}
	if load != nil && !alive && !survives {
		load.settle()
	}
	if !alive {
		if fault == faultTorn {
			l.tear()
		}
		if harmed {
			l.harm(harm, fault)
		}
		l.restart()
	}
	if load != nil {
		if survives {
			load.wait()
		} else {
			load.settle()
		}
		load.verify()
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.tally.faults[drawn]++
}

// loadArgs draws a load. A load that survives the fault ends by itself.
func (l *life) loadArgs(survives bool) []string {
	r := l.rnd
	args := []string{fmt.Sprintf("--seed=%d", 1+r.IntN(1_000_000)), fmt.Sprintf("--users=%d", 1+r.IntN(60))}
	switch r.IntN(8) {
	case 0:
		args = append(args, "--batch=1000")
	case 1, 2, 3:
		args = append(args, fmt.Sprintf("--batch=%d", 2+r.IntN(50)), fmt.Sprintf("--share=batch=%.2f", r.Float64()))
	}
	if r.IntN(2) == 0 {
		args = append(args, "--mix=real", fmt.Sprintf("--share=drop=%.2f,forward=%.2f,reorder=%.2f", r.Float64()/4,
			r.Float64()/4, r.Float64()/4))
	}
	if r.IntN(3) == 0 {
		args = append(args, fmt.Sprintf("--devices=%d", 1+r.IntN(500)))
	}
	if survives {
		return append(args, fmt.Sprintf("--for=%dms", 100+r.IntN(500)))
	}
	return append(args, "--for=1h")
}

// mqttArgs draws the flags of a load over MQTT.
func (l *life) mqttArgs() []string {
	version, qos := "3.1.1", 1+l.rnd.IntN(2)
	if l.rnd.IntN(2) == 0 {
		version = "5"
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.tally.loads[fmt.Sprintf("MQTT %s, QoS %d", version, qos)]++
	return []string{l.b.mqttTarget(), "--mqtt-version=" + version, fmt.Sprintf("--qos=%d", qos),
		fmt.Sprintf("--in-flight=%d", 1+l.rnd.IntN(32))}
}

// wrapper returns the command that runs a server with the fault.
func (l *life) wrapper(fault crashFault) []string {
	trace := filepath.Join(l.b.scratch, "trace")
	nth := 1 + l.rnd.IntN(40)
	switch fault {
	case faultKillSync:
		return strace(l.t, trace, fmt.Sprintf("fdatasync,fsync:signal=SIGKILL:when=%d", nth))
	case faultSyncError:
		return strace(l.t, trace, fmt.Sprintf("fdatasync:error=EIO:when=%d", nth))
	case faultSlowKill:
		return strace(l.t, trace, fmt.Sprintf("fdatasync:delay_enter=%dms", 1+l.rnd.IntN(30)))
	}
	return nil
}

// launch starts a server that may exit before it listens, and reports whether it listens.
func (l *life) launch(wrapper []string) bool {
	l.c.mu.Lock()
	l.tally.starts++
	l.c.mu.Unlock()
	line := append(wrapper, l.b.serveCommand()...)
	p, err := tryLaunch(l.t, 1, exec.Command(line[0], line[1:]...))
	if p != nil {
		l.b.server = p
		watchLog(l.t, p)
	}
	if err != nil && wrapper == nil {
		l.t.Fatal(err)
	}
	return err == nil
}

// strike applies the fault to the running server, and reports whether the server survives.
func (l *life) strike(fault crashFault) (alive bool) {
	server := l.b.server
	pause := time.Duration(l.rnd.Int64N(int64(300 * time.Millisecond)))
	switch fault {
	case faultKill, faultTorn, faultSlowKill:
		server.kill()
	case faultKillSync, faultSyncError:
		if !server.exitsWithin(5 * time.Second) { // no thread has synced that often
			server.kill()
		}
		// -1: by the kill above
		if code := server.cmd.ProcessState.ExitCode(); fault == faultSyncError && code != 1 && code != -1 {
			l.t.Fatalf("after a failed sync the exit code is %d:\n%s", code, server.stderr())
		}
	case faultPause, faultPauseKill:
		server.signal(syscall.SIGSTOP)
		time.Sleep(pause)
		if fault == faultPauseKill {
			server.kill()
			return false
		}
		server.signal(syscall.SIGCONT)
		return true
	case faultTerm:
		l.b.term()
	case faultPower:
		l.b.losePower(l.disk)
	case faultStall, faultStallKill:
		l.disk.freeze()
		time.Sleep(pause)
		if fault == faultStallKill {
			server.signal(syscall.SIGKILL) // it exits when its pending writes are done
		}
		l.disk.thaw()
		if fault == faultStall {
			return true
		}
		server.ended()
	}
	return false
}

// tear writes garbage where the last write to the log was in progress.
func (l *life) tear() {
	name, _ := l.b.log()
	garbage := make([]byte, 1+l.rnd.IntN(40_000))
	for i := range garbage {
		garbage[i] = byte(l.rnd.Uint32())
	}
	whole, err := os.ReadFile(name)
	try(l.t, err)
	writeTo(l.t, name, append(whole, garbage...))
}

// restart starts a server. Some are killed during startup.
func (l *life) restart() {
	l.b.lane = l.anyLane()
	for l.rnd.IntN(4) == 0 {
		line := l.b.serveCommand()
		cmd := exec.Command(line[0], line[1:]...)
		try(l.t, cmd.Start())
		time.Sleep(time.Duration(l.rnd.Int64N(int64(60 * time.Millisecond))))
		_ = cmd.Process.Kill() // it may have exited by itself, which the next start reveals
		_ = cmd.Wait()
		l.c.mu.Lock()
		l.tally.starts++
		l.tally.killed++
		l.c.mu.Unlock()
	}
	l.launch(nil)
}
